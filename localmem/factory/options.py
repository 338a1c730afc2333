"""What a user can set about each system. The values stand in configs/systems/<name>.yaml, with what each means.

Theanine's own are in its folder. Knows no parts and no system.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from localmem.errors import BadSettings

Values = Mapping[str, object]


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


class AllMemoriesOptions(Options):
    """All memories; configs/systems/all_memories.yaml says what each means."""

    each: Literal["session", "utterance"]
    longest: PositiveInt


class SessionRetrievalOptions(Options):
    """How many sessions are recalled, and how many tokens they may hold together."""

    k: PositiveInt
    tokens: PositiveInt


class SumMemOptions(Options):
    """SumMem; configs/systems/summem.yaml says what each means."""

    sentences: PositiveInt
    longest: PositiveInt
    parts: PositiveInt


class MemoChatOptions(Options):
    """MemoChat; configs/systems/memochat.yaml says what each means."""

    entries: PositiveInt
    words: PositiveInt
    kept: NonNegativeInt
    topics: PositiveInt
    picks: PositiveInt
    longest: PositiveInt


class MemoryBankOptions(Options):
    """MemoryBank; configs/systems/memorybank.yaml says what each means."""

    k: PositiveInt
    pool: PositiveInt
    strength: PositiveFloat
    gain: NonNegativeFloat
    threshold: float = Field(ge=0, lt=1)


class ComedyOptions(Options):
    """COMEDY; configs/systems/comedy.yaml says what each means."""

    portrait: PositiveInt
    relationship: PositiveInt
    events: PositiveInt
    longest: PositiveInt


class ConditionMemOptions(Options):
    """ConditionMem; configs/systems/conditionmem.yaml says what each means."""

    k: PositiveInt
    rounds: NonNegativeInt
    knowledge: PositiveInt
    longest: PositiveInt


class SeComOptions(Options):
    """SeCom; configs/systems/secom.yaml says what each means."""

    granularity: Literal["segment", "turn", "session"]
    segmenter: str
    incremental: bool
    rubric: str | None
    chunk: PositiveInt
    compress: Literal["none", "llmlingua"]
    compressor: str
    rate: float = Field(gt=0, le=1)
    k: NonNegativeInt
    tokens: NonNegativeInt


class CreemOptions(Options):
    """CREEM; configs/systems/creem.yaml says what each means."""

    k: PositiveInt
    count: PositiveInt
    first: PositiveInt
    refine: bool
    before_reply: bool
    speakers: Literal["user", "both"]
    longest: PositiveInt
    tokens: PositiveInt


class CareCallOptions(Options):
    """Keep Me Updated's; configs/systems/carecall.yaml says what each means."""

    variant: Literal["update", "accumulate", "history", "without", "gold"]
    speakers: Literal["user", "both"]
    k: NonNegativeInt
    query_turns: PositiveInt
    classifier: str | None
    shortlist: NonNegativeInt
    capacity: NonNegativeInt
    fusion: bool
    history_tokens: PositiveInt
    gold: str | None


class RsumOptions(Options):
    """LLM-Rsum's; configs/systems/rsum.yaml says what each means."""

    limit: PositiveInt
    examples: Literal[0, 2, 3]
    retrieve: NonNegativeInt
    long_context: bool
