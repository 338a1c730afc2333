"""Comparing two latency runs: ratios computed by hand, intervals, and measurements that only one run has."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localmem.benchmark.latency.result import SAMPLES, Measurement, RequestStats, Sample
from localmem.benchmark.latency.tables import compare, sample_ratio
from localmem.benchmark.recipes import Load
from localmem.errors import BadInput
from tests.benchmark.latency.builders import save_run

POINT = Measurement("rsum/c2", "rsum", Load("closed", concurrency=2), 1, 0, "warm", 4, 0, RequestStats({}))


def _sample(session: str, ttft: float, **changes: object) -> Sample:
    sample = Sample("rsum/c2", "turn", "u1", session, 1, 0.0, ttft, ttft + 90, output_tokens=10)
    return replace(sample, **changes)  # type: ignore[arg-type]  # as its fields are named


def _run(folder: Path, samples: list[Sample], *points: Measurement, **about: object) -> Path:
    return save_run(folder, *points, requests=tuple(samples), **about)


def _point_of(samples: list[Sample], **figures: float) -> Measurement:
    times = [sample.ttft_ms for sample in samples if sample.ttft_ms]
    return replace(POINT, turns=RequestStats({"p50_ttft_ms": float(np.percentile(times, 50)), **figures}))


def test_a_slower_run_has_a_higher_ratio(tmp_path: Path) -> None:
    chance = random.Random(0)
    before = [_sample(f"s{number}", chance.uniform(90, 110)) for number in range(40)]
    after = [replace(sample, ttft_ms=2 * (sample.ttft_ms or 0)) for sample in before]
    first = _run(tmp_path / "a", before, _point_of(before, request_throughput=8.0), model="m", state={"load": 1})
    second = _run(tmp_path / "b", after, _point_of(after, request_throughput=2.0), model="m", state={"load": 3})
    comparison = compare(first, second)
    ttft, throughput = comparison.rows
    assert (ttft.figure, ttft.ratio, ttft.verdict) == ("p50_ttft_ms", 2.0, "higher")
    assert (ttft.low, ttft.high) == pytest.approx((2.0, 2.0))
    assert (throughput.figure, throughput.ratio, throughput.low, throughput.verdict) == (
        "request_throughput", 0.25, None, "no interval",
    )  # fmt: skip
    assert comparison.differences == ()
    assert comparison.notes == ()
    (table,) = comparison.tables()
    assert table.rows[0][5:] == ("2.000 [2.000, 2.000]", "higher")
    assert compare(second, first).rows[0].verdict == "lower"
    assert compare(first, first).rows[0].verdict == "no difference shown"


def test_failed_and_warm_up_requests_do_not_count() -> None:
    good = [_sample(f"s{number}", 10.0) for number in range(5)]
    bad = [_sample("s5", 900.0, error="lost"), _sample("s6", 900.0, warm_up=True), _sample("s7", 0, ttft_ms=None)]
    assert sample_ratio(good, [*good, *bad], "p95_ttft_ms") == (1.0, 1.0, 1.0)
    assert sample_ratio(good, bad, "p95_ttft_ms") is None


def test_the_time_per_token_excludes_the_first() -> None:
    """90 ms for nine tokens, against 180."""
    samples = [_sample(f"s{number}", 10.0) for number in range(5)]
    slow = [replace(sample, e2el_ms=190.0) for sample in samples]
    assert sample_ratio(samples, slow, "p50_tpot_ms") == pytest.approx((2.0, 2.0, 2.0))
    single = [replace(sample, output_tokens=1) for sample in samples]
    assert sample_ratio(samples, single, "p50_tpot_ms") is None


def test_ends_and_bare_requests_are_compared_separately(tmp_path: Path) -> None:
    turns = [_sample("s1", 10.0), _sample("s2", 30.0)]
    bare = [replace(sample, kind="bare") for sample in turns]
    ends = [replace(sample, kind="end", ttft_ms=None, e2el_ms=50.0) for sample in turns]
    slow_ends = [replace(sample, e2el_ms=75.0) for sample in ends]
    bare_stats = RequestStats({"p50_ttft_ms": 20.0})
    point = replace(_point_of(turns), bare=bare_stats, ends=RequestStats({"p95_e2el_ms": 50.0}))
    slow = replace(point, ends=RequestStats({"p95_e2el_ms": 75.0}))
    first = _run(tmp_path / "a", [*turns, *bare, *ends], point)
    second = _run(tmp_path / "b", [*turns, *bare, *slow_ends], slow)
    rows = compare(first, second).rows
    assert [(row.kind, row.figure, row.ratio) for row in rows] == [
        ("turn", "p50_ttft_ms", 1.0),
        ("bare", "p50_ttft_ms", 1.0),
        ("end", "p95_e2el_ms", 1.5),
    ]
    assert rows[2].low == rows[2].high == 1.5


def test_unmatched_measurements_and_other_differences_are_reported(tmp_path: Path) -> None:
    samples = [_sample("s1", 10.0), _sample("s2", 30.0)]
    marked, other = replace(_point_of(samples), marks=("fewer than 100 requests",)), replace(POINT, id="rsum/c4")
    about = {"model": "m", "machine": {"cores": 2, "load_average": 0.1}, "seeds": [1, 2]}
    first = _run(tmp_path / "a", samples, marked, replace(POINT, id="rsum/c8"), other, **about)
    changed = {**about, "machine": {"cores": 4}, "extra": None}
    second = _run(tmp_path / "b", samples, _point_of(samples), other, **changed)
    comparison = compare(first, second)
    assert comparison.differences == (("machine.cores", "2", "4"), ("extra", "absent", "None"))
    assert comparison.notes == ("rsum/c2 of a: fewer than 100 requests", "rsum/c8 is only in one of the runs")
    assert comparison.tables()[1].rows == comparison.differences


def test_without_raw_requests_there_are_no_intervals(tmp_path: Path) -> None:
    samples = [_sample("s1", 10.0), _sample("s2", 30.0)]
    first, second = (_run(tmp_path / name, samples, _point_of(samples)) for name in "ab")
    (second / SAMPLES).unlink()
    comparison = compare(first / "result.json", second / "result.json")
    assert (comparison.rows[0].ratio, comparison.rows[0].low) == (1.0, None)
    assert "has no samples.jsonl" in comparison.notes[0]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        compare(tmp_path, tmp_path)
