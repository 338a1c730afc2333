"""Samples become figures, under vLLM's own names and by its definitions (vllm/benchmarks/serve.py, calculate_metrics).

TTFT is from sending to the first piece; TPOT is (E2EL - TTFT) / (output tokens - 1), for answers of two tokens or more;
ITL pools the gaps between pieces; percentiles are interpolated, deviations are of the population. Knows no clock.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from localmem.benchmark.latency.result import CacheHit, Calls, Overhead, Part, Sample, Share
from localmem.llm.wrappers import Spent

_RANKS = (50, 90, 95, 99)


def part(samples: Sequence[Sample], duration: float, objective: Mapping[str, float]) -> Part:
    """All samples of one kind, of a point whose blocks of this kind took `duration` seconds together."""
    whole = [sample for sample in samples if sample.error is None]
    return Part(figures(samples, duration, objective), shares(whole), calls(whole))


def figures(samples: Sequence[Sample], duration: float, objective: Mapping[str, float]) -> dict[str, float]:
    """`objective` holds milliseconds by ttft, tpot and e2el: a request that keeps to all of them counts for goodput."""
    whole = [sample for sample in samples if sample.error is None]
    tpots = [tpot(sample) for sample in whole]
    measured = {
        "ttft": [sample.ttft_ms for sample in whole if sample.ttft_ms is not None],
        "tpot": [value for value in tpots if value is not None],
        "itl": [gap for sample in whole for gap in sample.itl_ms],
        "e2el": [sample.e2el_ms for sample in whole],
    }
    seconds = max(duration, 1e-9)
    output = sum(sample.output_tokens for sample in whole)
    return {
        "completed": len(whole),
        "failed": len(samples) - len(whole),
        "duration": round(duration, 4),
        "total_input_tokens": sum(sample.input_tokens for sample in whole),
        "total_output_tokens": output,
        "request_throughput": round(len(whole) / seconds, 4),
        "request_goodput": round(sum(_good(sample, objective) for sample in whole) / seconds, 4),
        "output_throughput": round(output / seconds, 4),
        **{name: value for kind, values in measured.items() for name, value in _spread(kind, values).items()},
    }


def tpot(sample: Sample) -> float | None:
    """Milliseconds a token after the first; None for an answer of one token."""
    if sample.ttft_ms is None or sample.output_tokens < 2:
        return None
    return (sample.e2el_ms - sample.ttft_ms) / (sample.output_tokens - 1)


def shares(samples: Sequence[Sample]) -> dict[str, Share]:
    """Each stage over all samples: one that a sample had not took it no time. Shares are of the mean whole request."""
    names = list(dict.fromkeys(name for sample in samples for name in sample.stages))
    total = float(np.mean([_whole(sample) for sample in samples])) if samples else 0.0
    return {name: _share([sample.stages.get(name, 0.0) for sample in samples], total) for name in names}


def calls(samples: Sequence[Sample]) -> dict[str, Calls]:
    """What a request asked of the backbone, by prompt name: means."""
    spent: defaultdict[str, Spent] = defaultdict(Spent)
    for sample in samples:
        for name, more in sample.calls.items():
            spent[name] = spent[name].plus(more)
    count = max(len(samples), 1)
    return {
        name: Calls(*(round(n / count, 4) for n in (one.calls, one.input_tokens, one.cached_tokens, one.output_tokens)))
        for name, one in spent.items()
    }


def cache_hit(turns: Iterable[Sample], *, told: bool, server: float | None) -> CacheHit:
    """Of the replies' prompts. `told`: whether the backbone says what it found cached."""
    if not told:
        return CacheHit(server=server)
    by_turn: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in turns:
        if sample.error is None:
            by_turn[sample.turn].append(sample)
    every = [sample for held in by_turn.values() for sample in held]
    return CacheHit(_hit(every), {turn: _hit(held) for turn, held in sorted(by_turn.items())}, server)


def overhead(turns: Part, bare: Part | None, samples: Sequence[Sample], first_token_ms: float | None) -> Overhead:
    """Against the bare backbone; over a scripted one, whose first token takes `first_token_ms`, against that."""
    with_memory = turns.figures
    if first_token_ms is None and bare is not None:
        alone = bare.figures
        pairs = [(with_memory[f"p{rank}_ttft_ms"], alone[f"p{rank}_ttft_ms"]) for rank in (50, 95)]
        return Overhead(
            *(round(mine - theirs, 3) for mine, theirs in pairs),
            *(round(mine / theirs, 4) if theirs else None for mine, theirs in pairs),
        )
    added = [(sample.ttft_ms or 0.0) - (first_token_ms or 0.0) - _asked(sample) for sample in samples]
    embedded = [sample.stages.get("embed", 0.0) for sample in samples]
    own = [both - part for both, part in zip(added, embedded, strict=True)]
    return Overhead(*_ranks(added), None, None, *_ranks(own), *_ranks(embedded))


def _asked(sample: Sample) -> float:
    """What a system's own questions to the backbone took before the reply."""
    return sum(took for name, took in sample.stages.items() if name.startswith("llm:"))


def _ranks(values: Sequence[float]) -> tuple[float, float]:
    return _rank(values, 50), _rank(values, 95)


def _rank(values: Sequence[float], rank: int) -> float:
    return round(float(np.percentile(values, rank)), 3) if values else 0.0


def _good(sample: Sample, objective: Mapping[str, float]) -> bool:
    """As vLLM counts: an answer of one token has a TPOT of 0."""
    taken = {"ttft": sample.ttft_ms or 0.0, "tpot": tpot(sample) or 0.0, "e2el": sample.e2el_ms}
    return all(taken[name] <= limit for name, limit in objective.items())


def _spread(kind: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    ranks = {f"p{rank}_{kind}_ms": _rank(values, rank) for rank in _RANKS}
    middle = {
        f"mean_{kind}_ms": round(float(np.mean(values)), 3),
        f"std_{kind}_ms": round(float(np.std(values)), 3),
        f"median_{kind}_ms": ranks[f"p50_{kind}_ms"],
    }
    return {**middle, **ranks}


def _whole(sample: Sample) -> float:
    return sum(sample.stages.values())


def _share(values: Sequence[float], total: float) -> Share:
    mean = float(np.mean(values))
    return Share(round(mean, 3), _rank(values, 50), _rank(values, 95), round(mean / total, 4) if total else 0.0)


def _hit(samples: Sequence[Sample]) -> float:
    asked = sum(sample.input_tokens for sample in samples)
    return round(sum(sample.cached_tokens for sample in samples) / max(asked, 1), 4)
