"""Pictures: one figure with one set of axes, drawn without a display. Knows no data; whoever has them draws them."""

from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from localmem.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def picture(
    target: Path | IO[bytes], draw: "Callable[[Axes], None]", *, width: float = 8, height: float = 5, kind: str = "png"
) -> None:
    """Writes what `draw` puts onto the axes, with grid and legend; inches. Raises MissingExtra without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtra("pictures need matplotlib; run `pip install 'localmem[eval]'`") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    draw(axes)
    axes.grid(visible=True, which="major", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    figure.savefig(target, dpi=120, format=kind)
