"""TwoStageReranker: which texts are scored again, the trained network as it is loaded, and mistakes in its folder."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from finetune.trainers.second_stage import SecondStageLearner, SecondStageRecipe
from localmem import factory
from localmem.errors import BadInput, BadSettings, BadVectors, ModelDamaged
from localmem.retrieval.bert_model import Rows
from localmem.retrieval.two_stage_reranker import (
    SETTINGS,
    WEIGHTS,
    PairTokenizer,
    TwoStageReranker,
    TwoStageSettings,
    load_body,
    read_pairs,
    score_states,
    share_tokens,
)
from tests.finetune.small import small_encoder

ANIMALS = ("dog", "cat", "horse", "goat", "duck", "hen")
COUNT, WINDOW = 3, 16


class First:
    """Scores texts by where they stand, the first best; knows no German."""

    query_identity = "first"

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return [0.9 - 0.1 * place for place, _ in enumerate(texts)]

    def read_query(self, query: str) -> Rows | None:
        return None if query.startswith("Was") else np.ones(2, np.float32)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("base"), [*ANIMALS, "what", "is", "the", "[", "SEP", "]"], layers=2)


@pytest.fixture
def learner(base: Path) -> SecondStageLearner:
    """An adapter and a head with random weights."""
    torch.manual_seed(1)
    learner = SecondStageLearner(load_body(base), SecondStageRecipe(rank=2))
    learner.eval()
    for name, weight in learner.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    return learner


@pytest.fixture
def folder(base: Path, learner: SecondStageLearner, tmp_path: Path) -> Path:
    digest = sha256((base / "model.safetensors").read_bytes()).hexdigest()
    learner.settings = asdict(TwoStageSettings(str(base), digest, "first", COUNT, WINDOW, 2.0))
    learner.save_pretrained(str(tmp_path / "own"))
    return tmp_path / "own"


def change_settings(folder: Path, **values: object) -> None:
    file = folder / SETTINGS
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def odds(scores: Sequence[float]) -> list[float]:
    return [float(np.log(score / (1 - score))) for score in scores]


def test_the_saved_network_scores_as_it_did_when_it_was_trained(
    base: Path, learner: SecondStageLearner, folder: Path
) -> None:
    pairs = PairTokenizer(base, WINDOW)([("what is the dog", animal) for animal in ANIMALS[:COUNT]])
    with torch.inference_mode():
        expected = score_states(learner.head(), read_pairs(learner.body, pairs.ids, pairs.mask)).tolist()
    scores = TwoStageReranker(folder, First(), "cpu").score("what is the dog", ANIMALS[:COUNT])
    assert len({round(value, 3) for value in expected}) == COUNT
    assert odds(scores) == pytest.approx(expected, abs=0.1)  # the processor may compute in bfloat16


def test_only_the_likeliest_are_scored_again_and_no_other_is_likelier(folder: Path) -> None:
    change_settings(folder, scale=0.0, earlier=-1.0, shift=2.0)
    scores = odds(TwoStageReranker(folder, First(), "cpu").score("what is the dog", ANIMALS))
    first = odds(First().score("", ANIMALS))
    assert scores[:COUNT] == pytest.approx([2 - value for value in first[:COUNT]])
    assert scores[COUNT:] == pytest.approx([min(value, 2 - first[0]) for value in first[COUNT:]])


def test_a_language_that_the_first_does_not_know_is_not_judged(folder: Path) -> None:
    reranker = TwoStageReranker(folder, First(), "cpu")
    assert reranker.score("Was ist das", ANIMALS) == First().score("", ANIMALS)
    assert reranker.score("what", []) == []
    assert reranker.query_identity == "first"
    assert reranker.read_query("Was") is None


def test_a_mark_in_a_text_is_words(base: Path) -> None:
    pairs = PairTokenizer(base, WINDOW)([("dog", "[SEP] cat"), ("dog", "cat " * 40)])
    assert pairs.ids[0].tolist().count(3) == 2
    assert pairs.ids.shape == pairs.mask.shape == (2, WINDOW)
    assert pairs.mask.sum(1).tolist() == [8, WINDOW]


def test_the_words_of_a_text_share_what_is_left_of_no_answer(
    base: Path, learner: SecondStageLearner, folder: Path
) -> None:
    texts = ["the dog", "the duck is the hen", ""]
    pairs = PairTokenizer(base, WINDOW)([("what is the dog", text) for text in texts])
    with torch.inference_mode():
        states = read_pairs(learner.body, pairs.ids, pairs.mask)
        nothing = share_tokens(learner.head(), states, pairs.may_answer).exp()[:, 0].tolist()
    words = TwoStageReranker(folder, First(), "cpu").find_words("what is the dog", texts)
    assert [[text[each.start : each.end] for each in row] for text, row in zip(texts, words, strict=True)] == [
        text.split() for text in texts
    ]
    sums = [1 - sum(each.share for each in row) for row in words]
    assert sums == pytest.approx(nothing, abs=0.01)
    assert TwoStageReranker(folder, First(), "cpu").find_words("what", []) == []


def test_weights_that_learned_no_words_find_none(base: Path, folder: Path, tmp_path: Path) -> None:
    plain = SecondStageLearner(load_body(base), SecondStageRecipe(rank=2, words_weight=0))
    plain.settings = json.loads((folder / SETTINGS).read_text())
    plain.save_pretrained(str(tmp_path / "plain"))
    reranker = TwoStageReranker(tmp_path / "plain", First(), "cpu")
    assert len(reranker.score("what is the dog", ANIMALS)) == len(ANIMALS)
    assert reranker.find_words("what is the dog", ANIMALS[:2]) == [[], []]


def test_other_weights_and_an_unknown_base_are_said(folder: Path) -> None:
    change_settings(folder, base_sha256="0" * 64)
    with pytest.raises(BadSettings, match="trained on other weights"):
        TwoStageReranker(folder, First(), "cpu").score("what", ANIMALS)
    change_settings(folder, base="mpnet-base-v9")
    with pytest.raises(BadInput, match="mpnet-base-v9"):
        TwoStageReranker(folder, First(), "cpu").score("what", ANIMALS)


def test_an_unreadable_adapter_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"torn")
    with pytest.raises(ModelDamaged, match="cannot be read"):
        TwoStageReranker(folder, First(), "cpu").score("what", ANIMALS)


def test_scores_that_are_not_finite_are_refused(folder: Path) -> None:
    weights = load_file(str(folder / WEIGHTS))
    save_file({**weights, "head.output.bias": torch.full((1,), torch.inf)}, str(folder / WEIGHTS))
    with pytest.raises(BadVectors, match="not finite"):
        TwoStageReranker(folder, First(), "cpu").score("what", ANIMALS)


def test_the_factory_builds_both_stages(folder: Path, starter_encoder_dir: Path) -> None:
    change_settings(folder, first="minilm-l6-v2-reader")
    reranker = factory.reranker(str(folder), "cpu")
    assert isinstance(reranker, TwoStageReranker)
    assert len(reranker.score("What is the dog called?", ["User: The dog is Rex.", "User: Hm."])) == 2
