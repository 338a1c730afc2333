"""Figures by vLLM's definitions: worked out by hand, and beside vLLM's own code on the same requests."""

import random
from types import SimpleNamespace

import pytest

from localmem.benchmark.latency import figures
from localmem.benchmark.latency.result import Part, Sample
from localmem.llm.wrappers import Spent


def sample(**changed: object) -> Sample:
    values: dict[str, object] = {
        "point": "p", "kind": "turn", "user": "u", "session": "s", "turn": 1, "sent": 0.0, "ttft_ms": 50.0,
        "e2el_ms": 95.0, "itl_ms": (5.0,) * 9, "input_tokens": 100, "output_tokens": 10,
    }  # fmt: skip
    return Sample(**{**values, **changed})  # type: ignore[arg-type]


def test_by_hand() -> None:
    told = figures.figures([sample(), sample(ttft_ms=70.0, e2el_ms=115.0)], 2.0, {"ttft": 60.0})
    assert told["mean_ttft_ms"] == told["median_ttft_ms"] == told["p50_ttft_ms"] == 60.0
    assert told["std_ttft_ms"] == 10.0
    assert told["p90_ttft_ms"] == 68.0
    assert told["mean_tpot_ms"] == told["mean_itl_ms"] == 5.0
    assert told["request_throughput"] == 1.0
    assert told["output_throughput"] == 10.0
    assert told["request_goodput"] == 0.5
    assert (told["completed"], told["failed"]) == (2, 0)


def test_a_failed_request_counts_as_failed_and_in_nothing_else() -> None:
    told = figures.figures([sample(), sample(error="LLMError: gone", ttft_ms=None, e2el_ms=9000.0)], 1.0, {})
    assert (told["completed"], told["failed"], told["p99_e2el_ms"]) == (1, 1, 95.0)


def test_nothing_completed_is_no_figure_of_times() -> None:
    told = figures.figures([sample(error="LLMError: gone")], 1.0, {"ttft": 1.0})
    assert told["completed"] == told["request_goodput"] == 0
    assert "p50_ttft_ms" not in told


def test_an_answer_of_one_token_has_no_tpot_and_keeps_to_any() -> None:
    one = sample(output_tokens=1, itl_ms=(), e2el_ms=50.0)
    told = figures.figures([one], 1.0, {"tpot": 0.001})
    assert "mean_tpot_ms" not in told
    assert told["request_goodput"] == 1.0


def test_as_vllm_counts() -> None:
    serve = pytest.importorskip("vllm.benchmarks.serve", reason="vLLM is not installed")
    chance = random.Random(3)
    samples = []
    for _ in range(57):
        gaps = tuple(chance.uniform(2, 30) for _ in range(chance.randrange(0, 40)))
        ttft = chance.uniform(20, 900)
        took = ttft + sum(gaps)
        samples.append(sample(ttft_ms=ttft, itl_ms=gaps, e2el_ms=took, output_tokens=len(gaps) + 1))
    outputs = [
        SimpleNamespace(
            success=True,
            output_tokens=one.output_tokens,
            prompt_len=one.input_tokens,
            ttft=(one.ttft_ms or 0) / 1000,
            latency=one.e2el_ms / 1000,
            itl=[gap / 1000 for gap in one.itl_ms],
            input_audio_duration=0.0,
            start_time=0.0,
        )
        for one in samples
    ]
    objective = {"ttft": 400.0, "tpot": 17.0}
    theirs, _ = serve.calculate_metrics([], outputs, 12.5, None, [50, 90, 95, 99], objective)
    ours = figures.figures(samples, 12.5, objective)
    for kind in ("ttft", "tpot", "itl", "e2el"):
        for name in ("mean", "median", "std"):
            assert ours[f"{name}_{kind}_ms"] == pytest.approx(getattr(theirs, f"{name}_{kind}_ms"), abs=0.002)
        for rank, value in getattr(theirs, f"percentiles_{kind}_ms"):
            assert ours[f"p{rank}_{kind}_ms"] == pytest.approx(value, abs=0.002)
    for name in ("request_throughput", "request_goodput", "output_throughput"):
        assert ours[name] == pytest.approx(getattr(theirs, name), abs=0.001)


def test_shares_count_a_stage_that_a_request_had_not_as_no_time() -> None:
    told = figures.shares([sample(stages={"embed": 10.0, "decode": 30.0}), sample(stages={"decode": 40.0})])
    assert told["embed"].mean_ms == 5.0
    assert told["embed"].share == pytest.approx(5 / 40)
    assert told["decode"].share == pytest.approx(35 / 40)


def test_calls_are_means_over_the_requests() -> None:
    spent = {"theanine/refine": Spent(calls=3, input_tokens=600, output_tokens=90)}
    told = figures.calls([sample(calls=spent), sample()])
    assert told["theanine/refine"].calls == 1.5
    assert told["theanine/refine"].input_tokens == 300


def test_cache_hits_by_turn_are_of_tokens() -> None:
    turns = [sample(turn=1), sample(turn=2, cached_tokens=80), sample(turn=2, cached_tokens=250, input_tokens=300)]
    told = figures.cache_hit(turns, told=True, server=0.5)
    assert told.by_turn == {1: 0.0, 2: 0.825}
    assert told.all == pytest.approx(330 / 500)
    assert figures.cache_hit(turns, told=False, server=None).all is None


def test_overhead_is_the_difference_from_the_bare_backbone() -> None:
    ours, bare = Part({"p50_ttft_ms": 63.0, "p95_ttft_ms": 90.0}), Part({"p50_ttft_ms": 60.0, "p95_ttft_ms": 75.0})
    told = figures.overhead(ours, bare, [sample()], None)
    assert (told.ttft_p50_ms, told.ttft_p95_ms) == (3.0, 15.0)
    assert (told.ttft_ratio_p50, told.ttft_ratio_p95) == (1.05, 1.2)


def test_over_a_scripted_backbone_what_it_was_told_to_take_is_no_overhead() -> None:
    """Nor is what the memory's own questions took; what came after the reply is nobody's wait."""
    stages = {"embed": 8.0, "search": 2.0, "llm:theanine/refine": 100.0, "first_token": 50.1, "after:store": 9.0}
    told = figures.overhead(Part({}), None, [sample(ttft_ms=161.0, stages=stages)], 50.0)
    assert told.ttft_p50_ms == pytest.approx(11.0)
    assert told.own_ttft_p50_ms == pytest.approx(3.0)
    assert told.embed_p95_ms == 8.0
