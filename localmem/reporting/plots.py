"""Plots with matplotlib: one figure with one set of axes, drawn without a display."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from localmem.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Draw = Callable[[Axes], None]


def save_plot(
    target: Path | IO[bytes], draw: "Draw", *, width: float = 8, height: float = 5, kind: str = "png"
) -> None:
    """Write what `draw` puts onto the axes, with grid and legend; sizes in inches, `kind` is the file format.

    Raises MissingExtra without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtra("plots need matplotlib; run `pip install 'localmem[eval]'`") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    draw(axes)
    axes.grid(visible=True, which="major", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    figure.savefig(target, dpi=120, format=kind)


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names of the (cost, quality) points that none beats: none is as cheap and better. Cheapest first."""
    best, front = float("-inf"), []
    for name, (_, quality) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if quality > best:
            best = quality
            front.append(name)
    return front


def pareto_plot(points: Mapping[str, tuple[float, float]], *, xlabel: str, ylabel: str, title: str = "") -> "Draw":
    """Each name at its (cost, quality), and the Pareto front as a line."""

    def draw(axes: "Axes") -> None:
        for name, point in points.items():
            axes.plot(*point, "o", color="tab:blue")
            axes.annotate(name, point, xytext=(5, 4), textcoords="offset points", fontsize="small")
        front = [points[name] for name in pareto_front(points)]
        axes.plot(*zip(*front, strict=True), "-", color="tab:orange", label="Pareto front", drawstyle="steps-post")
        axes.margins(x=0.25, y=0.12)  # room for the names
        scale = "log" if min(cost for cost, _ in points.values()) > 0 else "linear"
        axes.set(title=title, xlabel=xlabel, ylabel=ylabel, xscale=scale)

    return draw
