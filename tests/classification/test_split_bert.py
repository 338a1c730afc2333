"""A BERT whose lower layers process texts separately: same results as in one pass, and each text runs once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from finetune.trainers.pair_trainers import make_learner
from localmem.classification import OPERATIONS
from localmem.classification.pair_classifier import PairModel
from localmem.classification.split_bert import SplitBert, SplitBertWeights
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import LabelledPair
from tests.finetune.small import small_encoder

MEMORIES = ("red kite", "blue boat on the green moon", "moon")
NEW = ("green kite flies", "red moon")
PAIRS = [(memory, new) for memory in MEMORIES for new in NEW]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SplitBertWeights:
    """Two layers, the lower of which processes texts separately; in float32."""
    folder = small_encoder(tmp_path_factory.mktemp("base"), " ".join([*MEMORIES, *NEW]).split(), layers=2)
    torch.manual_seed(0)
    learner = make_learner(str(folder), OPERATIONS, 32, [], split_layers=1)
    learner.model.save_pretrained(str(folder))
    weights = PairModel(folder, device="cpu")._load()
    assert isinstance(weights, SplitBertWeights)
    weights._model.float()
    with torch.no_grad():  # random weights are near zero and would make all rows alike
        for weight in weights._model.parameters():
            weight.mul_(4.0)
    return weights


def classify_in_one_pass(model: SplitBertWeights, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """The pairs in one padded pass, as in training."""
    first, second = map(list, zip(*pairs, strict=True))
    options = {"padding": True, "return_token_type_ids": True, "return_tensors": "pt"}
    encoded = model._tokenizer(first, second, **options)
    with torch.inference_mode():
        rows: np.ndarray = model._model(**encoded).logits.softmax(-1).numpy()
    return rows


def test_shared_states_give_the_same_as_one_pass(model: SplitBertWeights) -> None:
    together, single = model.classify(PAIRS, 4), [model.classify([pair], 4)[0] for pair in PAIRS]
    np.testing.assert_allclose(together, classify_in_one_pass(model, PAIRS), atol=1e-5)
    np.testing.assert_allclose(together, single, atol=1e-5)
    assert np.ptp(np.stack(together), axis=0).max() > 0.01


def test_the_layers_above_see_both_texts(model: SplitBertWeights) -> None:
    first, second = classify_in_one_pass(model, [("red kite", "moon"), ("red kite", "boat")])
    assert np.abs(first - second).max() > 1e-3


def test_each_text_is_processed_once(model: SplitBertWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    text_states = SplitBert.text_states

    def count_texts(self: SplitBert, ids: torch.Tensor, *arguments: torch.Tensor) -> torch.Tensor:
        batches.append(len(ids))
        return text_states(self, ids, *arguments)

    monkeypatch.setattr(SplitBert, "text_states", count_texts)
    model.classify(PAIRS, 16)
    assert sum(batches) == len(MEMORIES) + len(NEW)


def test_only_some_layers_of_a_bert_can_be_split(tmp_path: Path) -> None:
    folder = small_encoder(tmp_path, ["a"])
    with pytest.raises(BadInput, match="1 of 1 layers cannot"):
        make_learner(str(folder), OPERATIONS, 32, [], split_layers=1)
    with pytest.raises(BadInput, match="is not a BERT"):
        make_learner("t5:tiny", OPERATIONS, 32, [LabelledPair("a", "b", "PASS", "")], split_layers=1)
