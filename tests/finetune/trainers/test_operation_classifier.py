"""Training classifiers of operations: what is learned serves CareCall, what breaks off goes on, mistakes are told."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import finetune.trainers.operation_classifier as operations
from finetune.trainers.operation_classifier import NLI, Job, class_weights, train
from finetune.trainers.training import CHECKPOINTS, Plan
from localmem.classification import OPERATIONS
from localmem.errors import BadInput, ModelMissing
from localmem.evaluation.datasets.labelled_pairs import LabelledPair, read_operations
from localmem.factory.parts import pair_classifier
from tests.finetune.play import VOCABULARY, inference_file, operation_file, written
from tests.finetune.small import small_encoder

PLAN = Plan(epochs=6, batch=8, learning_rate=2e-3, patience=6)


def quiet(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("base"), VOCABULARY)


@pytest.fixture(scope="module")
def taught(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder after it learned operations from scratch: it knows the words, as real weights do."""
    folder = tmp_path_factory.mktemp("taught")
    job = Job(base, folder / "run", PLAN, data=[operation_file(folder)], window=32)
    assert train(job, note=quiet).measures["accuracy"] > 0.9
    return job.out


@pytest.fixture
def job(base: Path, tmp_path: Path) -> Job:
    return Job(base, tmp_path / "run", PLAN, data=[operation_file(tmp_path)], nli_plan=PLAN, window=32)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(str(folder / "model.safetensors"))


def right(folder: Path, data: Path, labels: Sequence[str] = OPERATIONS) -> float:
    """The share of the pairs with these labels that the model in the folder gets right, as the product asks it."""
    pairs = [pair for pair in read_operations(data).pairs if pair.label in labels]
    said = pair_classifier(str(folder), "cpu").classify([(pair.first, pair.second) for pair in pairs])
    return sum(one.operation == pair.label for one, pair in zip(said, pairs, strict=True)) / len(pairs)


