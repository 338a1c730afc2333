"""`localmem bench latency` from a recipe to a report, over a scripted backbone."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.cli.bench import bench
from localmem.errors import BadInput, BadSettings

RECIPE = """
title: a small run
systems: [none, exchange_retrieval]
scripted: {first_token: 0.01, per_token: 0.001}
history: [1]
exchanges: 1
concurrency: [2]
requests: 4
turns: 2
answer: 4
warm_up: 0
ends: 1
settings: {retrieval: {retriever: bm25}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


def test_a_recipe_becomes_a_run_and_a_report(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = CliRunner().invoke(bench, ["latency", "--recipe", str(recipe), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "exchange_retrieval: 2 concurrent users: first token within" in result.stdout
    assert "none/c2/h1/warm (1 of 2)" in result.stderr
    assert {path.name for path in out.iterdir()} == {"result.json", "samples.jsonl"}
    report = CliRunner().invoke(bench, ["report", str(out)])
    assert report.exit_code == 0, report.output
    assert (out / "report.html").exists()


def test_a_finished_run_is_resumed_without_a_measurement(recipe: Path, tmp_path: Path) -> None:
    arguments = ["latency", "--recipe", str(recipe), "--system", "none", "--out", str(tmp_path / "run"), "--json"]
    first = CliRunner().invoke(bench, arguments)
    assert first.exit_code == 0, first.output
    assert [point["id"] for point in json.loads(first.stdout)["points"]] == ["none/c2/h1/warm"]
    assert isinstance(CliRunner().invoke(bench, arguments).exception, BadInput)
    second = CliRunner().invoke(bench, [*arguments, "--resume"])
    assert json.loads(second.stdout)["points"] == json.loads(first.stdout)["points"]


def test_an_unknown_system_is_refused_before_anything_is_measured(recipe: Path, tmp_path: Path) -> None:
    arguments = ["latency", "--recipe", str(recipe), "--system", "nothing", "--out", str(tmp_path / "run")]
    assert isinstance(CliRunner().invoke(bench, arguments).exception, BadSettings)
    assert not (tmp_path / "run").exists()


def test_a_run_needs_a_folder() -> None:
    result = CliRunner().invoke(bench, ["latency"])
    assert result.exit_code == 2
    assert "--out" in result.stderr
