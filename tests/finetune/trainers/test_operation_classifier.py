"""Training classifiers of operations: the result serves CareCall, interrupted runs resume, mistakes are reported."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import finetune.trainers.operation_classifier as operations
from finetune.operation_pairs import Fold
from finetune.trainers.operation_classifier import NLI, OperationRecipe, PairLesson, label_weights, train
from finetune.trainers.training import CHECKPOINTS, TrainingJob, update_recipe
from localmem.classification import OPERATIONS
from localmem.errors import BadInput, BadSettings, ModelMissing
from localmem.evaluation.datasets.labelled_pairs import LabelledPair, read_operations
from localmem.factory import pair_classifier, proved_classifier
from tests.finetune.play import VOCABULARY, inference_file, operation_file, write_lines
from tests.finetune.small import small_encoder

Job = TrainingJob[OperationRecipe]


def make_job(base: Path | str, data: Path, out: Path) -> Job:
    recipe = OperationRecipe(
        base=str(base),
        data=(data,),
        epochs=6,
        nli_epochs=6,
        batch_size=8,
        learning_rate=2e-3,
        fresh_learning_rate=1e-3,
        patience=6,
        window=32,
    )
    return TrainingJob(recipe, out, notify=lambda _: None)


def change(job: Job, out: Path | None = None, *, resume: bool = False, **fields: object) -> Job:
    return replace(job, recipe=update_recipe(job.recipe, **fields), out=out or job.out, resume=resume)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("base"), VOCABULARY)


@pytest.fixture(scope="module")
def pretrained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder after learning operations from scratch: it knows the words, as real weights do."""
    folder = tmp_path_factory.mktemp("pretrained")
    job = make_job(base, operation_file(folder), folder / "run")
    assert train(job).measures["accuracy"] > 0.9
    return job.out


@pytest.fixture
def job(base: Path, tmp_path: Path) -> Job:
    return make_job(base, operation_file(tmp_path), tmp_path / "run")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(str(folder / "model.safetensors"))


def accuracy(folder: Path, data: Path, labels: Sequence[str] = OPERATIONS) -> float:
    """The accuracy of the model in the folder on pairs with these labels, as the product uses it."""
    pairs = [pair for pair in read_operations(data).pairs if pair.label in labels]
    predicted = pair_classifier(str(folder), "cpu").classify([(pair.first, pair.second) for pair in pairs])
    return sum(label.operation == pair.label for label, pair in zip(predicted, pairs, strict=True)) / len(pairs)


