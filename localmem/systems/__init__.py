"""The papers' memory methods, one module each, and the contract by which the factory makes them.

Systems hold ideas only: they import no weights library, no store and no other system. What loads weights reaches them
as `Parts`.

To add a system:

1. Write `localmem/systems/<name>.py`: a `Memory` subclass, an `Options` subclass with what a user can set, and the
   entry `SYSTEM = System("<name>", ...)`. A prompt is a file localmem/prompts/<name>/<task>.md. What a model writes
   passes a `Gate` before it becomes a unit or a note, and the gate's `refusals` are returned with the other changes.
2. Add the module to the list in `localmem/factory.py`.
3. Write `configs/systems/<name>.yaml` with the value of every option and a comment that explains it.

The contract tests in tests/systems/test_contract.py then run over the new system.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from localmem.errors import BadSettings
from localmem.files import validation_line
from localmem.memory import Memory
from localmem.text.dialogue import show_recall

if TYPE_CHECKING:
    from localmem.bank import Bank
    from localmem.classification import PairClassifier
    from localmem.llm.base import LLM
    from localmem.retrieval.base import Reranker, Retriever
    from localmem.segmentation import Segmenter
    from localmem.text.compress import Compressor

NEVER = "never"  # when a system that asks no LLM calls it

Part = TypeVar("Part")


class Wrap(Protocol):
    """Decorates each part as it is made, for example to time it: takes a part, returns what is used in its place."""

    def __call__(self, part: Part, /) -> Part: ...


def no_wrap(part: Part, /) -> Part:
    """The part itself."""
    return part


@dataclass(frozen=True, slots=True)
class Parts:
    """What memories are made of. The `load_*` functions take the name or folder of a trained model, `find_compressor`
    returns the name of one that is on this machine. A summariser answers in place of the LLM.

    `new_index` makes an index for texts that are compared once (default: like `new_retriever`). Systems apply `wrap` to
    the trained models they load; the other parts are wrapped already. `day_first` is how the user writes
    "9/11/25", None where nobody knows.
    """

    llm: "LLM"
    new_retriever: "Callable[[], Retriever]"
    new_index: "Callable[[], Retriever] | None" = None
    wrap: Wrap = no_wrap
    day_first: bool | None = None
    load_classifier: "Callable[[str], PairClassifier]" = field(kw_only=True)
    load_reranker: "Callable[[str], Reranker]" = field(kw_only=True)
    load_segmenter: "Callable[[str], Segmenter]" = field(kw_only=True)
    load_compressor: "Callable[[str], Compressor]" = field(kw_only=True)
    load_summarizer: "Callable[[str, LLM], LLM]" = field(default=lambda _, llm: llm, kw_only=True)
    find_compressor: "Callable[[], str | None]" = field(default=lambda: None, kw_only=True)


class Options(BaseModel):
    """What a user can set about one system. Values and explanations stand in configs/systems/<name>.yaml.

    `show_times` is an option of every system, and off where its file does not say otherwise, as in the papers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    show_times: bool = False


OptionsT = TypeVar("OptionsT", bound=Options)


def read_options(model: type[OptionsT], values: Mapping[str, object]) -> OptionsT:
    """The options, checked. Raises BadSettings."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise BadSettings(validation_line(error, model, "option")) from error


@dataclass(frozen=True, slots=True)
class System(Generic[OptionsT]):
    """A memory system as users choose it.

    `remembers` says what it keeps and `llm_calls` when it calls the model, both in a few words for `localmem systems`.
    `context_turns` is how many earlier units of its session BM25 reads together with each unit. With `views` its units
    are turns, searched by exchange and by sentence (see ViewRetriever).
    """

    name: str
    options: type[OptionsT]
    make: "Callable[[Parts, OptionsT, Bank | None], Memory]"
    remembers: str
    llm_calls: str
    context_turns: int = 0
    views: bool = False

    @property
    def asks_llm(self) -> bool:
        """Whether remembering takes calls of the LLM."""
        return self.llm_calls != NEVER

    def new_memory(self, parts: Parts, values: Mapping[str, object], bank: "Bank | None" = None) -> Memory:
        """A memory over this bank (default: an empty one). Raises BadSettings for wrong option values."""
        options = read_options(self.options, values)
        memory = self.make(parts, options, bank)
        memory.show = show_recall if options.show_times else None
        return memory
