"""The recipes of the benchmarks, and the latency measurements that one expands to.

Imports no numeric library, because `--help` reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from localmem.retrieval.base import IndexKind


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


class ServeRecipe(_Recipe):
    """What the benchmark of a server measures: users who talk to it over HTTP, each in a stream of its own."""

    users: tuple[PositiveInt, ...] = (1, 2, 4, 8)
    """Users who talk at once; without --most each number is a measurement."""
    most: PositiveInt | None = None
    """Search for the most users that keep the limits, up to this number; replaces users."""
    turns: PositiveInt = 6
    """Measured turns of each user, in one session."""
    warm_up: int = Field(default=1, ge=0)
    """Turns of each user before them that count in no figure."""
    think: float = Field(default=5.0, ge=0)
    """Mean pause of a user between a reply and the next turn, in seconds."""
    answer: PositiveInt = 64
    """Maximum tokens of a reply."""
    limits: Mapping[Literal["ttft", "tpot", "e2el"], PositiveFloat] = {"ttft": 500.0}
    """Limits in milliseconds that a number of users must keep."""
    share: float = Field(default=0.95, gt=0, le=1)
    """Share of turns that must be within all limits; a failed turn is not."""
    bare: bool = False
    """Whether as many users, with texts of the same kind, talk to the backbone at llm.url first, past the server."""
    seed: int = 0
    """Seed of texts and pauses."""
    settings: Mapping[str, object] = Field(default_factory=dict)
    """localmem settings of the server, as in a file for --config."""


class UsersRecipe(_Recipe):
    """How a store grows, and what is measured at each size."""

    users: tuple[PositiveInt, ...] = (100, 1_000)
    """Users in the store; a measurement at each number, in this order."""
    units: PositiveInt = 1_000
    """Memories of each user, each with a logged turn and a vector."""
    sample: PositiveInt = 50
    """Users who are opened, asked a question and told something at each size."""
    dimension: int = Field(default=384, ge=2)
    """Dimension of the vectors, which are simple word vectors."""
    seed: int = 0
    """Seed of texts and of the sample."""


Cache = Literal["cold", "warm"]


@dataclass(frozen=True, slots=True)
class Load:
    """How requests arrive: `closed`, with `concurrency` in flight; or `open`, `rate` per second.

    The gaps of open arrivals are gamma distributed with the shape `burstiness`: 1 is a Poisson process, less comes in
    bursts. With a `trace` they are those of its times.
    """

    kind: Literal["closed", "open"]
    concurrency: int | None = None
    rate: float | None = None
    burstiness: float = 1.0
    trace: Path | None = None

    def __str__(self) -> str:
        if self.trace:
            return f"turns as in {self.trace.name}"
        if self.kind == "open":
            bursts = "" if self.burstiness == 1 else f", burstiness {self.burstiness:g}"
            return f"{self.rate:g} turns per second{bursts}"
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
    burstiness: PositiveFloat = 1.0
    """Shape of the gamma distributed gaps of an open loop: 1 is a Poisson process, less comes in bursts."""
    trace: Path | None = None
    """Open loop with the arrivals of a file: JSON lines with `timestamp` in milliseconds."""
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
        if not self.rate and not self.trace and (self.users or max(self.concurrency)) < max(self.concurrency):
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
        if self.trace:
            return (Load("open", trace=self.trace),)
        if self.rate:
            return tuple(Load("open", rate=rate, burstiness=self.burstiness) for rate in self.rate)
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
        load = f"r{self.load.rate:g}" if self.load.rate else f"c{self.load.concurrency}"
        load = f"trace-{self.load.trace.stem}" if self.load.trace else load
        load += f"b{self.load.burstiness:g}" if self.load.burstiness != 1 else ""
        return "/".join((self.system, load, f"h{self.history}", self.cache, *(["ends"] if self.during_ends else [])))
