"""A BERT that reads texts apart: what is shared between pairs changes nothing, and each text is read once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from finetune.trainers.pair_trainers import learner
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
    """Two layers, the lower of which reads texts apart; in float32."""
    folder = small_encoder(tmp_path_factory.mktemp("base"), " ".join([*MEMORIES, *NEW]).split(), layers=2)
    torch.manual_seed(0)
    pupil = learner(folder, OPERATIONS, 32, [], apart=1)
    pupil.model.save_pretrained(str(folder))
    found = PairModel(folder, device="cpu")._model()
    assert isinstance(found, SplitBertWeights)
    found._model.float()
    with torch.no_grad():  # random weights are near zero and would make all rows alike
        for weight in found._model.parameters():
            weight.mul_(4.0)
    return found


def whole(model: SplitBertWeights, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """The pairs in one padded pass, as in training."""
    first, second = map(list, zip(*pairs, strict=True))
    more = {"padding": True, "return_token_type_ids": True, "return_tensors": "pt"}
    coded = model._tokenizer(first, second, **more)
    with torch.inference_mode():
        rows: np.ndarray = model._model(**coded).logits.softmax(-1).numpy()
    return rows


def test_shared_readings_give_what_a_whole_pass_gives(model: SplitBertWeights) -> None:
    together, alone = model.read(PAIRS, 4), [model.read([pair], 4)[0] for pair in PAIRS]
    np.testing.assert_allclose(together, whole(model, PAIRS), atol=1e-5)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert np.ptp(np.stack(together), axis=0).max() > 0.01


def test_the_layers_above_see_both_texts(model: SplitBertWeights) -> None:
    first, second = whole(model, [("red kite", "moon"), ("red kite", "boat")])
    assert np.abs(first - second).max() > 1e-3


def test_each_text_is_read_once(model: SplitBertWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    alone = SplitBert.alone

    def counted(self: SplitBert, ids: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        read.append(len(ids))
        return alone(self, ids, *rest)

    monkeypatch.setattr(SplitBert, "alone", counted)
    model.read(PAIRS, 16)
    assert sum(read) == len(MEMORIES) + len(NEW)


def test_only_some_layers_of_a_bert_can_read_apart(tmp_path: Path) -> None:
    folder = small_encoder(tmp_path, ["a"])
    with pytest.raises(BadInput, match="1 layers cannot"):
        learner(folder, OPERATIONS, 32, [], apart=1)
    with pytest.raises(BadInput, match="only a BERT"):
        learner("t5:tiny", OPERATIONS, 32, [LabelledPair("a", "b", "PASS", "")], apart=1)