def test_a_model_trained_from_scratch_decides_operations(pretrained: Path, tmp_path: Path) -> None:
    assert accuracy(pretrained, operation_file(tmp_path)) > 0.9
    report = json.loads((pretrained / "run.json").read_text(encoding="utf-8"))
    assert report["settings"]["regime"] == "scratch"
    assert report["plan"]["batch_size"] == 8
    assert report["labels"] == list(OPERATIONS)
    assert report["learned"] + report["checked"] == 192
    assert sum(map(sum, report["confusion"])) == report["checked"]
    assert len(report["data"]["operations.jsonl"]) == 64
    assert (pretrained / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "| accuracy |" in (pretrained / "README.md").read_text(encoding="utf-8")
    assert not (pretrained / CHECKPOINTS).exists()


def test_inference_alone_is_mapped_to_operations(job: Job, pretrained: Path, tmp_path: Path) -> None:
    training = change(job, base=str(pretrained), regime="zero-shot", nli=[inference_file(tmp_path)])
    assert train(training).measures["accuracy"] > 0.9
    assert accuracy(job.out, job.recipe.data[0], ["PASS", "REPLACE"]) > 0.9  # entailment, contradiction
    assert accuracy(job.out, job.recipe.data[0], ["DELETE"]) == 0  # is not mapped


def test_transfer_learns_inference_first_and_continues_from_it(job: Job, pretrained: Path, tmp_path: Path) -> None:
    training = change(job, base=str(pretrained), regime="transfer", nli=[inference_file(tmp_path)])
    train(training)
    assert accuracy(job.out, job.recipe.data[0]) > 0.9
    inference = job.out / NLI
    assert json.loads((inference / "config.json").read_text(encoding="utf-8"))["id2label"]["2"] == "contradiction"
    heads = weights(inference)["classifier.weight"], weights(job.out)["classifier.weight"]
    assert [tuple(head.shape) for head in heads] == [(3, 32), (4, 32)]
    # An inference model as the base needs no inference pairs.
    second = change(job, tmp_path / "second", base=str(inference), regime="transfer")
    assert train(second).measures["accuracy"] > 0.9


@pytest.mark.parametrize("start", ["encoder", "t5:tiny"])
def test_a_resumed_run_ends_with_the_same_weights(
    start: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = job.recipe.base if start == "encoder" else start
    complete = change(job, tmp_path / "complete", base=base, epochs=3, accumulate=2, learning_rate=1e-3)
    resumed = replace(complete, out=tmp_path / "resumed")
    train(complete)
    calls, measure = count(), operations.PairMeasures.__call__

    def interrupt(self: operations.PairMeasures, *arguments: object) -> dict[str, float]:
        if next(calls) == 1:  # one epoch is saved, the second is lost
            raise KeyboardInterrupt
        return measure(self, *arguments)  # type: ignore[arg-type]  # passed on unchanged

    with monkeypatch.context() as patch:
        patch.setattr(operations.PairMeasures, "__call__", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(resumed)
    with pytest.raises(BadInput, match="--resume"):
        train(resumed)
    train(replace(resumed, resume=True))
    first, second = weights(complete.out), weights(resumed.out)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_resumed_transfer_keeps_its_finished_inference_model(job: Job, tmp_path: Path) -> None:
    nli = [inference_file(tmp_path)]
    train(change(job, job.out / NLI, regime="zero-shot", nli=nli))
    before = (job.out / NLI / "run.json").stat().st_mtime_ns
    train(change(job, regime="transfer", nli=nli, resume=True))
    assert (job.out / NLI / "run.json").stat().st_mtime_ns == before


def test_accumulated_batches_learn_as_one_batch(job: Job, tmp_path: Path) -> None:
    """The loss is the mean over a step's examples, however they are divided."""
    large = change(job, tmp_path / "large", epochs=1, batch_size=8, learning_rate=1e-3)
    small = change(large, tmp_path / "small", batch_size=4, accumulate=2)
    losses = [[line["loss"] for line in train(training).log if "loss" in line] for training in (large, small)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_rare_labels_weigh_more() -> None:
    pairs = [LabelledPair("a", "b", label, "g") for label in ("PASS", "PASS", "PASS", "APPEND", "REPLACE", "DELETE")]
    by_label = label_weights(pairs, OPERATIONS)
    assert by_label["DELETE"] == pytest.approx(3 * by_label["PASS"])
    assert sum(by_label[pair.label] for pair in pairs) == pytest.approx(len(pairs))


def test_memory_systems_refuse_a_classifier_that_is_no_better_than_the_most_frequent_label(job: Job) -> None:
    held_out = [LabelledPair("a", "b", label, label) for label in ("APPEND", "APPEND", "APPEND", "PASS")]
    lesson = PairLesson(OPERATIONS, Fold([], held_out), [], "Operations")
    job.out.mkdir()
    operations._refuse_if_trivial(job, "minilm-l6-v2", lesson, 0.76)
    assert not list(job.out.iterdir())
    operations._refuse_if_trivial(job, "minilm-l6-v2", lesson, 0.75)
    with pytest.raises(BadSettings, match=r"right for 0.750 of the validation pairs, and always APPEND for 0.750"):
        proved_classifier(str(job.out))


def test_a_classifier_that_is_no_better_is_refused_under_its_name_too(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    train(replace(change(job, epochs=1, learning_rate=1e-9), name="guesser"))
    for name in (str(job.out), "guesser"):
        with pytest.raises(BadSettings, match="failed when it was measured: it is right for"):
            proved_classifier(name)


def test_mistakes_are_reported_before_the_first_step(job: Job, tmp_path: Path) -> None:
    wrong = write_lines(tmp_path / "wrong.jsonl", [{"memory": "a", "summary": "b", "label": "KEEP"}])
    with pytest.raises(BadInput, match=r"wrong\.jsonl, line 1: the label 'KEEP' is not one of PASS"):
        train(change(job, data=[wrong]))
    few = write_lines(tmp_path / "few.jsonl", [{"memory": "a", "summary": "b", "label": "PASS"}])
    with pytest.raises(BadInput, match="no example of APPEND, REPLACE, DELETE"):
        train(change(job, data=[few]))
    with pytest.raises(ModelMissing, match="no pair classifier"):
        train(change(job, base=str(tmp_path)))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="cannot be loaded as an encoder or a T5"):
        train(change(job, base=str(tmp_path / "empty")))
    with pytest.raises(BadInput, match="size 'huge'"):
        train(change(job, base="t5:huge"))
    with pytest.raises(BadInput, match="--nli-pairs"):
        train(change(job, regime="transfer"))
    assert not job.out.exists()


def test_too_little_memory_is_reported_before_the_first_step(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(BadInput, match="are free"):
        train(job)
