"""What a latency run writes: raw samples (samples.jsonl), and a result with everything that made them (result.json)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from localmem.files import parse_json, read_log, reading, write_atomic
from localmem.llm.wrappers import PromptUsage

SAMPLES, RESULT = "samples.jsonl", "result.json"

Kind = Literal["turn", "bare", "end"]
Cache = Literal["cold", "warm"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: a `turn` answered by an agent, the same prompt sent to the `bare` backbone, or a session's `end`.

    `sent` is in seconds since the measurement began. `ttft_ms` ends with the first piece of the reply, `itl_ms` are the
    gaps between pieces, `e2el_ms` ends with the last piece (of a session's end: with its commit). Tokens are those of
    the reply's prompt (of a session's end: of all its prompts); `calls` covers every prompt, by name. `turn` counts
    from 1 within the session. `stages` are milliseconds: those of a turn up to and including `first_token` add up to
    `ttft_ms`; those that begin with `after:` come after the last piece and are not part of `e2el_ms`. A sample with
    `warm_up` counts in no figure.
    """

    point: str
    kind: Kind
    user: str
    session: str
    turn: int
    sent: float
    ttft_ms: float | None
    e2el_ms: float
    itl_ms: tuple[float, ...] = ()
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    calls: Mapping[str, PromptUsage] = field(default_factory=dict)
    error: str | None = None
    warm_up: bool = False


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


@dataclass(frozen=True, slots=True)
class StageTime:
    """One stage over all requests of a measurement; `share` is of the mean request (0 to 1)."""

    mean_ms: float
    p50_ms: float
    p95_ms: float
    share: float


@dataclass(frozen=True, slots=True)
class PromptCost:
    """What the prompts of one name cost: means per request."""

    calls: float
    input_tokens: float
    cached_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class RequestStats:
    """All requests of one kind: `figures` under vLLM's names (mean_ttft_ms, request_throughput ...)."""

    figures: Mapping[str, float]
    stages: Mapping[str, StageTime] = field(default_factory=dict)
    calls: Mapping[str, PromptCost] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheHit:
    """Share of the replies' prompt tokens found in the prefix cache (0 to 1); None if the backbone does not report it.

    `by_turn` is keyed by the turn's number in its session; `server` is from vLLM's own counters.
    """

    all: float | None = None
    by_turn: Mapping[int, float] = field(default_factory=dict)
    server: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Peak memory during the measurement, in MB."""

    host_peak_mb: float | None = None
    device_peak_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Overhead:
    """What localmem adds to the first token: difference from and ratio to the bare backbone, at p50 and p95.

    A scripted backbone has exact times, so no bare run is needed; `own_*` then leaves out the embedding.
    """

    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_ratio_p50: float | None = None
    ttft_ratio_p95: float | None = None
    own_ttft_p50_ms: float | None = None
    own_ttft_p95_ms: float | None = None
    embed_p50_ms: float | None = None
    embed_p95_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One system under one load. `history` counts each user's past sessions, `units` a user's live memories.

    `during_ends`: sessions were being remembered in the background meanwhile. `marks` are reasons not to trust it.
    """

    id: str
    system: str
    load: Load
    history: int
    units: int
    cache: Cache
    requests: int
    warm_up: int
    turns: RequestStats
    during_ends: bool = False
    marks: tuple[str, ...] = ()
    ends: RequestStats | None = None
    bare: RequestStats | None = None
    cache_hit: CacheHit = CacheHit()
    memory: MemoryPeak = MemoryPeak()
    energy_j: float | None = None
    overhead: Overhead | None = None
    state: Mapping[str, object] = field(default_factory=dict)

    def stats(self, kind: Kind) -> RequestStats | None:
        """Those of one kind of request."""
        return {"turn": self.turns, "bare": self.bare, "end": self.ends}[kind]


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """A run: `about` records arguments, seed, model, prompts, machine and versions."""

    about: Mapping[str, object]
    points: tuple[Measurement, ...] = ()


SAMPLE: TypeAdapter[Sample] = TypeAdapter(Sample)
_RESULT: TypeAdapter[LatencyResult] = TypeAdapter(LatencyResult)
_CURE = "give the folder of a run of `localmem bench latency`"


def save_result(folder: Path, result: LatencyResult) -> Path:
    """Write result.json in one step. Raises BadInput."""
    path = folder / RESULT
    write_atomic(path, _RESULT.dump_json(result, indent=2) + b"\n", "choose another --out")
    return path


def load_result(path: Path) -> LatencyResult:
    """A run's result, from its folder or the file itself. Raises BadInput."""
    file = path / RESULT if path.is_dir() else path
    with reading(file, _CURE):
        content = file.read_bytes()
    return parse_json(str(file), content, _RESULT, _CURE)


def read_samples(path: Path) -> Iterator[Sample]:
    """Every raw sample of a run, from its folder or beside its result.json. Raises BadInput."""
    return read_log((path if path.is_dir() else path.parent) / SAMPLES, SAMPLE)
