"""Pages: self-contained HTML that escapes its texts, Markdown with links to plots, tables for a terminal."""

import re
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from localmem.errors import BadInput
from localmem.reporting.sections import (
    CAUTION,
    BrowsableAnswer,
    Chapter,
    Section,
    Table,
    html_page,
    markdown,
    save_plot,
    terminal,
    write_pages,
)

TABLE = Table("Scores", ("system", "F1"), (("none", "0.1"), (f"rsum {CAUTION}", "a | <b>")))
ANSWER = BrowsableAnswer("none", "sample", "single", "", "a kite", "<i>a bird</i>", "", "F1 0.00")


def draw_line(axes: Axes) -> None:
    axes.plot([0, 1])


@pytest.fixture
def chapter(tmp_path: Path) -> Chapter:
    for name in ("curve.svg", "front.png"):
        save_plot(tmp_path / name, draw_line, kind=name[-3:])
    first = Section("First", ("a note",), (TABLE,), ("curve.svg", "front.png"), (ANSWER,))
    return Chapter("Run one", tmp_path, (first, Section("Second", (), ())))


def test_the_page_loads_nothing_and_escapes_texts(chapter: Chapter) -> None:
    html = html_page("A report", [chapter])
    assert html.count('src="data:image/svg+xml;base64,') == html.count('src="data:image/png;base64,') == 1
    assert re.findall(r"""(?:src|href)=(?!"data:|"#)""", html) == []
    assert "http" not in re.sub(r'base64,[^"]*', "", html)
    assert "a | &lt;b&gt;" in html
    assert "&lt;i&gt;a bird" in html
    assert "(continue the conversation)" in html
    assert html.count('<tr class="marked">') == 1
    assert '<a href="#1-2">Second</a>' in html


def test_markdown_links_plots_from_the_folder_it_is_saved_in(chapter: Chapter) -> None:
    text = markdown("A report", [chapter], chapter.folder.parent)
    assert text.startswith("# A report\n\n## Run one\n\n### First\n\n- a note\n")
    assert "a \\| <b>" in text
    assert f"![curve]({chapter.folder.name}/curve.svg)" in text
    assert "a bird" not in text
    single = markdown("A report", [Chapter("Run one", chapter.folder, chapter.sections[:1])], chapter.folder)
    assert "### First" not in single


def test_pages_are_written_and_a_missing_plot_is_named(chapter: Chapter) -> None:
    html, text = write_pages(chapter.folder / "out", "A report", [chapter])
    assert (html.name, text.name) == ("report.html", "report.md")
    assert "A report" in html.read_text(encoding="utf-8")
    assert "../curve.svg" in text.read_text(encoding="utf-8")
    (chapter.folder / "curve.svg").unlink()
    with pytest.raises(BadInput, match=r"curve\.svg .*run the evaluation again"):
        html_page("A report", [chapter])


def test_a_terminal_shows_captions_above_aligned_tables() -> None:
    assert terminal([TABLE, TABLE]).count("Scores\nsystem") == 2
