"""Chapters as one self-contained HTML page or one Markdown text, and tables for a terminal."""

import base64
import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, Template

from localmem.files import reading, write_atomic
from localmem.reporting.sections import CAUTION, Chapter, Section, Table

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
