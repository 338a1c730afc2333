"""`localmem eval segmentation`, with a scripted backbone."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localmem import factory
from localmem.cli.eval import eval_
from localmem.errors import BadInput
from localmem.llm.scripted import ScriptedLLM
from localmem.segmentation.segmenters import Rubric
from tests.fakes import obedient


@pytest.fixture
def dialogues(tmp_path: Path) -> Path:
    text = "user: a[NEWLINE]agent: b[NEWLINE][BOUNDARY][NEWLINE]user: c[NEWLINE]agent: d"
    path = tmp_path / "dialogues.jsonl"
    path.write_text("".join(json.dumps({"id": f"d{n}", "dialogue": text}) + "\n" for n in range(4)), encoding="utf-8")
    return path


def invoke(dialogues: Path, *options: str) -> Result:
    return CliRunner().invoke(eval_, ["segmentation", "--dialogues", str(dialogues), *options], catch_exceptions=False)


def test_a_rubric_is_learned_and_used(dialogues: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = factory.Backbone(ScriptedLLM(obedient), lambda: None)
    monkeypatch.setattr(factory, "backbone", lambda *_: backbone)
    path = dialogues.with_name("rubric.yaml")
    report = json.loads(invoke(dialogues, "--limit", "3", "--learn-rubric", str(path), "--json").stdout)
    assert report["dialogues"] == 3
    (row,) = report["segmenters"]
    assert 0 <= row["window_diff"] <= 1
    assert row["fallbacks"] == 0
    assert list(Rubric.load(path).items) == report["items"]
    assert "window_diff" in invoke(dialogues, "--set", f"rubric={path}").stdout


def test_segmenters_are_compared_in_one_table(dialogues: Path, tmp_path: Path) -> None:
    names = ("--segmenter", "even", "--segmenter", "random")
    options = ("--set", "chunk=2", "--set", "skip=1", "--out", str(tmp_path / "out"))
    report = json.loads(invoke(dialogues, *names, *options, "--json").stdout)
    assert report == json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["dialogues"] == 3
    even, random = report["segmenters"]
    assert (even["segmenter"], even["f1"], even["p_k"], even["score"]) == ("even", 1.0, 0.0, 1.0)
    assert (random["segmenter"], random["score"] < 1) == ("random", True)


def test_what_cannot_be_compared_is_refused(dialogues: Path) -> None:
    with pytest.raises(BadInput, match="no dialogue after the first 9"):
        invoke(dialogues, "--set", "skip=9")
    with pytest.raises(BadInput, match="use segmenter llm"):
        invoke(dialogues, "--segmenter", "even", "--learn-rubric", "rubric.yaml")
