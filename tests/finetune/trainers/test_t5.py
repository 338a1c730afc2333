"""T5 as a classifier: from nothing or from a folder, one digit out of the allowed ones, behind the same PairModel."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from finetune.trainers.operation_classifier import Job, at_fresh_rate, train
from finetune.trainers.pair_trainers import learner
from finetune.trainers.t5 import fresh_t5
from finetune.trainers.training import Plan
from localmem.classification import OPERATIONS
from localmem.classification.pair_classifier import PairModel
from localmem.classification.pair_weights import digit_tokens, t5_input
from localmem.classification.trained_classifier import TrainedClassifier
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import LabelledPair, read_operations
from tests.finetune.play import inference_file, operation_file

PLAN = Plan(epochs=6, batch=8, learning_rate=3e-3, patience=6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("t5")
    job = Job("t5:tiny", folder / "run", PLAN, data=[operation_file(folder)], window=64)
    assert train(job, note=lambda _: None).measures["accuracy"] > 0.9
    return job


def test_a_t5_from_nothing_learns_operations(trained: Job) -> None:
    pairs = read_operations(trained.data[0]).pairs
    classifier = TrainedClassifier(PairModel(trained.out, device="cpu"))
    said = classifier.classify([(pair.first, pair.second) for pair in pairs])
    assert sum(one.operation == pair.label for one, pair in zip(said, pairs, strict=True)) / len(pairs) > 0.9
    assert all(sum(one.probabilities.values()) == pytest.approx(1, abs=1e-5) for one in said)


def test_a_batch_says_what_each_pair_alone_is_told(trained: Job) -> None:
    model = PairModel(trained.out, device="cpu", batch=3)
    pairs = [
        ("Bo has a cat .", "Bo over cat ."),
        ("Eva has a car . " * 9, "also"),
        ("🦜", "그 앵무새"),
        ("a", "b" * 4000),
    ]
    together = model.probabilities(pairs)
    alone = np.concatenate([model.probabilities([pair]) for pair in pairs])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_the_probabilities_are_those_of_one_step_over_the_allowed_digits(trained: Job) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(trained.out))
    model = AutoModelForSeq2SeqLM.from_pretrained(str(trained.out)).eval()
    asked = tokenizer("sentence 1: Bo has a cat . sentence 2: Bo instead cat .", return_tensors="pt")
    made = model.generate(**asked, max_new_tokens=1, do_sample=False, output_scores=True, return_dict_in_generate=True)
    allowed = [tokenizer(digit, add_special_tokens=False)["input_ids"][-1] for digit in "0123"]
    expected = made.scores[0][0, allowed].softmax(dim=-1).numpy()
    found = PairModel(trained.out, device="cpu").probabilities([("Bo has a cat .", "Bo instead cat .")])[0]
    np.testing.assert_allclose(found, expected, rtol=0.1)  # in bfloat16 where the CPU has instructions for it
    assert OPERATIONS[int(found.argmax())] == "REPLACE"


def test_transfer_keeps_all_weights_and_only_changes_what_the_digits_mean(trained: Job, tmp_path: Path) -> None:
    pupil = learner(trained.out, ("entailment", "neutral", "contradiction"), 64, [])
    held = learner(trained.out, OPERATIONS, 64, []).model.state_dict()
    assert all(torch.equal(weight, held[name]) for name, weight in pupil.model.state_dict().items())
    job = replace(trained, regime="transfer", nli=[inference_file(tmp_path)], nli_plan=PLAN, out=tmp_path / "run")
    assert train(job, note=lambda _: None).measures["accuracy"] > 0.9


def test_every_digit_has_a_token_of_its_own() -> None:
    _, tokenizer = fresh_t5("t5:tiny", [LabelledPair("Bo was born in 1990.", "Bo is 35.", "PASS", "g")])
    assert len(set(digit_tokens(tokenizer, 4))) == 4
    coded = tokenizer(t5_input("Bo is 0.", "Bo is 3."))["input_ids"]
    assert coded[-1] == tokenizer.eos_token_id
    assert tokenizer.unk_token_id not in coded


def test_a_t5_that_was_trained_for_nothing_is_no_classifier(tmp_path: Path) -> None:
    model, tokenizer = fresh_t5("t5:tiny", [LabelledPair("Bo", "Eva", "PASS", "g")])
    model.save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path))
    with pytest.raises(BadInput, match="tells no labels yet"):
        PairModel(tmp_path, device="cpu").probabilities([("a", "b")])


def test_only_a_t5_from_nothing_learns_at_the_fresh_rate(tmp_path: Path) -> None:
    fresh, given = Job("t5:tiny", tmp_path, PLAN), Job(tmp_path, tmp_path, PLAN)
    assert at_fresh_rate(fresh, 0.01).plan.learning_rate == at_fresh_rate(fresh, 0.01).nli_plan.learning_rate == 0.01
    assert at_fresh_rate(given, 0.01) == given
