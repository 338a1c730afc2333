"""`localmem eval export`: files for LongMemEval's and LoCoMo's own scripts."""

import json
from pathlib import Path

import pytest

from localmem.errors import BadInput
from tests.cli.eval.test_run import backbone, invoke
from tests.evaluation.fixtures import EVIDENCE, LOCOMO

__all__ = ["backbone"]  # the fixture of all tests here

SYSTEM = "utterance_retrieval/bm25"


def _run(folder: Path, dataset: str, records: object) -> Path:
    source = folder / f"{dataset}.json"
    source.write_text(json.dumps(records), encoding="utf-8")
    out = folder / dataset
    invoke("run", "--system", SYSTEM, "--dataset", f"{dataset}={source}", "--set", "threads=2", "--out", out)
    return out


def test_locomo_answers_carry_prediction_and_context_in_its_form(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    invoke("export", _run(tmp_path, "locomo", LOCOMO), "--system", SYSTEM, "--out", file)
    (sample,) = json.loads(file.read_text(encoding="utf-8"))
    assert sample["sample_id"] == "conv-1"
    questions = LOCOMO[0]["qa"]
    assert [record["category"] for record in sample["qa"]] == [question["category"] for question in questions]
    first = sample["qa"][0]
    assert first["utterance_retrieval_bm25_prediction"] == "Lisbon."
    turns = {turn["dia_id"] for number in (1, 2) for turn in LOCOMO[0]["conversation"][f"session_{number}"]}
    assert set(first["utterance_retrieval_bm25_prediction_context"]) <= turns
    assert (first["question"], first["answer"], first["evidence"]) == (questions[0]["question"], "a parrot", ["D1:1"])


def test_longmemeval_answers_are_lines_of_hypotheses(tmp_path: Path) -> None:
    file = tmp_path / "hypotheses.jsonl"
    source = "\n".join(json.dumps(record) for record in EVIDENCE)
    (tmp_path / "evidence.jsonl").write_text(source, encoding="utf-8")
    out = tmp_path / "run"
    options = ["--dataset", f"longmemeval={tmp_path / 'evidence.jsonl'}", "--out", out]
    invoke("run", "--system", SYSTEM, *options)
    invoke("export", out, "--system", SYSTEM, "--out", file)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert {line["question_id"] for line in lines} == {"q1", "q2", "q3_abs"}
    assert all(line["hypothesis"] == "Lisbon." for line in lines)


def test_a_system_or_a_data_set_without_answers_is_an_error_with_those_that_have_some(tmp_path: Path) -> None:
    out = _run(tmp_path, "locomo", LOCOMO)
    with pytest.raises(BadInput, match=SYSTEM):
        invoke("export", out, "--system", "rsum", "--out", tmp_path / "answers.json")
    with pytest.raises(BadInput, match="--answers-to is 'msc'; give one of locomo"):
        invoke("export", out, "--system", SYSTEM, "--answers-to", "msc", "--out", tmp_path / "answers.json")


def test_failed_answers_are_exported_empty_so_that_failing_gains_nothing(tmp_path: Path) -> None:
    out, file = _run(tmp_path, "locomo", LOCOMO), tmp_path / "answers.json"
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in (line for line in lines if line["type"] == "answer"):
        line |= {"text": "", "error": "LLMUnavailable: no server"}
    (out / "answers.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    invoke("export", out, "--system", SYSTEM, "--out", file)
    (sample,) = json.loads(file.read_text(encoding="utf-8"))
    assert [record["utterance_retrieval_bm25_prediction"] for record in sample["qa"]] == [""] * len(LOCOMO[0]["qa"])
