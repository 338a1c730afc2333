"""`localmem eval table`, with a scripted backbone: runs, table and prompts, and a table that is continued."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localmem import factory
from localmem.cli.eval import eval_
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Prompt
from tests.cli.eval.test_run import write_log


def script(prompt: Prompt) -> str:
    return "correct" if prompt.name == "judge/correct" else "Lisbon."


@pytest.fixture(autouse=True)
def backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = ScriptedLLM(script, name="scripted")
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(llm, lambda: None))


def make_table(folder: Path, *backbones: str) -> Result:
    plan = folder / "plan.yaml"
    plan.write_text(
        f"backbones: [{', '.join(backbones)}]\njudge: large\ndatasets: {{jsonl: {write_log(folder).name}}}\n"
        "systems: [none, rsum]\nstream: true\n"
    )
    arguments = ["table", "--recipe", plan, "--sources", folder, "--out", folder / "out", "--json"]
    return CliRunner().invoke(eval_, [*map(str, arguments)], catch_exceptions=False)


def test_every_backbone_has_a_row_for_each_system(tmp_path: Path) -> None:
    rows = json.loads(make_table(tmp_path, "small", "medium").stdout)["rows"]
    systems = ["full_history", "none", "rsum", "utterance_retrieval/bm25"]
    assert [(row["backbone"], row["system"]) for row in rows] == [
        (backbone, system) for backbone in ("small", "medium") for system in systems
    ]
    assert {row["correct†"] for row in rows} == {"1.00"}  # a judge that accepts everything is not believable
    assert all(row["first token, s"] for row in rows)
    out = tmp_path / "out"
    assert "Answer in one short sentence" in (out / "prompts.md").read_text()
    assert "rsum" in (out / "report.html").read_text()
    before = (out / "small" / "answers.jsonl").read_bytes()
    assert len(json.loads(make_table(tmp_path, "small", "medium", "large").stdout)["rows"]) == 12
    assert (out / "small" / "answers.jsonl").read_bytes() == before


def test_a_backbone_behind_a_url_is_called_by_its_whole_name(tmp_path: Path) -> None:
    rows = json.loads(make_table(tmp_path, "acme/small").stdout)["rows"]
    assert {row["backbone"] for row in rows} == {"acme/small"}
