"""The recipes of the benchmarks, and the latency measurements that one expands to.

Imports no numeric library, because `--help` reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

IndexKind = Literal["flat", "hnsw", "ivf"]


class _Recipe(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LoadRecipe(_Recipe):
    """What the load benchmark simulates."""

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


class RetrievalRecipe(_Recipe):
    """What the retrieval benchmark measures."""

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


Cache = Literal["cold", "warm"]


@dataclass(frozen=True, slots=True)
class Load:
    """How requests arrive: `closed`, with `concurrency` in flight; or `open`, `rate` per second (Poisson arrivals)."""

    kind: Literal["closed", "open"]
    concurrency: int | None = None
    rate: float | None = None

    def __str__(self) -> str:
        if self.kind == "open":
            return f"{self.rate:g} turns per second"
        return f"{self.concurrency} concurrent user{'s' * (self.concurrency != 1)}"

    @property
    def amount(self) -> float:
        """Concurrent users, or turns per second."""
        return float(self.concurrency or 0) if self.kind == "closed" else self.rate or 0.0


class ScriptedTimes(_Recipe):
    """Times of a backbone without weights."""

    first_token: float = Field(ge=0)
    """Seconds to the first token of a reply."""
    per_token: float = Field(ge=0)
    """Seconds between further tokens."""


class LatencyRecipe(_Recipe):
    """What to measure: every combination of systems, histories, loads and caches."""

    title: str = ""
    """Title of the run."""
    systems: tuple[str, ...] = ("exchange_retrieval",)
    """Memory system; `all` for every one."""
    models: tuple[str, ...] = ()
    """Backbone, by its name in the manifest; default: that of the settings."""
    history: tuple[int, ...] = (10,)
    """Past sessions of each user."""
    concurrency: tuple[PositiveInt, ...] = (1, 2, 4)
    """Closed loop: requests in flight."""
    rate: tuple[PositiveFloat, ...] = ()
    """Open loop instead of concurrency: turns per second, whether or not earlier ones are answered."""
    cache: tuple[Cache, ...] = ("warm",)
    """cold: no part of a prompt is cached; warm: earlier turns of the user are."""
    scripted: ScriptedTimes | None = None
    """Scripted backbone without weights, with the fields first_token and per_token in seconds."""
    users: PositiveInt | None = None
    """Number of users, each with a memory; default: as many as there are requests in flight."""
    exchanges: PositiveInt = 5
    """User turns in each past session."""
    requests: PositiveInt = 120
    """Minimum number of measured turns per measurement."""
    turns: int = Field(default=6, ge=2)
    """User turns per session."""
    answer: PositiveInt = 64
    """Maximum tokens of a reply."""
    warm_up: int = Field(default=2, ge=0)
    """Turns of each user before a measurement that count in no figure."""
    bare: bool = True
    """Whether to send each prompt to the bare backbone too."""
    ends: int = Field(default=8, ge=0)
    """Sessions per measurement that are remembered at their end, and timed."""
    during_ends: bool = False
    """Whether to repeat each measurement while sessions are being remembered in the background."""
    goodput: Mapping[Literal["ttft", "tpot", "e2el"], PositiveFloat] = {"ttft": 300.0, "e2el": 5000.0}
    """Limits in milliseconds; a request within all of them counts for goodput."""
    seed: int = 0
    """Seed of texts and arrivals."""
    settings: Mapping[str, object] = Field(default_factory=dict)
    """localmem settings, as in a file for --config."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.systems or not self.history or min(self.history) < 0:
            raise ValueError("needs at least one system and one history of 0 or more sessions")
        if not self.rate and (self.users or max(self.concurrency)) < max(self.concurrency):
            raise ValueError(f"{self.users} users cannot send {max(self.concurrency)} requests at once; raise users")
        return self

    def specs(self) -> "tuple[MeasurementSpec, ...]":
        """The measurements, in their order."""
        modes = (False, True) if self.during_ends else (False,)
        choices = product(self.systems, self.history, self._loads(), self.cache, modes)
        return tuple(
            MeasurementSpec(system, load, history, cache, self.users or load.concurrency or max(self.concurrency), ends)
            for system, history, load, cache, ends in choices
        )

    def _loads(self) -> tuple[Load, ...]:
        if self.rate:
            return tuple(Load("open", rate=rate) for rate in self.rate)
        return tuple(Load("closed", concurrency=concurrency) for concurrency in self.concurrency)


@dataclass(frozen=True, slots=True)
class MeasurementSpec:
    """One measurement to be made."""

    system: str
    load: Load
    history: int
    cache: Cache
    users: int
    during_ends: bool = False

    @property
    def id(self) -> str:
        """Such as theanine/c8/h100/warm."""
        load = f"r{self.load.rate:g}" if self.load.kind == "open" else f"c{self.load.concurrency}"
        return "/".join((self.system, load, f"h{self.history}", self.cache, *(["ends"] if self.during_ends else [])))
