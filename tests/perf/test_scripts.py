"""The performance scripts still run against the current code; their figures are not checked."""

from tests.perf import bench_runner, bench_timelines


def test_timelines_have_a_row_for_each_shape_and_size() -> None:
    rows = bench_timelines.measure([10, 40], seed=0, draws=2)
    assert [(row["shape"], row["units"]) for row in rows] == [
        (shape, units) for shape in bench_timelines.SHAPES for units in (10, 40)
    ]


def test_the_runner_is_timed_with_and_without_itself() -> None:
    figures = bench_runner.measure(threads=2, episodes=1, call_seconds=0.001)
    assert figures["calls"] == 2 * (bench_runner.SESSIONS + bench_runner.PROBES)
    assert figures["seconds"] >= figures["minimum_seconds"]
