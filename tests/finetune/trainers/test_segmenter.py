"""A segmenter trained from a small encoder divides sessions, and an interrupted training resumes."""

import json
from itertools import count, cycle
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import finetune.trainers.segmenter as segmenter_training
from finetune.trainers.segmenter import SegmenterRecipe, train
from finetune.trainers.training import CHECKPOINTS, TrainingJob
from localmem.classification.pair_classifier import PairModel
from localmem.cli.finetune import finetune
from localmem.errors import BadInput, ModelMissing
from localmem.evaluation.datasets.segmented_dialogues import read_segmented_dialogues
from localmem.segmentation.texttiling import BoundarySegmenter
from localmem.types import Session
from localmem.weights import Manifest
from tests.fakes import session
from tests.finetune.small import small_encoder

CATS = "user: anyway my cat sleeps all day[NEWLINE]agent: the cat purrs[NEWLINE]user: a cat wants food"
CARS = "user: anyway the car broke down[NEWLINE]agent: a car is dear[NEWLINE]user: my car is red"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("base"), f"{CATS} {CARS}".replace("[NEWLINE]", " ").split())


def dialogues(folder: Path, number: int = 24) -> Path:
    """Cats and cars alternate; every change of topic is announced."""
    path = folder / "dialogues.jsonl"
    lines = [
        {"id": f"d{at}", "dialogue": "[NEWLINE][BOUNDARY][NEWLINE]".join(parts)}
        for at, parts in zip(range(number), cycle([[CATS, CARS], [CARS, CATS, CARS], [CARS, CATS]]))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def job(
    base: Path, folder: Path, name: str = "run", *, resume: bool = False, **fields: object
) -> TrainingJob[SegmenterRecipe]:
    settings: dict[str, object] = {
        "base": str(base),
        "train": [dialogues(folder)],
        "before": 1,
        "after": 1,
        "epochs": 6,
        "batch_size": 8,
        "learning_rate": 5e-3,
        "patience": 6,
    }
    recipe = SegmenterRecipe.model_validate(settings | fields)
    return TrainingJob(recipe, folder / name, resume=resume, notify=lambda _: None)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(str(folder / "model.safetensors"))


def test_the_trained_model_divides_sessions(base: Path, tmp_path: Path) -> None:
    training = job(base, tmp_path)
    result = train(training)
    assert result.measures["score"] > 0.9
    segmenter = BoundarySegmenter(PairModel(training.out, device="cpu"))
    dialogue = read_segmented_dialogues(dialogues(tmp_path))[:3]
    segments = segmenter.segment([dialogue[0].session, session("hello", name="b"), Session("c"), dialogue[1].session])
    assert segments == [list(dialogue[0].segments), [range(1)], [], list(dialogue[1].segments)]
    report = json.loads((training.out / "run.json").read_text(encoding="utf-8"))
    assert report["settings"]["threshold"] == result.measures["threshold"]
    assert len(report["data"]["dialogues.jsonl"]) == 64
    assert (training.out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "| score |" in (training.out / "README.md").read_text(encoding="utf-8")
    assert not (training.out / CHECKPOINTS).exists()


def test_a_resumed_run_ends_with_the_same_weights(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(job(base, tmp_path, "complete"))
    calls, measure = count(), segmenter_training._measure

    def interrupt(*arguments: object) -> dict[str, float]:
        if next(calls) == 2:  # two epochs are saved, the third is lost
            raise KeyboardInterrupt
        return measure(*arguments)  # type: ignore[arg-type]  # passed on unchanged

    with monkeypatch.context() as patch:
        patch.setattr(segmenter_training, "_measure", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(job(base, tmp_path, "resumed"))
    with pytest.raises(BadInput, match="--resume"):
        train(job(base, tmp_path, "resumed"))
    train(job(base, tmp_path, "resumed", resume=True))
    complete, resumed = weights(tmp_path / "complete"), weights(tmp_path / "resumed")
    assert complete.keys() == resumed.keys()
    assert all(torch.equal(complete[name], resumed[name]) for name in complete)


def test_mistakes_are_reported_before_the_first_step(base: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be loaded as an encoder"):
        train(job(tmp_path, tmp_path))
    plain = tmp_path / "plain.jsonl"
    plain.write_text(json.dumps({"id": "a", "dialogue": CATS}) + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match="no boundary in the"):
        train(job(base, tmp_path, train=[plain], valid=[plain]))
    with pytest.raises(BadInput, match="no training dialogues; add --train FILE"):
        train(job(base, tmp_path, train=[]))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ModelMissing, match="localmem finetune"):
        PairModel(tmp_path / "nothing").probabilities([("a", "b")])
    with pytest.raises(BadInput, match="labels are"):
        BoundarySegmenter(PairModel(base, device="cpu")).segment([session("a", "b", "c", "d")])


def test_the_command_registers_what_it_trained(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    words = ["segmenter", "--base", base, "--train", dialogues(tmp_path), "--out", tmp_path / "out", "--epochs", "1"]
    result = CliRunner().invoke(finetune, [*map(str, words), "--name", "cutter", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["name"] == "cutter"
    assert Manifest.load(tmp_path / "models").models["cutter"].role == "classifier"
