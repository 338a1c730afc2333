"""What a run of the latency benchmark leaves behind: raw samples, and a result that says all that made them.

Knows how they lie in a folder (samples.jsonl, result.json) and what each field means; measures and draws nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from localmem.errors import BadInput
from localmem.llm.wrappers import Spent
from localmem.reporting.jsonl import read_lines

SAMPLES, RESULT = "samples.jsonl", "result.json"

Kind = Literal["turn", "bare", "end"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. A `turn` is answered by an agent, `bare` is the same prompt sent straight to the backbone, `end` is
    a session's end.

    `sent` is in seconds since the point began. `ttft_ms` is from then to the first piece of the reply, `itl_ms` are the
    gaps between its pieces, `e2el_ms` is until the last piece (of a session's end: until it was committed). Tokens are
    of the reply's prompt alone (of a session's end: of all its prompts); `calls` are of every prompt, by name. `turn`
    counts from 1 within its session. `stages` are milliseconds; those of a turn up to and with `first_token` make up
    `ttft_ms`, those whose name begins with `after:` come behind the last piece and are not in `e2el_ms`. A sample with
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
    calls: Mapping[str, Spent] = field(default_factory=dict)
    error: str | None = None
    warm_up: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """How requests come: `closed`, so many at any time; or `open`, so many a second, come what may (Poisson)."""

    kind: Literal["closed", "open"]
    concurrency: int | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """One stage over all requests of a point; `share` is of the mean time of a whole request (0 to 1)."""

    mean_ms: float
    p50_ms: float
    p95_ms: float
    share: float


@dataclass(frozen=True, slots=True)
class Calls:
    """What the prompts of one name cost, a request: means."""

    calls: float
    input_tokens: float
    cached_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Part:
    """All requests of one kind: `figures` under vLLM's own names (mean_ttft_ms, request_throughput ...)."""

    figures: Mapping[str, float]
    stages: Mapping[str, Share] = field(default_factory=dict)
    calls: Mapping[str, Calls] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheHit:
    """Share of the replies' prompt tokens that the prefix cache held, 0 to 1, None where the backbone does not tell.

    `by_turn` is keyed by the turn's number in its session, `server` is what vLLM's own counters say of the whole point.
    """

    all: float | None = None
    by_turn: Mapping[int, float] = field(default_factory=dict)
    server: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The most that was in use during the point, in MB."""

    host_peak_mb: float | None = None
    device_peak_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Overhead:
    """What localmem adds to the first token: the difference from the bare backbone, and the ratio, at p50 and p95.

    Over a scripted backbone there is no bare run to differ from: its times are given, so they are exact, and
    `own_*` leaves the embedding out.
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
class Point:
    """One system under one load. `history` is the sessions each user had held before, `units` the live ones of a user.

    `during_ends`: sessions were being remembered in the background while these turns were answered. `marks` say in
    words why not to trust the point.
    """

    id: str
    system: str
    load: Load
    history: int
    units: int
    cache: Literal["cold", "warm"]
    requests: int
    warm_up: int
    turns: Part
    during_ends: bool = False
    marks: tuple[str, ...] = ()
    ends: Part | None = None
    bare: Part | None = None
    cache_hit: CacheHit = CacheHit()
    memory: MemoryPeak = MemoryPeak()
    energy_j: float | None = None
    overhead: Overhead | None = None
    state: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """A run: `about` says what was measured on what (arguments, seeds, model, prompts, machine ...)."""

    about: Mapping[str, object]
    points: tuple[Point, ...] = ()


SAMPLE: TypeAdapter[Sample] = TypeAdapter(Sample)
_RESULT: TypeAdapter[Result] = TypeAdapter(Result)


def save_result(folder: Path, result: Result) -> Path:
    """Writes result.json whole or not at all. Raises BadInput."""
    path, draft = folder / RESULT, folder / f"{RESULT}.new"
    try:
        draft.write_bytes(_RESULT.dump_json(result, indent=2) + b"\n")
        draft.replace(path)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror}); choose another --out") from error
    return path


def load_result(path: Path) -> Result:
    """A run's result, from its folder or the file itself. Raises BadInput."""
    file = path / RESULT if path.is_dir() else path
    try:
        return _RESULT.validate_json(file.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {file} ({error.strerror}); give a run of `localmem bench latency`") from error
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"]) or "it"
        raise BadInput(f"{file} is no result of `localmem bench latency`: {place}: {problem['msg']}") from error


def read_samples(folder: Path) -> Iterator[Sample]:
    """Every raw sample of a run, from its folder or from beside its result.json. Raises BadInput."""
    return read_lines((folder if folder.is_dir() else folder.parent) / SAMPLES, SAMPLE)
