"""The selector's training: what people's labels say is learned, and measured on authors who were left out."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from finetune.trainers.statements import StatementRecipe, train
from finetune.trainers.training import TrainingJob
from localmem.cli.finetune import finetune
from localmem.errors import BadInput
from localmem.summaries.statements import StatementModel
from tests.finetune.small import small_encoder

TOLD, TALK = "My dog is ill.", "Nice weather today."


def people(folder: Path) -> None:
    """Four people by two authors, who all say the same; one of each is asked about the dog."""
    for name in ("a-1", "a-2", "b-1", "b-2"):
        probe = {"type": "single-fact", "question": "Who?", "must_contain": ["dog"], "evidence": [[0, 0]]}
        turns = [{"role": "user", "content": f"{TOLD} {TALK}"}, {"role": "assistant", "content": "Oh."}]
        document = {"sessions": [{"started_at": "2026-05-01T10:00", "turns": turns}], "probes": [probe]}
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture
def recipe(tmp_path: Path) -> StatementRecipe:
    data = tmp_path / "people"
    data.mkdir()
    people(data)
    labels = tmp_path / "labels.txt"
    labels.write_text(f"# comment\n+ a-1 {TOLD}\n- a-1 {TALK}\n+ b-1 {TOLD}\n- b-1 {TALK}\n", encoding="utf-8")
    base = small_encoder(tmp_path / "base", f"{TOLD} {TALK}".replace(".", "").split())
    return StatementRecipe(base=str(base), data=data, labels=labels, hold_out=("b",), keep=0.5)


def test_what_people_mark_is_kept(recipe: StatementRecipe, tmp_path: Path) -> None:
    result = train(TrainingJob(recipe, tmp_path / "run", notify=lambda _: None))
    assert result.measures == {"precision": 1.0, "recall": 1.0, "asked_for": 1.0, "share": 0.5}
    assert StatementModel.load(tmp_path / "run").base == recipe.base
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["labelled"] == 4
    assert "authors b" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_authors_without_labels_are_reported(recipe: StatementRecipe, tmp_path: Path) -> None:
    other = recipe.model_copy(update={"hold_out": ("z",)})
    with pytest.raises(BadInput, match="no labelled sentence is by z"):
        train(TrainingJob(other, tmp_path / "run", notify=lambda _: None))


def test_the_command_trains(recipe: StatementRecipe, tmp_path: Path) -> None:
    options = ["--base", recipe.base, "--people", str(recipe.data), "--labels", str(recipe.labels)]
    more = ["--set", "hold_out=b", "--set", "keep=0.5", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(finetune, ["statements", *options, *more])
    assert result.exit_code == 0, result.output
    assert re.search(r"^precision +1\.0000$", result.output, re.MULTILINE)
