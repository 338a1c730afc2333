"""A result is read as it was written; other files are refused in one line."""

from pathlib import Path

import pytest

from localmem.benchmark.latency.result import (
    RESULT,
    SAMPLE,
    SAMPLES,
    CacheHit,
    LatencyResult,
    Load,
    Measurement,
    PromptCost,
    RequestStats,
    Sample,
    StageTime,
    load_result,
    read_samples,
    save_result,
)
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
