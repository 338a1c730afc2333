"""A retrieval run over a few turns: what is measured, what is passed over, what the report says."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.evidence_retrieval import Measuring, Result, Run, joined, measure
from localmem.evaluation.retrieval_report import PICTURE, differences, document, earlier, summaries, tables, write
from localmem.evaluation.unit_builders import sessions_of, turns_of
from localmem.reporting.sections import Section, read_section, terminal
from localmem.retrieval.bm25 import BM25Retriever
from tests.evaluation.fixtures import LOCOMO, MTBENCHPLUS, written


def _words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def _result(path: Path, name: str = "turns", **changed: object) -> Result:
    settings = {"gold": "turns", "query": "question", "width": 10, "count": _words} | changed
    units = turns_of if name == "turns" else sessions_of
    run = Run(name, units, BM25Retriever)
    return joined(measure(run, read_dataset("locomo", path), Measuring(**settings)))  # type: ignore[arg-type]  # as named


def test_each_question_with_evidence_is_measured(tmp_path: Path) -> None:
    result = _result(written(tmp_path, LOCOMO))
    assert [row.probe for row in result.rows] == ["conv-1/q0", "conv-1/q1", "conv-1/q2"]  # two have no evidence
    assert result.units == 5
    soup = result.rows[1]
    assert soup.found[0] == "conv-1/1/t2"  # the image's caption speaks of soup
    assert soup.measures["recall@10"] == 0.5  # nothing that was asked names Lisbon
    assert soup.measures["mrr"] == 1
    assert soup.measures["tokens@1"] == 14  # 8 May 2023: Ana: Look at this. (shares an image: a bowl of soup)
    assert "recall@20" not in soup.measures  # no more than ten units were searched for
    assert len(result.milliseconds) == 3


def test_sessions_can_be_what_is_to_be_found(tmp_path: Path) -> None:
    path = written(tmp_path, LOCOMO)
    turns, sessions = _result(path, gold="sessions"), _result(path, "sessions", gold="sessions")
    assert [row.measures["recall@1"] for row in turns.rows] == [row.measures["recall@1"] for row in sessions.rows]
    assert sessions.rows[0].measures["tokens@1"] > turns.rows[0].measures["tokens@1"]
    assert sessions.rows[0].measures["recall@100t"] == 1


def test_the_dialogue_before_a_question_can_be_searched_for(tmp_path: Path) -> None:
    data = read_dataset("mtbenchplus", written(tmp_path, MTBENCHPLUS))
    found = {
        query: joined(measure(Run("r", turns_of, BM25Retriever), data, Measuring("turns", query, 10, _words)))
        for query in ("question", "dialogue")
    }
    assert "m0/m0/t2" not in found["question"].rows[0].found
    assert "m0/m0/t2" in found["dialogue"].rows[0].found  # "Write a poem." was said just before


def test_the_report_compares_runs_and_writes_no_words_of_the_data(tmp_path: Path) -> None:
    path = written(tmp_path, LOCOMO)
    results = [_result(path), _result(path, "sessions")]
    runs, compared = summaries(results, 0, 200), differences(results, 0, 200)
    shown_tables = tables(runs, compared)
    text = terminal(shown_tables)
    for shown in ("recall@5", "1000 tokens", "multi-hop", "sessions - turns", "p95 ms"):
        assert shown in text
    expected = sum(row.measures["recall@10"] for row in results[1].rows) / 3
    assert runs[1].overall.measures["recall@10"].mean == pytest.approx(expected)
    (tens,) = (one for one in compared if one.measure == "recall@10")
    ours, theirs = (run.overall.measures["recall@10"].mean for run in (runs[1], runs[0]))
    assert tens.found.mean == pytest.approx(ours - theirs)
    section = Section("Retrieval", (), tuple(shown_tables), (PICTURE,))
    write(tmp_path / "out", document(runs, compared), results, section)
    assert read_section(tmp_path / "out") == section
    held = json.loads((tmp_path / "out" / "report.json").read_text())
    assert held["runs"][0]["types"]["multi-hop"]["questions"] == 1
    rows = (tmp_path / "out" / "rows.jsonl").read_text()
    assert len(rows.splitlines()) == 6
    assert "parrot" not in rows
    assert (tmp_path / "out" / "recall.png").read_bytes().startswith(b"\x89PNG")


def test_an_earlier_run_over_the_same_questions_can_be_compared_with(tmp_path: Path) -> None:
    path = written(tmp_path, LOCOMO)
    then, now = _result(path), _result(path, "sessions")
    write(tmp_path, document(summaries([then], 0, 50), []), [then], Section("Then", (), ()))
    before = earlier(tmp_path / "rows.jsonl", [now])
    compared = differences([now], 0, 50, before)
    assert {one.what for one in compared} == {"sessions - earlier turns"}
    assert [one.found for one in compared] == [one.found for one in differences([then, now], 0, 50)]
    fewer = replace(now, rows=now.rows[1:])
    with pytest.raises(BadInput, match="of other questions"):
        earlier(tmp_path / "rows.jsonl", [fewer])
    with pytest.raises(BadInput, match="give the rows"):
        earlier(path, [now])
