"""The document model of every report: chapters of sections with notes, tables, plots and answers to browse.

An evaluation saves its section as section.json in its output folder, with the plots beside it. Chapters become one
self-contained HTML page or one Markdown text, tables also text for a terminal, and plots are drawn with matplotlib
without a display. Does not depend on any evaluation or benchmark.
"""

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from jinja2 import Environment, Template
from pydantic import TypeAdapter

from localmem.errors import requires
from localmem.files import read_json, reading, write_atomic, write_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Draw = Callable[[Axes], None]


SECTION, REPORT = "section.json", "report.json"
_CURE = "choose another --out"
CAUTION = "⚠"  # marks the first cell of a row that should be read with its remarks; pages highlight the row


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head; every cell is text."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, caption: str, rows: Sequence[Mapping[str, object]]) -> "Table":
        """From values by column; columns that only later rows have come last, floats get three decimals."""
        head = tuple(dict.fromkeys(name for row in rows for name in row))
        return cls(caption, head, tuple(tuple(_format(row.get(name, "")) for name in head) for row in rows))


@dataclass(frozen=True, slots=True)
class BrowsableAnswer:
    """One answer of a system, with the question (of a `category`), the gold answer, what was recalled and scores."""

    system: str
    dataset: str
    category: str
    question: str
    gold: str
    answer: str
    recalled: str
    scores: str


@dataclass(frozen=True, slots=True)
class Section:
    """`notes` are lines that a reader must know; `plots` are file names in the folder of the section."""

    title: str
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    plots: tuple[str, ...] = ()
    answers: tuple[BrowsableAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one evaluation: figures for JSON, tables, and notes that a reader must know."""

    figures: dict[str, Any]
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()

    def save(self, folder: Path, title: str, plots: tuple[str, ...] = ()) -> None:
        """Write the figures and a section of this title into a folder, made if needed. Raises BadInput."""
        section = Section(title, self.notes, self.tables, plots)
        write_json(folder / REPORT, self.figures, _CURE, indent=1)
        write_atomic(folder / SECTION, _SECTION.dump_json(section, indent=1) + b"\n", _CURE)


@dataclass(frozen=True, slots=True)
class Chapter:
    """The sections of one run; `folder` holds their plots."""

    title: str
    folder: Path
    sections: tuple[Section, ...]


_SECTION: TypeAdapter[Section] = TypeAdapter(Section)


def read_section(folder: Path) -> Section:
    """The section that an evaluation saved in `folder`. Raises BadInput."""
    return read_json(folder / SECTION, _SECTION, "give the --out of an evaluation of this version")


def _format(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def save_plot(
    target: Path | IO[bytes], draw: "Draw", *, width: float = 8, height: float = 5, kind: str = "png"
) -> None:
    """Write what `draw` puts onto the axes, with grid and legend; sizes in inches, `kind` is the file format.

    Raises MissingExtra without matplotlib.
    """
    with requires("plots need matplotlib", "eval"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    draw(axes)
    axes.grid(visible=True, which="major", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(fontsize="small", loc="outside lower center", ncols=4)  # "best" takes long to find
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


_MEDIA_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


def write_pages(folder: Path, title: str, chapters: Sequence[Chapter]) -> tuple[Path, Path]:
    """Write report.html and report.md into a folder, made if needed, and return their paths. Raises BadInput."""
    html, text = folder / "report.html", folder / "report.md"
    write_atomic(html, html_page(title, chapters), "choose another --out")
    write_atomic(text, markdown(title, chapters, folder), "choose another --out")
    return html, text


def html_page(title: str, chapters: Sequence[Chapter]) -> str:
    """One HTML page with all plots embedded; it loads nothing from elsewhere. Raises BadInput for a missing plot."""
    images = {
        (chapter.folder, name): _data_url(chapter.folder / name)
        for chapter in chapters
        for section in chapter.sections
        for name in section.plots
    }
    return _template().render(title=title, chapters=chapters, images=images, caution=CAUTION)


def markdown(title: str, chapters: Sequence[Chapter], folder: Path) -> str:
    """One Markdown text to be saved in `folder`; plots are links, and answers are left to the HTML page."""
    parts = [f"# {title}\n"]
    for chapter in chapters:
        parts.append(f"## {chapter.title}\n")
        link = os.path.relpath(chapter.folder, folder)
        for section in chapter.sections:
            parts += [f"### {section.title}\n"] if len(chapter.sections) > 1 else []
            parts.append(_markdown_section(link, section))
    return "\n".join(parts)


def markdown_table(table: Table) -> str:
    """Head and rows, without the caption."""
    lines = [table.head, tuple("---" for _ in table.head), *table.rows]
    return "\n".join(f"| {' | '.join(map(_escape_cell, line))} |" for line in lines)


def terminal(tables: Sequence[Table]) -> str:
    """Tables as aligned text."""
    from tabulate import tabulate

    return "\n\n".join(
        f"{table.caption}\n{tabulate(table.rows, table.head, disable_numparse=True)}" for table in tables
    )


def _markdown_section(link: str, section: Section) -> str:
    parts = [*(f"- {note}" for note in section.notes), ""]
    for table in section.tables:
        parts += [f"#### {table.caption}\n", markdown_table(table), ""]
    parts += [f"![{Path(name).stem}]({Path(link, name).as_posix()})\n" for name in section.plots]
    return "\n".join(parts)


def _escape_cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _data_url(path: Path) -> str:
    with reading(path, "run the evaluation again to draw it"):
        encoded = base64.b64encode(path.read_bytes()).decode()
    return f"data:{_MEDIA_TYPES[path.suffix]};base64,{encoded}"


@cache
def _template() -> Template:
    text = files("localmem.reporting").joinpath("report.html").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)
