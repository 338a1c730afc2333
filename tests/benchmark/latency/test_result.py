"""A result is read as it was written; figures are as by hand, and as by vLLM on the same requests."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from localmem.benchmark.latency.result import (
    RESULT,
    SAMPLE,
    SAMPLES,
    CacheHit,
    LatencyResult,
    Measurement,
    PromptCost,
    RequestStats,
    Sample,
    StageTime,
    cache_hit,
    compute_figures,
    load_result,
    overhead,
    prompt_costs,
    read_samples,
    save_result,
    stage_times,
)
from localmem.benchmark.recipes import Load
from localmem.errors import BadInput
from localmem.llm.wrappers import PromptUsage

POINT = Measurement(
    id="rsum/c8/h10/warm",
    system="rsum",
    load=Load("closed", concurrency=8),
    history=10,
    units=0,
    cache="warm",
    requests=100,
    warm_up=8,
    turns=RequestStats(
        {"p50_ttft_ms": 12.5}, {"prompt": StageTime(1, 1, 2, 0.1)}, {"agent/respond": PromptCost(1, 300, 200, 40)}
    ),
    cache_hit=CacheHit(0.5, {1: 0.0, 4: 0.9}),
)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = LatencyResult({"seed": 1, "machine": {"cores": 2}}, (POINT,))

    path = save_result(tmp_path, result)

    assert load_result(path) == load_result(tmp_path) == result


def test_samples_are_read_from_the_folder_and_from_beside_the_result(tmp_path: Path) -> None:
    calls = {"agent/respond": PromptUsage(calls=1)}
    sample = Sample("p", "turn", "u1", "s1", 2, 0.5, 10.0, 30.0, (10.0,), 100, 50, 2, {"embed": 4.0}, calls)
    (tmp_path / SAMPLES).write_bytes(SAMPLE.dump_json(sample) + b"\n")

    assert list(read_samples(tmp_path)) == list(read_samples(tmp_path / RESULT)) == [sample]


@pytest.mark.parametrize("text", ["", "[]", '{"points": []}', '{"about": {}, "points": [{}]}', '{"about": 3}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / RESULT).write_text(text)

    with pytest.raises(BadInput, match=r"give the folder of a run of `localmem bench latency`"):
        load_result(tmp_path)


def test_a_missing_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        load_result(tmp_path)


def sample(**changes: object) -> Sample:
    values: dict[str, object] = {
        "point": "p", "kind": "turn", "user": "u", "session": "s", "turn": 1, "sent": 0.0, "ttft_ms": 50.0,
        "e2el_ms": 95.0, "itl_ms": (5.0,) * 9, "input_tokens": 100, "output_tokens": 10,
    }  # fmt: skip
    return Sample(**{**values, **changes})  # type: ignore[arg-type]


def test_figures_computed_by_hand() -> None:
    result = compute_figures([sample(), sample(ttft_ms=70.0, e2el_ms=115.0)], 2.0, {"ttft": 60.0})
    assert result["mean_ttft_ms"] == result["median_ttft_ms"] == result["p50_ttft_ms"] == 60.0
    assert result["std_ttft_ms"] == 10.0
    assert result["p90_ttft_ms"] == 68.0
    assert result["mean_tpot_ms"] == result["mean_itl_ms"] == 5.0
    assert result["request_throughput"] == 1.0
    assert result["output_throughput"] == 10.0
    assert result["request_goodput"] == 0.5
    assert (result["completed"], result["failed"]) == (2, 0)


def test_a_failed_request_counts_only_as_failed() -> None:
    result = compute_figures([sample(), sample(error="LLMError: gone", ttft_ms=None, e2el_ms=9000.0)], 1.0, {})
    assert (result["completed"], result["failed"], result["p99_e2el_ms"]) == (1, 1, 95.0)


def test_without_answers_there_are_no_times() -> None:
    result = compute_figures([sample(error="LLMError: gone")], 1.0, {"ttft": 1.0})
    assert result["completed"] == result["request_goodput"] == 0
    assert "p50_ttft_ms" not in result


def test_an_answer_of_one_token_has_no_tpot_and_meets_any_limit() -> None:
    single = sample(output_tokens=1, itl_ms=(), e2el_ms=50.0)
    result = compute_figures([single], 1.0, {"tpot": 0.001})
    assert "mean_tpot_ms" not in result
    assert result["request_goodput"] == 1.0


def test_figures_equal_those_of_vllm() -> None:
    serve = pytest.importorskip("vllm.benchmarks.serve", reason="vLLM is not installed")
    random_values = random.Random(3)
    samples = []
    for _ in range(57):
        gaps = tuple(random_values.uniform(2, 30) for _ in range(random_values.randrange(0, 40)))
        ttft = random_values.uniform(20, 900)
        e2el = ttft + sum(gaps)
        samples.append(sample(ttft_ms=ttft, itl_ms=gaps, e2el_ms=e2el, output_tokens=len(gaps) + 1))
    outputs = [
        SimpleNamespace(
            success=True,
            output_tokens=each.output_tokens,
            prompt_len=each.input_tokens,
            ttft=(each.ttft_ms or 0) / 1000,
            latency=each.e2el_ms / 1000,
            itl=[gap / 1000 for gap in each.itl_ms],
            input_audio_duration=0.0,
            start_time=0.0,
        )
        for each in samples
    ]
    objective = {"ttft": 400.0, "tpot": 17.0}
    expected, _ = serve.calculate_metrics([], outputs, 12.5, None, [50, 90, 95, 99], objective)
    result = compute_figures(samples, 12.5, objective)
    for kind in ("ttft", "tpot", "itl", "e2el"):
        for name in ("mean", "median", "std"):
            assert result[f"{name}_{kind}_ms"] == pytest.approx(getattr(expected, f"{name}_{kind}_ms"), abs=0.002)
        for rank, value in getattr(expected, f"percentiles_{kind}_ms"):
            assert result[f"p{rank}_{kind}_ms"] == pytest.approx(value, abs=0.002)
    for name in ("request_throughput", "request_goodput", "output_throughput"):
        assert result[name] == pytest.approx(getattr(expected, name), abs=0.001)


def test_a_missing_stage_counts_as_0_ms() -> None:
    result = stage_times([sample(stages={"embed": 10.0, "decode": 30.0}), sample(stages={"decode": 40.0})])
    assert result["embed"].mean_ms == 5.0
    assert result["embed"].share == pytest.approx(5 / 40)
    assert result["decode"].share == pytest.approx(35 / 40)


def test_prompt_costs_are_means_over_requests() -> None:
    spent = {"theanine/refine": PromptUsage(calls=3, input_tokens=600, output_tokens=90)}
    result = prompt_costs([sample(calls=spent), sample()])
    assert result["theanine/refine"].calls == 1.5
    assert result["theanine/refine"].input_tokens == 300


def test_cache_hits_are_shares_of_tokens() -> None:
    turns = [sample(turn=1), sample(turn=2, cached_tokens=80), sample(turn=2, cached_tokens=250, input_tokens=300)]
    result = cache_hit(turns, reported=True, server=0.5)
    assert result.by_turn == {1: 0.0, 2: 0.825}
    assert result.all == pytest.approx(330 / 500)
    assert cache_hit(turns, reported=False, server=None).all is None


def test_overhead_is_paired_by_prompt_with_an_interval_over_conversations() -> None:
    """One slow minute meets a turn and its bare prompt alike; unpaired percentiles would call it a gain of 700 ms."""
    turns, bare = [], []
    for number in range(40):
        slow = 900.0 if number < 20 else 0.0
        place = {"session": f"s{number // 4}", "turn": number % 4}
        turns.append(sample(ttft_ms=60.0 + slow + number % 4, **place))
        bare.append(sample(kind="bare", ttft_ms=50.0 + slow, **place))
    bare.append(sample(kind="bare", session="lonely", ttft_ms=5000.0))
    turns.append(sample(session="failed", ttft_ms=None, error="LLMError"))
    result = overhead(turns, bare[::-1], None)
    assert (result.ttft_p50_ms, result.ttft_p95_ms) == (11.5, 13.0)
    assert result.ttft_p50_interval_ms == (11.5, 11.5)
    assert result.ttft_ratio_p50 == pytest.approx(510 / 500, rel=0.9)


def test_overhead_of_conversations_that_differ_has_a_wide_interval() -> None:
    pairs = [(f"s{number}", 50.0 + 10 * number) for number in range(12)]
    turns = [sample(session=name, ttft_ms=ttft) for name, ttft in pairs]
    bare = [sample(kind="bare", session=name, ttft_ms=50.0) for name, _ in pairs]
    low, high = overhead(turns, bare, None).ttft_p50_interval_ms or (0.0, 0.0)
    assert low < 55.0 < high
    assert 20.0 < high - low < 90.0
    assert overhead(turns[:1], bare[:1], None).ttft_p50_interval_ms is None


def test_a_scripted_backbones_own_time_is_not_overhead() -> None:
    """Nor is the time of the memory's own prompts, nor what comes after the reply."""
    stages = {"embed": 8.0, "search": 2.0, "llm:theanine/refine": 100.0, "first_token": 50.1, "after:store": 9.0}
    result = overhead([sample(ttft_ms=161.0, stages=stages)], [], 50.0)
    assert result.ttft_p50_ms == pytest.approx(11.0)
    assert result.own_ttft_p50_ms == pytest.approx(3.0)
    assert result.embed_p95_ms == 8.0
