"""What stands in a run's file: a line for each session that was read and each probe that was answered.

What a system remembered stands in it as changes, so that a run that broke off goes on from the file alone. Knows no
runner and no measure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from localmem.evaluation.episodes import Kind
from localmem.evaluation.lines import Lines, read_lines
from localmem.evaluation.metrics.likelihood import Likelihood
from localmem.llm.wrappers import Spent
from localmem.types import Change


class Work(NamedTuple):
    """What one thread does from beginning to end: one system reads one episode of one data set."""

    system: str
    data: str
    episode: str


@dataclass(frozen=True, slots=True)
class Read:
    """A session that was read, and what was `said` in it by `user` and the other.

    `changes` are what the system remembered of it, `gold` the sentences that a memory should hold by then, where the
    data says so; `error` is why it failed, if it did.
    """

    work: Work
    session: str
    user: str
    said: str
    changes: tuple[Change, ...]
    seconds: float
    spent: Mapping[str, Spent]
    gold: tuple[str, ...] = ()
    error: str = ""
    type: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class Answer:
    """A probe that was answered, or failed to be (`error`).

    `about` is the probe's type in the data set and `session` the one after which it was asked. `units` are those that
    were recalled, each by the ids of its source turns, `evidence` the turns where the answer stands, `past` what those
    turns say. `dialogue` is the conversation up to the question, `speaker` the one who answers. `likelihood` is that of
    the gold answer under the backbone, where it was asked for. `seconds` and `spent` are by stage: recall, respond.
    """

    work: Work
    probe: str
    kind: Kind
    about: str
    session: str
    question: str
    gold: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    past: str = ""
    dialogue: str = ""
    speaker: str = ""
    text: str = ""
    recalled: str = ""
    units: tuple[tuple[str, ...], ...] = ()
    likelihood: Likelihood | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, Mapping[str, Spent]] = field(default_factory=dict)
    error: str = ""
    type: Literal["answer"] = "answer"


Line = Read | Answer

_FORM: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


def answers_in(path: Path) -> Lines[Line]:
    """The run's file, to be opened with `with` and written to."""
    return Lines(path, _FORM)


def lines_in(path: Path) -> Iterator[Line]:
    """Every whole line of a run's file. Raises BadInput."""
    return read_lines(path, _FORM)


def answers_of(lines: Sequence[Line]) -> list[Answer]:
    """The answers in an order that does not depend on which thread was first."""
    return sorted((line for line in lines if isinstance(line, Answer)), key=lambda line: (line.work, line.probe))


def reads_of(lines: Sequence[Line]) -> list[Read]:
    """The sessions that were read, likewise."""
    return sorted((line for line in lines if isinstance(line, Read)), key=lambda line: (line.work, line.session))
