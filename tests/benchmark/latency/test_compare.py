"""Two runs beside each other: ratios worked out by hand, intervals with 1 and without it, what has no partner."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localmem.benchmark.latency.compare import Difference, between, compare, tables
from localmem.benchmark.latency.resample import Sorted, mean, percentile, ratio
from localmem.benchmark.latency.result import SAMPLE, SAMPLES, Load, Part, Point, Result, Sample, save_result
from localmem.errors import BadInput

POINT = Point("rsum/c2", "rsum", Load("closed", concurrency=2), 1, 0, "warm", 4, 0, Part({}))


def _sample(session: str, ttft: float, **more: object) -> Sample:
    made = Sample("rsum/c2", "turn", "u1", session, 1, 0.0, ttft, ttft + 90, output_tokens=10)
    return replace(made, **more)  # type: ignore[arg-type]  # as its fields are named


def _run(folder: Path, samples: list[Sample], *points: Point, **about: object) -> Path:
    folder.mkdir()
    (folder / SAMPLES).write_bytes(b"".join(SAMPLE.dump_json(sample) + b"\n" for sample in samples))
    save_result(folder, Result(about, points))
    return folder


def _with(samples: list[Sample], **figures: float) -> Point:
    times = [sample.ttft_ms for sample in samples if sample.ttft_ms]
    return replace(POINT, turns=Part({"p50_ttft_ms": float(np.percentile(times, 50)), **figures}))


# -- intervals ---------------------------------------------------------------------------------------------------------


def test_a_percentile_is_numpys_of_what_was_drawn() -> None:
    values, clusters = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([0, 0, 1, 2, 1])
    drawn = np.array([[1, 1, 1], [2, 0, 1], [0, 3, 0]])
    for percent in (0, 5, 50, 90, 95, 100):
        expected = [np.percentile(np.repeat(values, row[clusters]), percent) for row in drawn]
        assert percentile(percent)(Sorted(values, clusters), drawn).tolist() == pytest.approx(expected)


def test_what_was_not_drawn_has_no_figure() -> None:
    held, drawn = Sorted(np.array([1.0]), np.array([0])), np.array([[0, 2], [1, 1]])
    for figure in (mean, percentile(50)):
        first, second = figure(held, drawn)
        assert np.isnan(first)
        assert second == 1


def test_runs_of_the_same_times_differ_by_nothing() -> None:
    draw = random.Random(0)
    ours = [(f"s{number // 5}", draw.uniform(10, 100)) for number in range(200)]
    found = ratio(ours, [(name, 1.2 * value) for name, value in ours], percentile(95))
    assert (found.ratio, found.low, found.high) == pytest.approx((1.2, 1.2, 1.2)), "the same conversations cancel out"


def test_runs_of_other_conversations_may_differ_by_chance() -> None:
    draw = random.Random(0)
    ours, theirs = ([(f"{run}{number // 5}", draw.uniform(10, 100)) for number in range(200)] for run in "ab")
    found = ratio(ours, theirs, percentile(50))
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1 < found.high
    assert found == ratio(ours, theirs, percentile(50)), "the same seed draws the same"


def test_turns_of_one_conversation_are_drawn_together() -> None:
    """Four conversations whose turns are all alike tell as little as four turns: the interval is as wide."""
    single = [(name, value) for name, value in zip("abcd", (10.0, 20.0, 30.0, 40.0), strict=True)]
    often = single * 25
    flat = [("x", 10.0), ("y", 10.0)]
    assert ratio(flat, often, mean)[1:] == pytest.approx(ratio(flat, single, mean)[1:])


def test_one_conversation_has_no_interval() -> None:
    assert ratio([("a", 2.0), ("a", 4.0)], [("b", 6.0)], mean) == (2.0, None, None)


def test_many_requests_are_drawn_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    lot = [(str(number), 1.0 + number) for number in range(30)]
    whole = ratio(lot, lot[::2], mean, resamples=50)
    monkeypatch.setattr("localmem.benchmark.latency.resample._BLOCK", 100)
    assert ratio(lot, lot[::2], mean, resamples=50) == whole


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_slower_run_is_told_with_its_ratio(tmp_path: Path) -> None:
    draw = random.Random(0)
    before = [_sample(f"s{number}", draw.uniform(90, 110)) for number in range(40)]
    after = [replace(one, ttft_ms=2 * (one.ttft_ms or 0)) for one in before]
    ours = _run(tmp_path / "a", before, _with(before, request_throughput=8.0), model="m", state={"load": 1})
    theirs = _run(tmp_path / "b", after, _with(after, request_throughput=2.0), model="m", state={"load": 3})
    found = compare(ours, theirs)
    first, second = found.rows
    assert (first.figure, first.ratio, first.verdict) == ("p50_ttft_ms", 2.0, "higher")
    assert (first.low, first.high) == pytest.approx((2.0, 2.0))
    assert (second.figure, second.ratio, second.low, second.verdict) == (
        "request_throughput",
        0.25,
        None,
        "no interval",
    )
    assert found.differences == ()
    assert found.notes == ()
    shown = tables(found, ("a", "b"))
    assert len(shown) == 1
    assert shown[0].rows[0][5:] == ("2.000 [2.000, 2.000]", "higher")
    assert compare(theirs, ours).rows[0].verdict == "lower"
    assert compare(ours, ours).rows[0].verdict == "no difference shown"


def test_a_failed_and_a_warming_request_count_for_nothing() -> None:
    good = [_sample(f"s{number}", 10.0) for number in range(5)]
    bad = [_sample("s5", 900.0, error="lost"), _sample("s6", 900.0, warm_up=True), _sample("s7", 0, ttft_ms=None)]
    assert between(good, [*good, *bad], "p95_ttft_ms") == (1.0, 1.0, 1.0)
    assert between(good, bad, "p95_ttft_ms") is None


def test_the_time_of_a_token_leaves_out_the_first() -> None:
    """90 ms for nine tokens, against 180."""
    lot = [_sample(f"s{number}", 10.0) for number in range(5)]
    slow = [replace(one, e2el_ms=190.0) for one in lot]
    assert between(lot, slow, "p50_tpot_ms") == pytest.approx((2.0, 2.0, 2.0))
    assert between(lot, [replace(one, output_tokens=1) for one in lot], "p50_tpot_ms") is None


def test_ends_and_bare_requests_are_compared_apart(tmp_path: Path) -> None:
    lot = [_sample("s1", 10.0), _sample("s2", 30.0)]
    bare = [replace(one, kind="bare") for one in lot]
    ends = [replace(one, kind="end", ttft_ms=None, e2el_ms=50.0) for one in lot]
    point = replace(_with(lot), bare=Part({"p50_ttft_ms": 20.0}), ends=Part({"p95_e2el_ms": 50.0}))
    slower = [replace(one, e2el_ms=75.0) for one in ends]
    ours = _run(tmp_path / "a", [*lot, *bare, *ends], point)
    theirs = _run(tmp_path / "b", [*lot, *bare, *slower], replace(point, ends=Part({"p95_e2el_ms": 75.0})))
    rows = compare(ours, theirs).rows
    assert [(row.kind, row.figure, row.ratio) for row in rows] == [
        ("turn", "p50_ttft_ms", 1.0),
        ("bare", "p50_ttft_ms", 1.0),
        ("end", "p95_e2el_ms", 1.5),
    ]
    assert rows[2].low == rows[2].high == 1.5


def test_what_has_no_partner_and_what_differs_is_said(tmp_path: Path) -> None:
    lot = [_sample("s1", 10.0), _sample("s2", 30.0)]
    marked = replace(_with(lot), marks=("fewer than 100 requests",))
    more = replace(POINT, id="rsum/c4")
    about = {"model": "m", "machine": {"cores": 2, "load_average": 0.1}, "seeds": [1, 2]}
    ours = _run(tmp_path / "a", lot, marked, replace(POINT, id="rsum/c8"), more, **about)
    theirs = _run(tmp_path / "b", lot, _with(lot), more, **{**about, "machine": {"cores": 4}, "extra": None})
    found = compare(ours, theirs)
    assert found.alone == (("rsum/c8",), ())
    assert found.differences == (Difference("machine.cores", "2", "4"), Difference("extra", "absent", "None"))
    assert found.notes == ("rsum/c2 of a: fewer than 100 requests",)
    assert tables(found, ("a", "b"))[1].rows == (("machine.cores", "2", "4"), ("extra", "absent", "None"))


def test_without_raw_requests_there_are_ratios_alone(tmp_path: Path) -> None:
    lot = [_sample("s1", 10.0), _sample("s2", 30.0)]
    ours, theirs = (_run(tmp_path / name, lot, _with(lot)) for name in "ab")
    (theirs / SAMPLES).unlink()
    found = compare(ours / "result.json", theirs / "result.json")
    assert (found.rows[0].ratio, found.rows[0].low) == (1.0, None)
    assert "no samples.jsonl lies beside" in found.notes[0]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        compare(tmp_path, tmp_path)
