"""`localmem eval rate report`: the table of a file of ratings."""

import csv
import json
from pathlib import Path

from click.testing import CliRunner

from localmem.cli.eval.rate import RATINGS, rate
from localmem.evaluation.ratings import STATEMENTS, Rating, append_rating


def test_the_report_has_a_row_for_each_system_and_each_of_its_sessions(tmp_path: Path) -> None:
    for session in (1, 2):
        for system, score in (("rsum", 80), ("none", 20)):
            scores = dict.fromkeys(STATEMENTS, float(score))
            append_rating(tmp_path / RATINGS, Rating("ann", f"e-{system}", system, session, scores))
    result = CliRunner().invoke(rate, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "rsum" in result.output
    tables = json.loads(CliRunner().invoke(rate, ["report", str(tmp_path), "--json"]).output)
    assert [row["system"] for row in tables["systems"]] == ["none", "rsum"]
    assert len(tables["sessions"]) == 4
    rows = list(csv.DictReader(CliRunner().invoke(rate, ["report", str(tmp_path), "--csv"]).output.splitlines()))
    assert [(row["system"], row["session"], row["humanness"]) for row in rows[:2]] == [
        ("rsum", "1", "80.0"),
        ("none", "1", "20.0"),
    ]
    assert [float(row["humanness_standardized"]) for row in rows] == [1, -1, 1, -1]
