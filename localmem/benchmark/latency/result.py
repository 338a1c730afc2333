"""What a latency run writes: raw samples (samples.jsonl), and a result with everything that made them (result.json).

Figures have vLLM's names and definitions (vllm/benchmarks/serve.py, calculate_metrics). TTFT is the time from sending
to the first piece; TPOT is (E2EL - TTFT) / (output tokens - 1), for replies of two tokens or more; ITL pools the gaps
between pieces. Percentiles are interpolated, standard deviations are those of a population.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import TypeAdapter

from localmem.benchmark.recipes import Cache, Load
from localmem.files import parse_json, read_log, reading, write_atomic
from localmem.llm.wrappers import PromptUsage
from localmem.reporting.bootstrap import cluster_interval, cluster_percentile

SAMPLES, RESULT = "samples.jsonl", "result.json"

Kind = Literal["turn", "bare", "end"]


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
    """What localmem adds to the first token, at p50 and p95.

    `ttft_*` are percentiles of the differences between a turn and the same prompt sent to the bare backbone, with the
    95 % interval over conversations; ratios are of the percentiles of both. A scripted backbone has exact times, so no
    bare run is needed; `own_*` then leaves out the embedding.
    """

    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_ratio_p50: float | None = None
    ttft_ratio_p95: float | None = None
    own_ttft_p50_ms: float | None = None
    own_ttft_p95_ms: float | None = None
    embed_p50_ms: float | None = None
    embed_p95_ms: float | None = None
    ttft_p50_interval_ms: tuple[float, float] | None = None
    ttft_p95_interval_ms: tuple[float, float] | None = None


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


_PERCENTILES = (50, 90, 95, 99)


def request_stats(samples: Sequence[Sample], duration: float, goodput: Mapping[str, float]) -> RequestStats:
    """All samples of one kind; `duration` is the seconds that their rounds took together."""
    answered = [sample for sample in samples if sample.error is None]
    return RequestStats(compute_figures(samples, duration, goodput), stage_times(answered), prompt_costs(answered))


def compute_figures(samples: Sequence[Sample], duration: float, goodput: Mapping[str, float]) -> dict[str, float]:
    """`goodput` holds limits in milliseconds by ttft, tpot and e2el; a request within all of them counts as good."""
    answered = [sample for sample in samples if sample.error is None]
    tpots = [time_per_output_token(sample) for sample in answered]
    times = {
        "ttft": [sample.ttft_ms for sample in answered if sample.ttft_ms is not None],
        "tpot": [tpot for tpot in tpots if tpot is not None],
        "itl": [gap for sample in answered for gap in sample.itl_ms],
        "e2el": [sample.e2el_ms for sample in answered],
    }
    seconds = max(duration, 1e-9)
    output_tokens = sum(sample.output_tokens for sample in answered)
    return {
        "completed": len(answered),
        "failed": len(samples) - len(answered),
        "duration": round(duration, 4),
        "total_input_tokens": sum(sample.input_tokens for sample in answered),
        "total_output_tokens": output_tokens,
        "request_throughput": round(len(answered) / seconds, 4),
        "request_goodput": round(sum(_is_good(sample, goodput) for sample in answered) / seconds, 4),
        "output_throughput": round(output_tokens / seconds, 4),
        **{name: value for kind, values in times.items() for name, value in _distribution(kind, values).items()},
    }


def time_per_output_token(sample: Sample) -> float | None:
    """Milliseconds per token after the first (TPOT); None for a reply of one token."""
    if sample.ttft_ms is None or sample.output_tokens < 2:
        return None
    return (sample.e2el_ms - sample.ttft_ms) / (sample.output_tokens - 1)


def stage_times(samples: Sequence[Sample]) -> dict[str, StageTime]:
    """Each stage over all samples; a sample without a stage counts as 0 ms."""
    names = list(dict.fromkeys(name for sample in samples for name in sample.stages))
    total = float(np.mean([sum(sample.stages.values()) for sample in samples])) if samples else 0.0
    return {name: _stage_time([sample.stages.get(name, 0.0) for sample in samples], total) for name in names}


def prompt_costs(samples: Sequence[Sample]) -> dict[str, PromptCost]:
    """What a request asked of the backbone, by prompt name."""
    totals: defaultdict[str, PromptUsage] = defaultdict(PromptUsage)
    for sample in samples:
        for name, spent in sample.calls.items():
            totals[name] = totals[name].plus(spent)
    fields = ("calls", "input_tokens", "cached_tokens", "output_tokens")
    count = max(len(samples), 1)
    return {
        name: PromptCost(*(round(getattr(total, field) / count, 4) for field in fields))
        for name, total in totals.items()
    }


def cache_hit(turns: Iterable[Sample], *, reported: bool, server: float | None) -> CacheHit:
    """For the replies' prompts. `reported`: whether the backbone reports cached tokens."""
    if not reported:
        return CacheHit(server=server)
    by_turn: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in turns:
        if sample.error is None:
            by_turn[sample.turn].append(sample)
    answered = [sample for samples in by_turn.values() for sample in samples]
    return CacheHit(_hit_share(answered), {turn: _hit_share(rows) for turn, rows in sorted(by_turn.items())}, server)


