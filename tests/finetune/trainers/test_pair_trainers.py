"""T5 as a classifier: randomly initialised or from a folder, answering one of the allowed digits, as a PairModel."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from finetune.trainers.operation_classifier import OperationRecipe, train, use_fresh_rate
from finetune.trainers.pair_trainers import make_learner, new_t5
from finetune.trainers.training import TrainingJob, update_recipe
from localmem.classification import OPERATIONS
from localmem.classification.pair_classifier import PairModel, TrainedClassifier, digit_tokens, t5_input
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import LabelledPair, read_operations
from localmem.factory import pair_classifier
from tests.finetune.play import inference_file, operation_file

Job = TrainingJob[OperationRecipe]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("t5")
    recipe = OperationRecipe(
        base="t5:tiny",
        data=(operation_file(folder),),
        epochs=6,
        nli_epochs=6,
        batch_size=8,
        fresh_learning_rate=3e-3,
        learning_rate=3e-3,
        patience=6,
        window=64,
    )
    job = TrainingJob(recipe, folder / "run", notify=lambda _: None)
    assert train(job).measures["accuracy"] > 0.9
    return job


def test_a_new_t5_learns_operations(trained: Job) -> None:
    pairs = read_operations(trained.recipe.data[0]).pairs
    classifier = TrainedClassifier(PairModel(trained.out, device="cpu"))
    labels = classifier.classify([(pair.first, pair.second) for pair in pairs])
    assert sum(label.operation == pair.label for label, pair in zip(labels, pairs, strict=True)) / len(pairs) > 0.9
    assert all(sum(label.probabilities.values()) == pytest.approx(1, abs=1e-5) for label in labels)


def test_a_batch_gives_the_same_probabilities_as_single_pairs(trained: Job) -> None:
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
    tokens = tokenizer("sentence 1: Bo has a cat . sentence 2: Bo instead cat .", return_tensors="pt")
    output = model.generate(
        **tokens, max_new_tokens=1, do_sample=False, output_scores=True, return_dict_in_generate=True
    )
    allowed = [tokenizer(digit, add_special_tokens=False)["input_ids"][-1] for digit in "0123"]
    expected = output.scores[0][0, allowed].softmax(dim=-1).numpy()
    probabilities = PairModel(trained.out, device="cpu").probabilities([("Bo has a cat .", "Bo instead cat .")])[0]
    np.testing.assert_allclose(probabilities, expected, rtol=0.1)  # in bfloat16 where the CPU has instructions for it
    assert OPERATIONS[int(probabilities.argmax())] == "REPLACE"


def test_transfer_keeps_all_weights_and_only_changes_what_the_digits_mean(trained: Job, tmp_path: Path) -> None:
    inference = make_learner(str(trained.out), ("entailment", "neutral", "contradiction"), 64, [])
    original = make_learner(str(trained.out), OPERATIONS, 64, []).model.state_dict()
    assert all(torch.equal(weight, original[name]) for name, weight in inference.model.state_dict().items())
    recipe = update_recipe(trained.recipe, base=str(trained.out), regime="transfer", nli=[inference_file(tmp_path)])
    assert train(replace(trained, recipe=recipe, out=tmp_path / "run")).measures["accuracy"] > 0.9


def test_every_digit_has_a_token_of_its_own() -> None:
    _, tokenizer = new_t5("t5:tiny", [LabelledPair("Bo was born in 1990.", "Bo is 35.", "PASS", "g")])
    assert len(set(digit_tokens(tokenizer, 4))) == 4
    coded = tokenizer(t5_input("Bo is 0.", "Bo is 3."))["input_ids"]
    assert coded[-1] == tokenizer.eos_token_id
    assert tokenizer.unk_token_id not in coded


def test_a_t5_with_a_head_answers_with_the_labels_of_its_config(tmp_path: Path) -> None:
    import torch
    from transformers import T5ForSequenceClassification

    base, tokenizer = new_t5("t5:tiny", [LabelledPair("Bo was born in 1990.", "Bo is 35.", "PASS", "g")])
    base.config.update({"id2label": dict(enumerate(OPERATIONS)), "label2id": {n: i for i, n in enumerate(OPERATIONS)}})
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = T5ForSequenceClassification(base.config).eval()
    model.save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path))
    pairs = [("Bo was born in 1990.", "Bo is 35."), ("Bo is 35.", "Bo was 35 and was born.")]
    rows = PairModel(tmp_path, device="cpu").probabilities(pairs)
    for pair, row in zip(pairs, rows, strict=True):
        logits = model(**tokenizer(t5_input(*pair), return_tensors="pt")).logits
        assert row == pytest.approx(logits.softmax(-1)[0].tolist(), abs=2e-2)  # weights may be loaded in 16 bits
    classifier = pair_classifier(str(tmp_path), "cpu")
    assert isinstance(classifier, TrainedClassifier)
    assert [label.operation for label in classifier.classify(pairs)] == [OPERATIONS[row.argmax()] for row in rows]


def test_an_untrained_t5_is_not_a_classifier(tmp_path: Path) -> None:
    model, tokenizer = new_t5("t5:tiny", [LabelledPair("Bo", "Eva", "PASS", "g")])
    model.save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path))
    with pytest.raises(BadInput, match="T5 without labels"):
        PairModel(tmp_path, device="cpu").probabilities([("a", "b")])


def test_only_a_new_t5_learns_at_the_fresh_rate(tmp_path: Path) -> None:
    fresh = TrainingJob(OperationRecipe(base="t5:tiny", fresh_learning_rate=0.01), tmp_path)
    existing = TrainingJob(OperationRecipe(base=str(tmp_path), fresh_learning_rate=0.01), tmp_path)
    assert use_fresh_rate(fresh).recipe.learning_rate == 0.01
    assert use_fresh_rate(existing) == existing
