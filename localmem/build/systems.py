"""Parts become a memory: one small function a system, and the table of all of them.

Knows no settings but a system's own options, which come from configs/systems and the user.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from localmem.bank import Bank
from localmem.errors import BadSettings
from localmem.llm.base import LLM
from localmem.memory import Memory
from localmem.retrieval.base import Retriever
from localmem.systems.exchange_retrieval import ExchangeRetrieval
from localmem.systems.memory_retrieval import MemoryRetrieval
from localmem.systems.none import NoMemory
from localmem.systems.rsum import RecursiveSummary
from localmem.text.summarize import Summarizer

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Parts:
    """What every user's memory shares: the backbone, and how to make an index."""

    llm: LLM
    new_retriever: Callable[[], Retriever]


@dataclass(frozen=True, slots=True)
class System:
    """A memory system: how it is made, what it remembers, and when it asks the model."""

    make: Callable[[Parts, Values, Bank | None], Memory]
    remembers: str
    calls: str


class Options(BaseModel):
    """Options of one system; every one stands in its configs/systems file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Read = TypeVar("Read", bound=Options)


def read(model: type[Read], values: Values) -> Read:
    """The options, checked. Raises BadSettings."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"])
        raise BadSettings(f"option {name!r} cannot be {problem['input']!r}: {problem['msg']}") from error


class Nearest(Options):
    """How many units are recalled."""

    k: PositiveInt


class Rsum(Options):
    """LLM-Rsum's."""

    limit: PositiveInt


def _none(_parts: Parts, _values: Values, bank: Bank | None) -> Memory:
    return NoMemory(bank=bank)


def _exchange_retrieval(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    return ExchangeRetrieval(retriever=parts.new_retriever(), bank=bank, k=read(Nearest, values).k)


def _memory_retrieval(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    summarize = Summarizer(parts.llm)
    return MemoryRetrieval(retriever=parts.new_retriever(), summarize=summarize, bank=bank, k=read(Nearest, values).k)


def _rsum(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    return RecursiveSummary(llm=parts.llm, bank=bank, limit=read(Rsum, values).limit)


SYSTEMS: Mapping[str, System] = {
    "none": System(_none, "nothing", "never"),
    "exchange_retrieval": System(_exchange_retrieval, "the exchanges as they were said", "never"),
    "memory_retrieval": System(_memory_retrieval, "sentences drawn from each session", "once a session's end"),
    "rsum": System(_rsum, "one summary, rewritten after each session", "once a session's end"),
}
