"""The document model of every report: chapters of sections with notes, tables, plots and answers to browse.

An evaluation saves its section as section.json in its output folder, with the plots beside it. Does not depend on any
evaluation or benchmark. `localmem.reporting.pages` renders the documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from localmem.files import read_json, write_atomic, write_json

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
