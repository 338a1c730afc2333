"""A classifier stored without what it shares with its encoder answers as the whole one does."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from finetune.trainers.pair_trainers import StoredPart, freeze_layers
from localmem.classification.pair_classifier import PairModel
from localmem.errors import BadSettings, ModelDamaged
from localmem.retrieval.encoder_part import NOTES, WEIGHTS, part_notes
from tests.finetune.small import small_encoder

PAIRS = [("a cat", "a dog"), ("a dog sleeps", "the cat")]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return small_encoder(tmp_path / "base", ["a", "cat", "dog", "the", "sleeps"], layers=2)


def store(base: Path, folder: Path) -> torch.nn.Module:
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(str(base), num_labels=3)
    freeze_layers(model, 1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) * 0.05)
    setattr(model.config, NOTES, part_notes(str(base)))
    StoredPart(model).save_pretrained(str(folder))
    return model.eval()


def test_a_part_answers_as_the_whole_and_leaves_the_encoder_out(base: Path, tmp_path: Path) -> None:
    model = store(base, tmp_path / "part")
    first, second = map(list, zip(*PAIRS, strict=True))
    batch = AutoTokenizer.from_pretrained(str(base))(first, second, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**batch).logits.softmax(-1).numpy()
    assert PairModel(tmp_path / "part", device="cpu").probabilities(PAIRS) == pytest.approx(expected, abs=0.02)
    assert {path.name for path in (tmp_path / "part").iterdir()} == {WEIGHTS, "config.json"}


def test_another_encoder_and_a_damaged_file_are_reported(base: Path, tmp_path: Path) -> None:
    store(base, tmp_path / "part")
    (tmp_path / "part" / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(ModelDamaged, match="install it again"):
        PairModel(tmp_path / "part", device="cpu").probabilities(PAIRS)
    small_encoder(base, ["other", "words"], layers=2)
    with pytest.raises(BadSettings, match="other weights"):
        PairModel(tmp_path / "part", device="cpu").probabilities(PAIRS)
