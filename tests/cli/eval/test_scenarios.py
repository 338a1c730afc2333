"""`localmem eval scenarios` from outside."""

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.evaluation.fixtures import write_scenarios


def test_people_are_measured_and_reported(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    folder, out = write_scenarios(tmp_path, a_1={}, b_1={}), tmp_path / "out"
    arguments = ["eval", "scenarios", folder, "--system", "exchange_retrieval", "--author", "a"]
    result = localmem(*arguments, "--system", "none", "--out", out, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert {run["system"]: run["people"] for run in report["runs"]} == {"exchange_retrieval": 1, "none": 1}
    assert report == json.loads((out / "report.json").read_text())
    assert localmem("eval", "report", out).returncode == 0
    table = localmem(*arguments, "--system", "none", "--out", out, "--resume")
    assert "Evidence found and shown" in table.stdout


def test_a_mistake_is_one_line(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    folder = write_scenarios(tmp_path, a_1={})
    for arguments, message in {
        ("--author", "c"): "no person of the author 'c'; it has a",
        ("--system", "evidense"): "unknown system",
        ("--set", "asked_again=-1"): "asked_again",
    }.items():
        result = localmem("eval", "scenarios", folder, *arguments)
        assert result.returncode == 2
        assert message in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
    assert "needs --out" in localmem("eval", "scenarios", folder, "--resume").stderr
