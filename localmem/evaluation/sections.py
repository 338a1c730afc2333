"""Sections: what an evaluation found, as words, tables, pictures and answers to browse. One form for all evaluations.

A section is kept as section.json in its evaluation's folder, pictures beside it; several become one page (HTML, with
everything in it) or one Markdown text. Knows no measure and no data set.
"""

import base64
from collections.abc import Sequence
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


def markdown(sections: Sequence[tuple[Path, Section]]) -> str:
    """All sections as one Markdown text; pictures are linked where they lie, answers stand in the page alone."""
    return "\n".join(_markdown(folder, section) for folder, section in sections)


def page(sections: Sequence[tuple[Path, Section]]) -> str:
    """All sections as one HTML page that needs nothing but itself."""
    shown = [(section, [_embedded(folder / name) for name in section.pictures]) for folder, section in sections]
    return _template().render(sections=shown)


def _markdown(folder: Path, section: Section) -> str:
    parts = [f"## {section.title}\n", *(f"- {note}" for note in section.notes), ""]
    for table in section.tables:
        lines = [table.head, tuple("---" for _ in table.head), *table.rows]
        parts += [f"### {table.caption}\n", *(f"| {' | '.join(map(_cell, line))} |" for line in lines), ""]
    parts += [f"![{name}]({folder / name})\n" for name in section.pictures]
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
