"""Pictures of a latency run: curves, stacked bars, bars in pairs, a Pareto front. Knows no points of a run.

Each function takes what is to be drawn as plain numbers and returns how: for `localmem.reporting.plots`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localmem.evaluation.summary import front

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    Draw = Callable[[Axes], None]

# One colour for a stage in all pictures: the backbone's share of a reply in greys, localmem's own work in cool colours,
# a system's own questions to the backbone in warm ones.
_STAGES = {
    "first_token": "#9a9a9a",
    "decode": "#cfcfcf",
    "embed": "#1f77b4",
    "search": "#17becf",
    "rerank": "#3d5a98",
    "index": "#7fb8d8",
    "prompt": "#2ca02c",
    "store": "#6b4f9e",
    "commit": "#a58bd0",
}
_ASKED = ("#d62728", "#ff7f0e", "#f2b134", "#e377c2", "#8c564b", "#ff9896", "#bc5090", "#c49c94")
_OTHER = ("#4c9f70", "#98df8a", "#c7c7a0", "#88a0a8")
_LINES = (
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf", "#3d3d3d",
    "#f2b134", "#6aa84f",
)  # fmt: skip
_MARKERS = "os^DvPX*<>hp"
_FAR = 4  # times the smallest: more than this needs a logarithmic axis


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points (x to y). What is compared with something has its colour and another `style`."""

    name: str
    points: Mapping[float, float]
    colour: str
    style: str = "-"


def colours(names: Iterable[str]) -> dict[str, str]:
    """One for each, the same wherever they are drawn in this order."""
    return {name: _LINES[number % len(_LINES)] for number, name in enumerate(names)}


def curves(lines: Sequence[Curve], title: str, across: str, up: str, *, guide: float | None = None) -> "Draw":
    """Times or counts over loads or histories; shares, which have a `guide` line, over what is counted."""

    def draw(axes: "Axes") -> None:
        shown = [_plot(axes, line, _MARKERS[number % len(_MARKERS)]) for number, line in enumerate(lines)]
        axes.set(title=title, xlabel=across, ylabel=up)
        ticks = sorted({x for line in lines for x in line.points})
        if guide is None:
            axes.set(xscale="symlog" if ticks[0] <= 0 else "log")
            _upward(axes, [y for line in lines for y in line.points.values()])
        else:
            axes.axhline(guide, color="#666666", linestyle=":", linewidth=1)
            axes.set(ylim=(-0.02, 1.02))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        _legend(axes, shown, [line.name for line in lines])

    return draw


def stacks(bars: Mapping[str, Mapping[str, float]], title: str, across: str) -> "Draw":
    """One bar for each name, made up of its stages in the given order; the sum stands at its end."""
    stages = list(dict.fromkeys(stage for parts in bars.values() for stage in parts))
    shades = _shades(stages)

    def draw(axes: "Axes") -> None:
        left = dict.fromkeys(bars, 0.0)
        shown = []
        for stage in stages:
            widths = [parts.get(stage, 0.0) for parts in bars.values()]
            shown.append(axes.barh(list(bars), widths, left=list(left.values()), color=shades[stage])[0])
            left = {name: start + width for (name, start), width in zip(left.items(), widths, strict=True)}
        for name, end in left.items():
            axes.annotate(f" {end:.3g}" if end < 1000 else f" {end:.0f}", (end, name), va="center", fontsize="small")
        axes.set(title=title, xlabel=across, xlim=(0, 1.1 * max(left.values(), default=0) or 1))
        axes.set_axisbelow(True)
        axes.invert_yaxis()
        _legend(axes, shown, stages)

    return draw


def pairs(bars: Mapping[str, tuple[float, float]], names: tuple[str, str], title: str, across: str) -> "Draw":
    """Two bars beside each other for each name, the second with its ratio to the first."""

    def draw(axes: "Axes") -> None:
        places = range(len(bars))
        first, second = ([pair[side] for pair in bars.values()] for side in (0, 1))
        shown = [
            axes.barh([place - 0.2 for place in places], first, height=0.38, color=_LINES[0])[0],
            axes.barh([place + 0.2 for place in places], second, height=0.38, color=_LINES[1])[0],
        ]
        for place, (idle, busy) in zip(places, bars.values(), strict=True):
            axes.annotate(f" {busy / idle:.2f} ×" if idle else "", (busy, place + 0.2), va="center", fontsize="small")
        axes.set_yticks(list(places), list(bars))
        axes.set(title=title, xlabel=across, xlim=(0, 1.15 * max(*first, *second) or 1))
        axes.set_axisbelow(True)
        axes.invert_yaxis()
        _legend(axes, shown, names)

    return draw


def pareto(points: Mapping[str, tuple[float, float]], title: str, across: str, up: str) -> "Draw":
    """Each name at (cost, quality), and the line of those that no other beats."""

    def draw(axes: "Axes") -> None:
        for name, at in points.items():
            axes.plot(*at, "o", color=_LINES[0])
            axes.annotate(name, at, xytext=(5, 4), textcoords="offset points", fontsize="small")
        edge = [points[name] for name in front(points)]
        line = axes.plot(*zip(*edge, strict=True), "-", color=_LINES[1], drawstyle="steps-post")
        axes.margins(x=0.25, y=0.12)  # room for the names
        axes.set(title=title, xlabel=across, ylabel=up)
        _legend(axes, line, ["no other is as fast and better"])

    return draw


def _plot(axes: "Axes", line: Curve, marker: str) -> "Artist":
    across, up = list(line.points), list(line.points.values())
    return axes.plot(across, up, line.style, color=line.colour, marker=marker, markersize=5)[0]


def _upward(axes: "Axes", values: Sequence[float]) -> None:
    """From zero where all is of one size; else logarithmic, with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator

    if max(values) < _FAR * min(values) or min(values) <= 0:
        axes.set_ylim(0, 1.15 * max(values) or 1)
        return
    axes.set(yscale="log", ylim=(min(values) / 1.4, max(values) * 1.4))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _legend(axes: "Axes", shown: Sequence["Artist"], names: Sequence[str]) -> None:
    """Beside the axes, where it hides nothing."""
    from matplotlib.figure import Figure

    figure = axes.figure
    if isinstance(figure, Figure):
        figure.legend(shown, names, loc="outside right upper", fontsize="small", frameon=False)


def _shades(stages: Sequence[str]) -> dict[str, str]:
    """What has no colour of its own takes the next of its kind."""
    asked, other = iter(_ASKED * len(stages)), iter(_OTHER * len(stages))
    return {stage: _STAGES.get(_bare(stage)) or next(asked if "llm:" in stage else other) for stage in stages}


def _bare(stage: str) -> str:
    return stage.removeprefix("after:")
