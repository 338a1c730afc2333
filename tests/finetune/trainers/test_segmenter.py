"""A segmenter is trained from a small encoder made on the spot, goes on after an interrupt, and cuts sessions."""

import json
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import finetune.trainers.segmenter as segmenter_training
from finetune.trainers.segmenter import Job, train
from finetune.trainers.training import CHECKPOINTS, Plan
from localmem.classification.pair_classifier import PairModel
from localmem.cli.finetune import finetune
from localmem.errors import BadInput, ModelMissing
from localmem.evaluation.datasets.segmented_dialogues import read_segmented_dialogues
from localmem.segmentation.boundary_classifier import BoundarySegmenter, Gaps
from localmem.types import Session
from localmem.weights import Manifest
from tests.fakes import session
from tests.finetune.small import small_encoder

CATS = "user: anyway my cat sleeps all day[NEWLINE]agent: the cat purrs[NEWLINE]user: a cat wants food"
CARS = "user: anyway the car broke down[NEWLINE]agent: a car is dear[NEWLINE]user: my car is red"
PLAN = Plan(epochs=6, batch=8, learning_rate=5e-3, patience=6)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("base"), f"{CATS} {CARS}".replace("[NEWLINE]", " ").split())


def dialogues(folder: Path, number: int = 24) -> Path:
    """Cats and cars one after the other; whoever turns to another topic says so."""
    path = folder / "dialogues.jsonl"
    lines = [
        {"id": f"d{at}", "dialogue": "[NEWLINE][BOUNDARY][NEWLINE]".join(parts)}
        for at, parts in zip(range(number), cycle([[CATS, CARS], [CARS, CATS, CARS], [CARS, CATS]]))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def job(base: Path, folder: Path, name: str = "run") -> Job:
    return Job(base, [dialogues(folder)], (), folder / name, PLAN, gaps=Gaps(before=1, after=1))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(str(folder / "model.safetensors"))


def test_what_was_learned_cuts_sessions(base: Path, tmp_path: Path) -> None:
    asked = job(base, tmp_path)
    trained = train(asked, note=lambda _: None)
    assert trained.measures["score"] > 0.9
    segmenter = BoundarySegmenter(PairModel(asked.out, device="cpu"))
    marked = read_segmented_dialogues(dialogues(tmp_path))[:3]
    found = segmenter.segment([marked[0].session, session("hello", name="b"), Session("c"), marked[1].session])
    assert found == [list(marked[0].segments), [range(1)], [], list(marked[1].segments)]
    report = json.loads((asked.out / "run.json").read_text(encoding="utf-8"))
    assert report["settings"]["threshold"] == trained.measures["threshold"]
    assert len(report["data"]["dialogues.jsonl"]) == 64
    assert (asked.out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "| score |" in (asked.out / "README.md").read_text(encoding="utf-8")
    assert not (asked.out / CHECKPOINTS).exists()


def test_an_interrupted_run_goes_on_to_the_same_weights(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = job(base, tmp_path, "whole"), job(base, tmp_path, "broken")
    train(whole, note=lambda _: None)
    calls, measured = count(), segmenter_training._measures

    def interrupted(*given: object) -> dict[str, float]:
        if next(calls) == 2:  # two epochs are saved, the third is lost
            raise KeyboardInterrupt
        return measured(*given)  # type: ignore[arg-type]  # passed on as it came

    with monkeypatch.context() as patch:
        patch.setattr(segmenter_training, "_measures", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(broken, note=lambda _: None)
    with pytest.raises(BadInput, match="--resume"):
        train(broken, note=lambda _: None)
    train(broken, resume=True, note=lambda _: None)
    ours, theirs = weights(whole.out), weights(broken.out)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_mistakes_are_told_before_the_first_step(base: Path, tmp_path: Path) -> None:
    asked = job(base, tmp_path)
    with pytest.raises(BadInput, match="no encoder to start from"):
        train(replace(asked, base=tmp_path), note=lambda _: None)
    plain = tmp_path / "plain.jsonl"
    plain.write_text(json.dumps({"id": "a", "dialogue": CATS}) + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match="hold no boundary"):
        train(replace(asked, train=[plain], valid=[plain]), note=lambda _: None)
    assert not asked.out.exists()
    with pytest.raises(ModelMissing, match="localmem finetune"):
        PairModel(tmp_path / "nothing").probabilities([("a", "b")])
    with pytest.raises(BadInput, match="labels are"):
        BoundarySegmenter(PairModel(base, device="cpu")).segment([session("a", "b", "c", "d")])


def test_the_command_registers_what_it_trained(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    arguments = [
        "segmenter",
        "--base",
        base,
        "--train",
        dialogues(tmp_path),
        "--out",
        tmp_path / "out",
        "--epochs",
        "1",
    ]
    result = CliRunner().invoke(finetune, [*map(str, arguments), "--name", "cutter", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["name"] == "cutter"
    assert Manifest.load(tmp_path / "models").models["cutter"].role == "classifier"