def overhead(samples: Sequence[Sample], bare: Sequence[Sample], first_token_ms: float | None) -> Overhead:
    """Of answered turns against the bare backbone with the same prompts, or against `first_token_ms`.

    That is the exact first-token time of a scripted backbone. Pairs cancel what a prompt's length and a slow minute of
    the machine add to both.
    """
    if first_token_ms is None and (pairs := paired_ttfts(samples, bare)):
        return _paired_overhead(pairs)
    prompts = [sum(ms for name, ms in sample.stages.items() if name.startswith("llm:")) for sample in samples]
    ttfts = [(sample.ttft_ms or 0.0) - (first_token_ms or 0.0) for sample in samples]
    added = [ttft - own_prompts for ttft, own_prompts in zip(ttfts, prompts, strict=True)]
    embedding = [sample.stages.get("embed", 0.0) for sample in samples]
    own = [total - embed for total, embed in zip(added, embedding, strict=True)]
    p50_p95 = [(_percentile(values, 50), _percentile(values, 95)) for values in (added, own, embedding)]
    return Overhead(*p50_p95[0], None, None, *p50_p95[1], *p50_p95[2])


def paired_ttfts(turns: Sequence[Sample], bare: Sequence[Sample]) -> list[tuple[tuple[str, str], float, float]]:
    """The conversation of each turn with a bare request of its prompt, and both first tokens in milliseconds."""
    by_prompt = {(each.user, each.session, each.turn): each.ttft_ms for each in bare if each.error is None}
    return [
        ((turn.user, turn.session), turn.ttft_ms, alone)
        for turn in turns
        if turn.error is None
        and turn.ttft_ms is not None
        and (alone := by_prompt.get((turn.user, turn.session, turn.turn))) is not None
    ]


def _paired_overhead(pairs: Sequence[tuple[tuple[str, str], float, float]]) -> Overhead:
    added = [(conversation, with_memory - alone) for conversation, with_memory, alone in pairs]
    ours, alone = [pair[1] for pair in pairs], [pair[2] for pair in pairs]
    ratios = [_percentile(ours, rank) / max(_percentile(alone, rank), 1e-9) for rank in (50, 95)]
    bounds = [cluster_interval(added, cluster_percentile(rank)) for rank in (50, 95)]
    intervals = [(round(each[0], 3), round(each[1], 3)) if each else None for each in bounds]
    return Overhead(
        _percentile([value for _, value in added], 50),
        _percentile([value for _, value in added], 95),
        round(ratios[0], 4),
        round(ratios[1], 4),
        ttft_p50_interval_ms=intervals[0],
        ttft_p95_interval_ms=intervals[1],
    )


def _percentile(values: Sequence[float], percent: int) -> float:
    return round(float(np.percentile(values, percent)), 3) if values else 0.0


def _is_good(sample: Sample, goodput: Mapping[str, float]) -> bool:
    """As vLLM counts: a reply of one token has a TPOT of 0."""
    times = {"ttft": sample.ttft_ms or 0.0, "tpot": time_per_output_token(sample) or 0.0, "e2el": sample.e2el_ms}
    return all(times[name] <= limit for name, limit in goodput.items())


def _distribution(kind: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    percentiles = {f"p{percent}_{kind}_ms": _percentile(values, percent) for percent in _PERCENTILES}
    return {
        f"mean_{kind}_ms": round(float(np.mean(values)), 3),
        f"std_{kind}_ms": round(float(np.std(values)), 3),
        f"median_{kind}_ms": percentiles[f"p50_{kind}_ms"],
        **percentiles,
    }


def _stage_time(values: Sequence[float], total: float) -> StageTime:
    mean = float(np.mean(values))
    return StageTime(
        round(mean, 3), _percentile(values, 50), _percentile(values, 95), round(mean / total, 4) if total else 0.0
    )


def _hit_share(samples: Sequence[Sample]) -> float:
    prompt_tokens = sum(sample.input_tokens for sample in samples)
    return round(sum(sample.cached_tokens for sample in samples) / max(prompt_tokens, 1), 4)