def test_what_was_learned_from_scratch_decides_operations(taught: Path, tmp_path: Path) -> None:
    assert right(taught, operation_file(tmp_path)) > 0.9
    report = json.loads((taught / "run.json").read_text(encoding="utf-8"))
    assert report["settings"]["regime"] == "scratch"
    assert report["labels"] == list(OPERATIONS)
    assert report["learned"] + report["checked"] == 192
    assert sum(map(sum, report["confusion"])) == report["checked"]
    assert len(report["data"]["operations.jsonl"]) == 64
    assert (taught / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "| accuracy |" in (taught / "README.md").read_text(encoding="utf-8")
    assert not (taught / CHECKPOINTS).exists()


def test_inference_alone_is_read_through_the_mapping(job: Job, taught: Path, tmp_path: Path) -> None:
    asked = replace(job, base=taught, regime="zero-shot", nli=[inference_file(tmp_path)])
    assert train(asked, note=quiet).measures["accuracy"] > 0.9
    assert right(job.out, job.data[0], ["PASS", "REPLACE"]) > 0.9  # entailment, contradiction
    assert right(job.out, job.data[0], ["DELETE"]) == 0  # is not mapped


def test_transfer_learns_inference_first_and_goes_on_from_it(job: Job, taught: Path, tmp_path: Path) -> None:
    asked = replace(job, base=taught, regime="transfer", nli=[inference_file(tmp_path)])
    train(asked, note=quiet)
    assert right(job.out, job.data[0]) > 0.9
    inferring = job.out / NLI
    assert json.loads((inferring / "config.json").read_text(encoding="utf-8"))["id2label"]["2"] == "contradiction"
    head = weights(inferring)["classifier.weight"], weights(job.out)["classifier.weight"]
    assert [tuple(one.shape) for one in head] == [(3, 32), (4, 32)]
    given = replace(asked, base=inferring, nli=(), out=tmp_path / "second")  # a model of inference needs no pairs
    assert train(given, note=quiet).measures["accuracy"] > 0.9


@pytest.mark.parametrize("start", ["encoder", "t5:tiny"])
def test_an_interrupted_run_goes_on_to_the_same_weights(
    start: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = job.base if start == "encoder" else start
    plan = replace(PLAN, epochs=3, accumulate=2, learning_rate=1e-3)
    whole = replace(job, base=base, plan=plan, out=tmp_path / "whole")
    broken = replace(whole, out=tmp_path / "broken")
    train(whole, note=quiet)
    calls, measured = count(), operations.Measures.__call__

    def interrupted(self: operations.Measures, *given: object) -> dict[str, float]:
        if next(calls) == 1:  # one epoch is saved, the second is lost
            raise KeyboardInterrupt
        return measured(self, *given)  # type: ignore[arg-type]  # passed on as it came

    with monkeypatch.context() as patch:
        patch.setattr(operations.Measures, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(broken, note=quiet)
    with pytest.raises(BadInput, match="--resume"):
        train(broken, note=quiet)
    train(broken, resume=True, note=quiet)
    ours, theirs = weights(whole.out), weights(broken.out)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_run_goes_on_after_its_finished_inference(job: Job, tmp_path: Path) -> None:
    asked = replace(job, regime="transfer", nli=[inference_file(tmp_path)])
    train(replace(asked, regime="zero-shot", out=job.out / NLI), note=quiet)
    before = (job.out / NLI / "run.json").stat().st_mtime_ns
    train(asked, resume=True, note=quiet)
    assert (job.out / NLI / "run.json").stat().st_mtime_ns == before


def test_accumulated_batches_learn_as_one_batch(job: Job, tmp_path: Path) -> None:
    """So the loss is the mean over a step's examples, however they are cut."""
    plan = replace(PLAN, epochs=1, batch=8, learning_rate=1e-3)
    one = replace(job, plan=plan, out=tmp_path / "one")
    two = replace(job, plan=replace(plan, batch=4, accumulate=2), out=tmp_path / "two")
    losses = [[line["loss"] for line in train(asked, note=quiet).log if "loss" in line] for asked in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_rare_labels_weigh_more() -> None:
    pairs = [LabelledPair("a", "b", label, "g") for label in ("PASS", "PASS", "PASS", "APPEND", "REPLACE", "DELETE")]
    found = class_weights(pairs, OPERATIONS)
    assert found["DELETE"] == pytest.approx(3 * found["PASS"])
    assert sum(found[pair.label] for pair in pairs) == pytest.approx(len(pairs))


def test_mistakes_are_told_before_the_first_step(job: Job, tmp_path: Path) -> None:
    wrong = written(tmp_path / "wrong.jsonl", [{"memory": "a", "summary": "b", "label": "KEEP"}])
    with pytest.raises(BadInput, match=r"wrong\.jsonl, line 1: the label 'KEEP' is none of PASS"):
        train(replace(job, data=[wrong]), note=quiet)
    few = written(tmp_path / "few.jsonl", [{"memory": "a", "summary": "b", "label": "PASS"}])
    with pytest.raises(BadInput, match="no example of APPEND, REPLACE, DELETE"):
        train(replace(job, data=[few]), note=quiet)
    with pytest.raises(ModelMissing, match="no pair classifier"):
        train(replace(job, base=tmp_path), note=quiet)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="no model to start from"):
        train(replace(job, base=tmp_path / "empty"), note=quiet)
    with pytest.raises(BadInput, match="size 'huge'"):
        train(replace(job, base="t5:huge"), note=quiet)
    with pytest.raises(BadInput, match="--nli"):
        train(replace(job, regime="transfer"), note=quiet)
    assert not job.out.exists()


def test_too_little_memory_is_told_before_the_first_step(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil  # type: ignore[import-untyped]  # publishes no types

    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(BadInput, match="are free"):
        train(job, note=quiet)
