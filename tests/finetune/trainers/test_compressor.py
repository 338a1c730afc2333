"""A compressor trained from a small encoder shortens texts, and an interrupted training resumes."""

import json
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import finetune.trainers.compressor as compressor_training
from finetune.trainers.compressor import CompressionPair, CompressorRecipe, train
from finetune.trainers.training import CHECKPOINTS, TrainingJob
from localmem.errors import BadInput
from localmem.factory import compressor as build_compressor
from tests.evaluation.fixtures import write_records
from tests.finetune.small import small_encoder

NAMES, FILLER = ("ana", "ben", "cleo", "dora"), ("well", "you", "know", "so")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("base"), [*NAMES, *FILLER, "moved", "to", "."])


def texts(folder: Path) -> Path:
    """Summaries hold names and moves, and no filler."""
    rows = [
        {
            "dialogue": f"{FILLER[n % 4]} {NAMES[n % 4]} {FILLER[(n + 1) % 4]} moved to {NAMES[n // 4 % 4]} you.",
            "summary": f"{NAMES[n % 4]} moved to {NAMES[n // 4 % 4]}",
        }
        for n in range(40)
    ]
    return write_records(folder, rows, "texts.jsonl", lines=True)


def job(
    base: Path, folder: Path, name: str = "run", *, resume: bool = False, **fields: object
) -> TrainingJob[CompressorRecipe]:
    settings: dict[str, object] = {
        "base": str(base),
        "train": [texts(folder)],
        "epochs": 5,
        "batch_size": 8,
        "learning_rate": 5e-3,
        "patience": 5,
    }
    recipe = CompressorRecipe.model_validate(settings | fields)
    return TrainingJob(recipe, folder / name, resume=resume, notify=lambda _: None)


def test_the_trained_model_shortens_texts(base: Path, tmp_path: Path) -> None:
    training = job(base, tmp_path)
    result = train(training)
    assert result.measures["auc"] > 0.95
    assert result.measures["f1"] > result.measures["random_f1"] + 0.2
    assert result.measures["random_f1"] == pytest.approx(result.measures["rate"], abs=0.1)
    shortener = build_compressor(str(training.out), "cpu")
    assert shortener.compress(["so cleo know moved to ben well .", ""], 0.5) == ["cleo moved to ben", ""]
    report = json.loads((training.out / "run.json").read_text(encoding="utf-8"))
    assert (report["texts"], report["held_out"]) == (32, 8)
    assert report["dropped"] == {"no word in common": 0, "variation": 0, "gap": 0}
    assert (training.out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "| auc |" in (training.out / "README.md").read_text(encoding="utf-8")
    assert not (training.out / CHECKPOINTS).exists()


def test_a_resumed_run_ends_with_the_same_weights(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(job(base, tmp_path, "complete", epochs=4))
    calls, measure = count(), compressor_training._measure

    def interrupt(*arguments: object) -> dict[str, float]:
        if next(calls) == 2:  # two epochs are saved, the third is lost
            raise KeyboardInterrupt
        return measure(*arguments)  # type: ignore[arg-type]  # passed on unchanged

    with monkeypatch.context() as patch:
        patch.setattr(compressor_training, "_measure", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(job(base, tmp_path, "resumed", epochs=4))
    with pytest.raises(BadInput, match="--resume"):
        train(job(base, tmp_path, "resumed", epochs=4))
    train(job(base, tmp_path, "resumed", epochs=4, resume=True))
    complete, resumed = (load_file(str(tmp_path / name / "model.safetensors")) for name in ("complete", "resumed"))
    assert complete.keys() == resumed.keys()
    assert all(torch.equal(complete[name], resumed[name]) for name in complete)


def test_the_measures_keep_as_many_tokens_as_the_labels() -> None:
    labels = np.array([[-100, 1, 0, 1, -100], [-100, 0, 0, 1, -100]])
    keep = np.array([[9.0, 3.0, 2.0, 1.0, 9.0], [9.0, 1.0, 2.0, 3.0, 9.0]], dtype=np.float32)
    logits = np.stack([np.zeros_like(keep), keep], axis=2)
    measures = compressor_training._measure(logits, labels, 0)
    assert measures["f1"] == pytest.approx(2 / 3)  # of the first row one of two, of the second the one
    assert measures["auc"] == pytest.approx(6.5 / 9)  # of nine pairs six are right and one is even
    assert measures["rate"] == 0.5
    assert 0.25 < measures["random_f1"] < 0.75


def test_labels_may_come_from_a_model(base: Path, tmp_path: Path) -> None:
    pairs = [CompressionPair("well ana moved .", "ana moved")] * 10 + [CompressionPair("so you know .", "nothing")]
    path = write_records(tmp_path, [{"text": "any"}], "bare.jsonl", lines=True)
    training = job(base, tmp_path, train=[path], label_with="m", epochs=1, licence="mine")
    train(training, lambda _: pairs)
    report = json.loads((training.out / "run.json").read_text(encoding="utf-8"))
    assert report["settings"]["label_with"] == "m"
    assert report["dropped"]["no word in common"] == 1
    assert "Licence: mine." in (training.out / "README.md").read_text(encoding="utf-8")


def test_mistakes_are_reported_before_the_first_step(base: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be loaded as an encoder"):
        train(job(tmp_path, tmp_path))
    nothing = write_records(tmp_path, [{"text": "well so", "kept": "you"}] * 10, "nothing.jsonl", lines=True)
    with pytest.raises(BadInput, match="no word of the training texts"):
        train(job(base, tmp_path, train=[nothing]))
    everything = write_records(tmp_path, [{"text": "ana moved", "kept": "ana moved"}] * 10, "all.jsonl", lines=True)
    with pytest.raises(BadInput, match="training texts is labelled drop"):
        train(job(base, tmp_path, train=[everything]))
    with pytest.raises(BadInput, match="validation texts is labelled drop"):
        train(job(base, tmp_path, valid=[everything]))
    assert not (tmp_path / "run").exists()


def test_a_compressor_stored_without_its_encoder_shortens_as_one_stored_whole(base: Path, tmp_path: Path) -> None:
    training = job(base, tmp_path, frozen_layers=0, epochs=20)
    assert train(training).measures["auc"] > 0.95
    assert not (training.out / "model.safetensors").exists()
    shortener = build_compressor(str(training.out), "cpu")
    assert shortener.compress(["so cleo know moved to ben well ."], 0.5) == ["cleo moved to ben"]


def test_of_people_the_words_that_they_are_asked_about_are_kept(tmp_path: Path) -> None:
    turns = ["My dog Rex bit me.", "Oh dear.", "It rains.", "It does."]
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns)]
    probe = {"type": "single-fact", "question": "Who bit you?", "answer": "my dogs", "evidence": [[0, 0]]}
    person = {"sessions": [{"started_at": "2026-05-01T10:00", "turns": messages}], "probes": [probe]}
    others = [{**person, "probes": [{**probe, "evidence": [[0, 2]], "question": f"Is it {n}?"}]} for n in range(10)]
    for number, each in enumerate([person, *others]):
        (tmp_path / f"a-{number}.json").write_text(json.dumps(each), encoding="utf-8")
    texts = compressor_training.read_people_texts(tmp_path, compressor_training.make_stemmer("english"))
    author, text = texts[0]
    assert (author, text.text) == ("a", "User: My dog Rex bit me.\nAssistant: Oh dear.")
    assert [text.text[start:end] for start, end in text.keep] == ["My", "dog", "bit"]
    assert len(texts) == 11
