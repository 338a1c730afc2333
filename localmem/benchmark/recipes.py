"""The recipes of the load and retrieval benchmarks. Imports no numeric library, because `--help` reads them."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

IndexKind = Literal["flat", "hnsw", "ivf"]


class LoadRecipe(BaseModel):
    """What the load benchmark simulates."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    users: PositiveInt = 100
    """Concurrent users."""
    turns: PositiveInt | None = None
    """Turns per user; default: 20, unless seconds is set."""
    seconds: PositiveFloat | None = None
    """Stop after this many seconds."""
    think: float = Field(default=1.0, ge=0)
    """Mean pause of a user between turns, in seconds."""
    words: PositiveInt = 20
    """Words of a user's turn."""
    answer: PositiveInt = 30
    """Words of a reply."""
    first_token: float = Field(default=0.2, ge=0)
    """Seconds to the first word of a reply."""
    per_token: float = Field(default=0.02, ge=0)
    """Seconds between further words."""
    seed: int = 0
    """Seed of words and pauses."""

    @model_validator(mode="after")
    def _set_limit(self) -> Self:
        """Without `seconds` the turns end a run."""
        return self if self.turns or self.seconds else self.model_copy(update={"turns": 20})

    @property
    def backbone_seconds(self) -> float:
        """Time of the scripted backbone for one reply."""
        return self.first_token + self.per_token * (self.answer - 1)


class RetrievalRecipe(BaseModel):
    """What the retrieval benchmark measures."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    units: tuple[PositiveInt, ...] = (1_000, 10_000, 100_000)
    """Units in the bank."""
    kinds: tuple[IndexKind, ...] = ("flat", "hnsw", "ivf")
    """Vector index; bm25 is always measured."""
    dimension: int | None = Field(default=None, ge=2)
    """Dimension of simple word vectors, used instead of the configured encoder."""
    encode_all: bool = False
    """Whether to encode every text; by default 10,000, and further vectors are mixtures of these."""
    queries: int = Field(default=200, ge=10)
    """Number of questions."""
    batch: tuple[PositiveInt, ...] = (1, 32)
    """Questions per call."""
    seed: int = 0
    """Seed of texts, questions and mixtures."""
