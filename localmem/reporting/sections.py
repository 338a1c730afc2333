"""Sections: what an evaluation found, as words, tables, pictures and answers to browse. One form for all evaluations.

A section is kept as section.json in its evaluation's folder, pictures beside it; several become one page (HTML, with
everything in it) or one Markdown text. Knows no measure and no data set.
"""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, Template
from pydantic import TypeAdapter, ValidationError

from localmem.errors import BadInput

FILE = "section.json"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head; all cells are text as it is to be read."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, caption: str, rows: Sequence[Mapping[str, object]]) -> "Table":
        """Of plain values by column; a column that only later rows have stands behind the others."""
        head = tuple(dict.fromkeys(name for row in rows for name in row))
        return cls(caption, head, tuple(tuple(_plain(row.get(name, "")) for name in head) for row in rows))


@dataclass(frozen=True, slots=True)
class Shown:
    """One answer to browse: where it comes from, what was asked and recalled, and how it was judged."""

    system: str
    data: str
    about: str
    question: str
    gold: str
    answer: str
    recalled: str
    scores: str


@dataclass(frozen=True, slots=True)
class Section:
    """`notes` are lines that a reader must know; `pictures` are names of files beside section.json."""

    title: str
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    pictures: tuple[str, ...] = ()
    answers: tuple[Shown, ...] = ()

    def save(self, folder: Path) -> None:
        """Into the folder, in place of what stood there."""
        (folder / FILE).write_bytes(_SECTION.dump_json(self, indent=1) + b"\n")


def keep(folder: Path, section: Section, report: Mapping[str, object]) -> None:
    """A small evaluation's folder: the section, and its figures as report.json. Raises BadInput."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report, indent=1, ensure_ascii=False)
        (folder / "report.json").write_text(f"{text}\n", encoding="utf-8")
        section.save(folder)
    except OSError as error:
        raise BadInput(f"cannot write to {folder} ({error.strerror}); choose another --out") from error


_SECTION: TypeAdapter[Section] = TypeAdapter(Section)


def read_section(folder: Path) -> Section:
    """What `save` wrote. Raises BadInput."""
    path = folder / FILE
    try:
        return _SECTION.validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{folder} holds no evaluation ({error.strerror}); give the --out of one") from error
    except ValidationError as error:
        raise BadInput(f"{path}: {error.errors()[0]['msg']}; it is of another version: evaluate again") from error


def terminal(tables: Sequence[Table]) -> str:
    """Tables for a person at a terminal."""
    from tabulate import tabulate

    return "\n\n".join(
        f"{table.caption}\n{tabulate(table.rows, table.head, disable_numparse=True)}" for table in tables
    )


def markdown(sections: Sequence[tuple[Path, Section]], where: Path) -> str:
    """All sections as one Markdown text to lie in `where`; pictures are linked, answers stand in the page alone."""
    return "\n".join(_markdown(os.path.relpath(folder, where), section) for folder, section in sections)


def as_markdown(table: Table) -> str:
    """Its head and rows, without the caption."""
    lines = [table.head, tuple("---" for _ in table.head), *table.rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def page(sections: Sequence[tuple[Path, Section]]) -> str:
    """All sections as one HTML page that needs nothing but itself."""
    shown = [(section, [_embedded(folder / name) for name in section.pictures]) for folder, section in sections]
    return _template().render(sections=shown)


def _plain(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _markdown(folder: str, section: Section) -> str:
    parts = [f"## {section.title}\n", *(f"- {note}" for note in section.notes), ""]
    for table in section.tables:
        parts += [f"### {table.caption}\n", as_markdown(table), ""]
    parts += [f"![{name}]({Path(folder, name).as_posix()})\n" for name in section.pictures]
    return "\n".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _embedded(path: Path) -> str:
    try:
        return base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror}); evaluate again to draw it") from error


@cache
def _template() -> Template:
    text = files("localmem.evaluation").joinpath("report.html").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)
