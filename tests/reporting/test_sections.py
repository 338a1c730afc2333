"""Sections: cells as text, columns of later rows, and what is saved comes back."""

import json
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.reporting.sections import REPORT, SECTION, BrowsableAnswer, Section, Table, read_section, save_report

TABLE = Table.of("Figures", [{"system": "none", "score": 0.5}, {"system": "rsum", "score": 1, "extra": "yes"}])
ANSWER = BrowsableAnswer("none", "sample", "single", "What flew?", "a kite", "a bird", "", "F1 0.00")
SECTION_ = Section("Run", ("a note",), (TABLE,), ("plot.png",), (ANSWER,))


def test_a_table_collects_the_columns_of_all_rows() -> None:
    assert TABLE.head == ("system", "score", "extra")
    assert TABLE.rows == (("none", "0.500", ""), ("rsum", "1", "yes"))


def test_a_saved_section_comes_back(tmp_path: Path) -> None:
    save_report(tmp_path / "new", SECTION_, {"score": 0.5})
    assert read_section(tmp_path / "new") == SECTION_
    assert json.loads((tmp_path / "new" / REPORT).read_text(encoding="utf-8")) == {"score": 0.5}


def test_a_folder_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="give the --out of an evaluation"):
        read_section(tmp_path)
    (tmp_path / SECTION).write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="title: Field required"):
        read_section(tmp_path)
    with pytest.raises(BadInput, match="choose another --out"):
        save_report(tmp_path / SECTION, SECTION_, {})
