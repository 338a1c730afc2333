"""A compressor is trained from a small encoder made on the spot, goes on after an interrupt, and shortens texts."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import finetune.trainers.compressor as compressor_training
from finetune.compression_labels import Shortened
from finetune.trainers.compressor import Job, train
from finetune.trainers.training import CHECKPOINTS, Plan
from localmem.errors import BadInput
from localmem.factory.parts import compressor as build_compressor
from tests.evaluation.fixtures import written
from tests.finetune.small import small_encoder

NAMES, FILLER = ("ana", "ben", "cleo", "dora"), ("well", "you", "know", "so")
PLAN = Plan(epochs=5, batch=8, learning_rate=5e-3, patience=5)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("base"), [*NAMES, *FILLER, "moved", "to", "."])


def texts(folder: Path) -> Path:
    """Names and moves are told, filler is not."""
    rows = [
        {
            "dialogue": f"{FILLER[n % 4]} {NAMES[n % 4]} {FILLER[(n + 1) % 4]} moved to {NAMES[n // 4 % 4]} you.",
            "summary": f"{NAMES[n % 4]} moved to {NAMES[n // 4 % 4]}",
        }
        for n in range(40)
    ]
    return written(folder, rows, "texts.jsonl", lines=True)


def job(base: Path, folder: Path, name: str = "run") -> Job:
    return Job(base, [texts(folder)], (), folder / name, PLAN)


def test_what_was_learned_shortens_texts(base: Path, tmp_path: Path) -> None:
    asked = job(base, tmp_path)
    trained = train(asked, note=lambda _: None)
    assert trained.measures["auc"] > 0.95
    assert trained.measures["f1"] > trained.measures["random_f1"] + 0.2
    assert trained.measures["random_f1"] == pytest.approx(trained.measures["rate"], abs=0.1)
    shortener = build_compressor(str(asked.out), "cpu")
    assert shortener.compress(["so cleo know moved to ben well .", ""], 0.5) == ["cleo moved to ben", ""]
    report = json.loads((asked.out / "run.json").read_text(encoding="utf-8"))
    assert (report["texts"], report["held_out"]) == (32, 8)
    assert report["left_out"] == {"no word in common": 0, "variation": 0, "gap": 0}
    assert (asked.out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "| auc |" in (asked.out / "README.md").read_text(encoding="utf-8")
    assert not (asked.out / CHECKPOINTS).exists()


def test_an_interrupted_run_goes_on_to_the_same_weights(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = (replace(job(base, tmp_path, name), plan=replace(PLAN, epochs=4)) for name in ("whole", "broken"))
    train(whole, note=lambda _: None)
    calls, measured = count(), compressor_training._measures

    def interrupted(*given: object) -> dict[str, float]:
        if next(calls) == 2:  # two epochs are saved, the third is lost
            raise KeyboardInterrupt
        return measured(*given)  # type: ignore[arg-type]  # passed on as it came

    with monkeypatch.context() as patch:
        patch.setattr(compressor_training, "_measures", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(broken, note=lambda _: None)
    with pytest.raises(BadInput, match="--resume"):
        train(broken, note=lambda _: None)
    train(broken, resume=True, note=lambda _: None)
    ours, theirs = (load_file(str(one.out / "model.safetensors")) for one in (whole, broken))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_measures_keep_as_many_tokens_as_the_labels() -> None:
    labels = np.array([[-100, 1, 0, 1, -100], [-100, 0, 0, 1, -100]])
    keep = np.array([[9.0, 3.0, 2.0, 1.0, 9.0], [9.0, 1.0, 2.0, 3.0, 9.0]], dtype=np.float32)
    logits = np.stack([np.zeros_like(keep), keep], axis=2)
    found = compressor_training._measures(logits, labels, 0)
    assert found["f1"] == pytest.approx(2 / 3)  # of the first row one of two, of the second the one
    assert found["auc"] == pytest.approx(6.5 / 9)  # of nine pairs six are right and one is even
    assert found["rate"] == 0.5
    assert 0.25 < found["random_f1"] < 0.75


def test_labels_may_come_from_a_model(base: Path, tmp_path: Path) -> None:
    asked = job(base, tmp_path)
    short = [Shortened("well ana moved .", "ana moved")] * 10 + [Shortened("so you know .", "nothing")]
    path = written(tmp_path, [{"text": "any"}], "bare.jsonl", lines=True)
    labelled = replace(
        asked, train=[path], extract=lambda _: short, labeller="m", plan=replace(PLAN, epochs=1), licence="mine"
    )
    train(labelled, note=lambda _: None)
    report = json.loads((asked.out / "run.json").read_text(encoding="utf-8"))
    assert report["settings"]["labelled_by"] == "m"
    assert report["left_out"]["no word in common"] == 1
    assert "Licence: mine." in (asked.out / "README.md").read_text(encoding="utf-8")


def test_mistakes_are_told_before_the_first_step(base: Path, tmp_path: Path) -> None:
    asked = job(base, tmp_path)
    with pytest.raises(BadInput, match="no encoder to start from"):
        train(replace(asked, base=tmp_path), note=lambda _: None)
    nothing = written(tmp_path, [{"text": "well so", "kept": "you"}] * 10, "nothing.jsonl", lines=True)
    with pytest.raises(BadInput, match="no word of the training texts"):
        train(replace(asked, train=[nothing]), note=lambda _: None)
    everything = written(tmp_path, [{"text": "ana moved", "kept": "ana moved"}] * 10, "all.jsonl", lines=True)
    with pytest.raises(BadInput, match="training texts is labelled drop"):
        train(replace(asked, train=[everything]), note=lambda _: None)
    with pytest.raises(BadInput, match="validation texts is labelled drop"):
        train(replace(asked, valid=[everything]), note=lambda _: None)
    assert not asked.out.exists()
