"""Sections: cells as text, columns of later rows, and what is saved comes back."""

import json
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.reporting.sections import REPORT, SECTION, Report, Section, Table, read_section

TABLE = Table.of("Figures", [{"system": "none", "score": 0.5}, {"system": "rsum", "score": 1, "extra": "yes"}])
REPORT_ = Report({"score": 0.5}, (TABLE,), ("a note",))


def test_a_table_collects_the_columns_of_all_rows() -> None:
    assert TABLE.head == ("system", "score", "extra")
    assert TABLE.rows == (("none", "0.500", ""), ("rsum", "1", "yes"))


def test_a_saved_section_comes_back(tmp_path: Path) -> None:
    REPORT_.save(tmp_path / "new", "Run", ("plot.png",))
    assert read_section(tmp_path / "new") == Section("Run", ("a note",), (TABLE,), ("plot.png",))
    assert json.loads((tmp_path / "new" / REPORT).read_text(encoding="utf-8")) == {"score": 0.5}


def test_a_folder_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="give the --out of an evaluation"):
        read_section(tmp_path)
    (tmp_path / SECTION).write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="title: Field required"):
        read_section(tmp_path)
    with pytest.raises(BadInput, match="choose another --out"):
        REPORT_.save(tmp_path / SECTION, "Run")
