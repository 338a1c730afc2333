"""BERTScore against the library called directly, and where it can be worked out."""

from pathlib import Path

import bert_score
import pytest

from localmem.errors import BadInput, ModelMissing
from localmem.evaluation.metrics.model_based import BertScore

TEXTS = ["Ana lives in Porto.", "", "The dog is tired of running."]
GOLDS = ["Ana moved to Porto.", "Something.", "The dog is tired of running."]


def test_bert_score_is_the_library_s(starter_encoder_dir: Path) -> None:
    ours = BertScore(starter_encoder_dir, device="cpu")
    assert ours.layers == 6
    scores = ours.score(TEXTS, GOLDS)
    assert scores[2] == pytest.approx((1.0, 1.0, 1.0), abs=1e-5)  # each word is nearest to itself
    assert scores[1] == (0.0, 0.0, 0.0)
    theirs = bert_score.score(
        TEXTS[::2], GOLDS[::2], model_type=str(starter_encoder_dir), num_layers=6, device="cpu", verbose=False
    )
    for name, column in zip(("precision", "recall", "f1"), theirs, strict=True):
        assert [getattr(score, name) for score in scores[::2]] == pytest.approx(column.tolist(), abs=1e-6)
    assert scores[0].f1 < 0.99


def test_which_layer_is_taken_matters_and_must_be_there(starter_encoder_dir: Path) -> None:
    third = BertScore(starter_encoder_dir, layers=3, device="cpu").score(TEXTS[:1], GOLDS[:1])
    last = BertScore(starter_encoder_dir, device="cpu").score(TEXTS[:1], GOLDS[:1])
    assert third != last
    with pytest.raises(BadInput, match="no layer 7; give 1 to 6"):
        BertScore(starter_encoder_dir, layers=7, device="cpu")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="there is no encoder in"):
        BertScore(tmp_path, device="cpu")
