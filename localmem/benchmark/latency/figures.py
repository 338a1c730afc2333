"""Computes figures from samples, with vLLM's names and definitions (vllm/benchmarks/serve.py, calculate_metrics).

TTFT is the time from sending to the first piece; TPOT is (E2EL - TTFT) / (output tokens - 1), for replies of two tokens
or more; ITL pools the gaps between pieces. Percentiles are interpolated, standard deviations are those of a population.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from localmem.benchmark.latency.result import CacheHit, Overhead, PromptCost, RequestStats, Sample, StageTime
from localmem.llm.wrappers import PromptUsage

_PERCENTILES = (50, 90, 95, 99)


def request_stats(samples: Sequence[Sample], duration: float, goodput: Mapping[str, float]) -> RequestStats:
    """All samples of one kind; `duration` is the seconds that their rounds took together."""
    answered = [sample for sample in samples if sample.error is None]
    return RequestStats(figures(samples, duration, goodput), stage_times(answered), prompt_costs(answered))


def figures(samples: Sequence[Sample], duration: float, goodput: Mapping[str, float]) -> dict[str, float]:
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


def overhead(
    turns: RequestStats, bare: RequestStats | None, samples: Sequence[Sample], first_token_ms: float | None
) -> Overhead:
    """Against the bare backbone, or against `first_token_ms`, the exact first-token time of a scripted one."""
    if first_token_ms is None and bare is not None:
        pairs = [(turns.figures[f"p{rank}_ttft_ms"], bare.figures[f"p{rank}_ttft_ms"]) for rank in (50, 95)]
        return Overhead(
            *(round(with_memory - without, 3) for with_memory, without in pairs),
            *(round(with_memory / without, 4) if without else None for with_memory, without in pairs),
        )
    added = [(sample.ttft_ms or 0.0) - (first_token_ms or 0.0) - _llm_calls_ms(sample) for sample in samples]
    embedding = [sample.stages.get("embed", 0.0) for sample in samples]
    own = [total - embed for total, embed in zip(added, embedding, strict=True)]
    p50_p95 = [(_percentile(values, 50), _percentile(values, 95)) for values in (added, own, embedding)]
    return Overhead(*p50_p95[0], None, None, *p50_p95[1], *p50_p95[2])


def _llm_calls_ms(sample: Sample) -> float:
    """Time of the memory system's own prompts before the reply."""
    return sum(ms for name, ms in sample.stages.items() if name.startswith("llm:"))


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
