"""Retrieval over a few turns: what is measured, what is skipped, and what the report says."""

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.evidence_retrieval import (
    MeasureOptions,
    RetrievalMethod,
    RetrievalResult,
    build_sessions,
    build_turns,
    measure_retrieval,
    merge_results,
)
from localmem.experiments.retrieval_grid import differences, read_baselines, run_figures, tables, write_results
from localmem.reporting.sections import Report, read_section, terminal
from localmem.retrieval.bm25 import BM25Retriever
from tests.evaluation.fixtures import LOCOMO, MTBENCHPLUS, write_records


def count_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def search(path: Path, name: str = "turns", **changes: object) -> RetrievalResult:
    options = MeasureOptions("turns", "question", 10, count_words)
    options = replace(options, **changes)  # type: ignore[arg-type]
    method = RetrievalMethod(name, build_turns if name == "turns" else build_sessions, BM25Retriever)
    return merge_results(measure_retrieval(method, read_dataset("locomo", path), options))


def test_each_question_with_evidence_is_measured(tmp_path: Path) -> None:
    result = search(write_records(tmp_path, LOCOMO))
    assert [row.probe for row in result.rows] == ["conv-1/q0", "conv-1/q1", "conv-1/q2"]  # two have no evidence
    assert result.units == 5
    soup = result.rows[1]
    assert soup.units[0] == "conv-1/1/t2"  # the image's caption speaks of soup
    assert soup.measures["recall@10"] == 0.5  # the question does not name Lisbon
    assert soup.measures["mrr"] == 1
    assert soup.measures["tokens@1"] == 14  # 8 May 2023: Ana: Look at this. (shares an image: a bowl of soup)
    assert "recall@20" not in soup.measures  # only ten units were searched for
    assert len(result.milliseconds) == 3


def test_sessions_can_be_the_gold_evidence(tmp_path: Path) -> None:
    path = write_records(tmp_path, LOCOMO)
    turns, sessions = search(path, gold="sessions"), search(path, "sessions", gold="sessions")
    assert [row.measures["recall@1"] for row in turns.rows] == [row.measures["recall@1"] for row in sessions.rows]
    assert sessions.rows[0].measures["tokens@1"] > turns.rows[0].measures["tokens@1"]
    assert sessions.rows[0].measures["recall@100t"] == 1


def test_the_query_can_include_the_dialogue(tmp_path: Path) -> None:
    dataset = read_dataset("mtbenchplus", write_records(tmp_path, MTBENCHPLUS))
    method = RetrievalMethod("turns", build_turns, BM25Retriever)
    question, dialogue = (
        merge_results(measure_retrieval(method, dataset, options)).rows[0].units
        for options in (
            MeasureOptions("turns", "question", 10, count_words),
            MeasureOptions("turns", "dialogue", 10, count_words),
        )
    )
    assert "m0/m0/t2" not in question
    assert "m0/m0/t2" in dialogue  # "Write a poem." was said just before


def test_the_report_compares_runs_and_contains_no_words_of_the_data(tmp_path: Path) -> None:
    path = write_records(tmp_path, LOCOMO)
    results = [search(path), search(path, "sessions")]
    runs = [run_figures(result) for result in results]
    compared = differences(results)
    report = Report({"runs": runs}, tables(runs, compared))
    text = terminal(report.tables)
    for words in ("recall@5", "1000 tokens", "multi-hop", "sessions - turns", "p95 ms"):
        assert words in text
    expected = sum(row.measures["recall@10"] for row in results[1].rows) / 3
    assert runs[1]["measures"]["recall@10"]["mean"] == pytest.approx(expected, abs=1e-4)
    (recall,) = (each for each in compared if each["measure"] == "recall@10")
    theirs, ours = (run["measures"]["recall@10"]["mean"] for run in runs)
    assert recall["mean"] == pytest.approx(ours - theirs, abs=2e-4)
    out = tmp_path / "out"
    write_results(out, report, results)
    assert read_section(out).tables == report.tables
    assert json.loads((out / "report.json").read_text())["runs"][0]["types"]["multi-hop"]["questions"] == 1
    rows = (out / "rows.jsonl").read_text()
    assert len(rows.splitlines()) == 6
    assert "parrot" not in rows
    assert (out / "recall.png").read_bytes().startswith(b"\x89PNG")


def test_an_earlier_run_over_the_same_questions_can_be_compared_with(tmp_path: Path) -> None:
    path = write_records(tmp_path, LOCOMO)
    previous, current = search(path), search(path, "sessions")
    write_results(tmp_path, Report({}, ()), [previous])
    baselines = read_baselines(tmp_path / "rows.jsonl", [current])
    compared = differences([current], baselines)
    assert {each["what"] for each in compared} == {"sessions - earlier turns"}
    expected = differences([previous, current])
    assert [each["mean"] for each in compared] == [each["mean"] for each in expected]
    fewer = replace(current, rows=current.rows[1:])
    with pytest.raises(BadInput, match="has other questions"):
        read_baselines(tmp_path / "rows.jsonl", [fewer])
    with pytest.raises(BadInput, match="give the rows"):
        read_baselines(path, [current])


def test_turns_of_one_session_have_one_rank_where_sessions_are_to_be_found(tmp_path: Path) -> None:
    data = copy.deepcopy(LOCOMO)
    for turn in data[0]["conversation"]["session_1"]:
        turn["text"] += " Kiko, parrot, cage, seeds."
    question = {"question": "Kiko, parrot, cage, seeds, bread?", "answer": ""}
    data[0]["qa"] = [question | {"evidence": ["D1:1", "D2:2"], "category": 1}]
    path = write_records(tmp_path, data)
    assert search(path).rows[0].measures["recall@3"] < 1  # three turns of the first session come first
    assert search(path, gold="sessions").rows[0].measures["recall@3"] == 1
