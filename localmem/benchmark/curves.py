"""Pictures of a retrieval benchmark: latency against units, recall against latency. Knows rows; measures nothing."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.reporting.plots import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, object]


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Writes latency.png and recall.png. Raises MissingExtra without matplotlib."""
    return [_latency(rows, folder / "latency.png"), _recall(rows, folder / "recall.png")]


def _latency(rows: Sequence[Row], path: Path) -> Path:
    """The median of single queries, and of each baseline, on logarithmic axes."""
    lines: defaultdict[str, dict[float, float]] = defaultdict(dict)
    for row in _single(rows):
        lines[_name(row)][_number(row, "units")] = _number(row, "p50_ms")
        if "baseline" in row:
            lines[f"{row['baseline']} (bare)"].setdefault(_number(row, "units"), _number(row, "baseline_p50_ms"))

    def onto(axes: "Axes") -> None:
        for name, points in lines.items():
            dashed = "--" if name.endswith("(bare)") else "-"
            axes.plot(list(points), list(points.values()), dashed, marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel="units in the bank", ylabel="median of one query, ms")

    picture(path, onto)
    return path


def _recall(rows: Sequence[Row], path: Path) -> Path:
    """Recall@10 against the median of single queries: a line for each index, a point for each size of bank."""
    lines: defaultdict[str, list[Row]] = defaultdict(list)
    for row in _single(rows):
        if "recall" in row:
            lines[_name(row)].append(row)

    def onto(axes: "Axes") -> None:
        for name, points in lines.items():
            times, shares = [_number(row, "p50_ms") for row in points], [_number(row, "recall") for row in points]
            axes.plot(times, shares, marker="o", label=name)
            for row, at in zip(points, zip(times, shares, strict=True), strict=True):
                axes.annotate(f"{row['units']:,}", at, xytext=(4, 4), textcoords="offset points", fontsize="small")
        axes.set(xscale="log", xlabel="median of one query, ms", ylabel="recall@10 of exact search")

    picture(path, onto)
    return path


def _single(rows: Sequence[Row]) -> list[Row]:
    """Rows of the smallest batch."""
    smallest = min(_number(row, "batch") for row in rows)
    return [row for row in rows if row["batch"] in (1, smallest)]


def _name(row: Row) -> str:
    return f"{row['method']} ({row['device']})"


def _number(row: Row, key: str) -> float:
    return float(str(row[key]))
