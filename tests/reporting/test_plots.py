"""Plots: files in the requested format, and the Pareto front by hand."""

from pathlib import Path

from localmem.reporting.sections import pareto_front, pareto_plot, save_plot

POINTS = {"cheap": (1.0, 0.3), "dear": (9.0, 0.3), "good": (4.0, 0.6), "worse": (5.0, 0.5)}


def test_the_front_omits_points_that_cost_more_and_are_no_better() -> None:
    assert pareto_front(POINTS) == ["cheap", "good"]


def test_a_front_is_drawn_with_the_names_of_its_points(tmp_path: Path) -> None:
    save_plot(tmp_path / "front.svg", pareto_plot(POINTS, xlabel="tokens", ylabel="F1"), kind="svg")
    assert "</svg>" in (tmp_path / "front.svg").read_text(encoding="utf-8")
