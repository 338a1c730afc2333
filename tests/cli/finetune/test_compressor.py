"""`localmem finetune compressor` from the command line: labels of the files or of a model, a registered compressor."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.cli.finetune import finetune
from localmem.config import Settings
from localmem.factory.parts import Backbone
from localmem.factory.parts import compressor as build_compressor
from localmem.llm.scripted import ScriptedLLM
from localmem.weights import Manifest
from tests.evaluation.fixtures import written
from tests.finetune.small import small_encoder

ROWS = [{"dialogue": f"well {name} moved so", "summary": f"{name} moved"} for name in ("ana", "ben") * 5]


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All but where the texts are; models stand in a folder of their own."""
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    base = small_encoder(tmp_path / "base", ["well", "ana", "ben", "moved", "so"])
    return ["compressor", "--base", str(base), "--out", str(tmp_path / "out"), "--epochs", "1", "--name", "shortener"]


def test_the_command_registers_a_compressor(arguments: list[str], tmp_path: Path) -> None:
    path = written(tmp_path, ROWS, "texts.jsonl", lines=True)
    result = CliRunner().invoke(finetune, [*arguments, "--train", str(path), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["measures"]) >= {"auc", "f1", "random_f1", "rate"}
    assert Manifest.load(tmp_path / "models").models["shortener"].role == "compressor"
    assert build_compressor("shortener", "cpu").compress(["well ana moved so"], 1.0) == ["well ana moved so"]


def test_a_local_model_makes_the_labels(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def backbone(settings: Settings, progress: object) -> Backbone:
        asked.append(settings.model)
        return Backbone(ScriptedLLM(lambda _: "ana moved"), lambda: asked.append("closed"))

    monkeypatch.setattr("localmem.factory.backbone", backbone)
    texts = [{"text": f"{words} ana moved so"} for words in ("well", "so", "so well", "ben", "well ben")]
    path = written(tmp_path, texts, "bare.jsonl", lines=True)
    given = [*arguments, "--train", str(path), "--label-with", "smollm2-135m-instruct"]
    result = CliRunner().invoke(finetune, given, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "labelled 5 of 5 parts" in result.stderr
    assert asked == ["smollm2-135m-instruct", "closed"]
    held = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    assert held["settings"]["labelled_by"] == "smollm2-135m-instruct"
    assert len((tmp_path / "out" / "labels.jsonl").read_text(encoding="utf-8").splitlines()) == 5
