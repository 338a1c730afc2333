"""The summary of a run and its pages: figures by hand, failures counted, every answer there, nothing executed."""

from dataclasses import replace
from datetime import UTC, datetime
from math import exp
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.evaluation import corpus_metrics
from localmem.evaluation.answers import Answer, Line, Read, Work
from localmem.evaluation.file_scoring import ScoringModels
from localmem.evaluation.judgements import Case, Judgement
from localmem.evaluation.metrics.likelihood import Likelihood
from localmem.evaluation.scores import MARK, all_scores
from localmem.evaluation.summary import front, key, section
from localmem.llm.wrappers import PromptUsage
from localmem.reporting.sections import Section, Table, markdown, page, read_section
from localmem.types import AddUnit, Unit

NO_MODELS = ScoringModels(pytest.fail, pytest.fail)
TIME = datetime(2026, 3, 1, tzinfo=UTC)
ONE = PromptUsage(calls=1, input_tokens=100, output_tokens=10)


def answer(system: str, probe: str, text: str, gold: str = "a red kite", **changed: object) -> Answer:
    plain = Answer(
        Work(system, "made", "e1"),
        probe,
        "question",
        "single",
        "s1",
        "What flew?",
        (gold,),
        text=text,
        seconds={"recall": 0.5, "respond": 1.5},
        spent={"recall": {}, "respond": {"agent/respond": ONE}},
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


def read(system: str, error: str = "") -> Read:
    spent = {"rsum/update": PromptUsage(calls=2, input_tokens=60, output_tokens=30)}
    return Read(Work(system, "made", "e1"), "s1", "Ana", "Ana: A kite flew.", (), 3.0, spent, (), error)


LINES: list[Line] = [
    read("rsum"),
    read("none", "LLMUnavailable: gone"),
    *(answer("rsum", f"q{n}", "a red kite") for n in range(3)),
    answer("rsum", "q3", "", error="LLMUnavailable: gone"),
    *(answer("none", f"q{n}", "no idea") for n in range(4)),
]


def made(folder: Path, lines: list[Line] = LINES) -> Section:
    scores = all_scores([line for line in lines if isinstance(line, Answer)], [])
    return section("Run", ["a note"], lines, scores, folder, against=("none",))


def table(found: Section, caption: str) -> Table:
    return next(one for one in found.tables if caption in one.caption)


def test_a_failed_answer_scores_nothing_and_is_counted(tmp_path: Path) -> None:
    quality = table(made(tmp_path), "quality")
    rows = {row[0]: dict(zip(quality.head, row, strict=True)) for row in quality.rows}
    assert rows["rsum"]["failed"] == "1"
    assert rows["rsum"]["F1"].startswith("0.750 [")
    assert rows["none"]["F1"].startswith("0.000 [")


def test_a_difference_is_paired_and_a_tie_is_marked(tmp_path: Path) -> None:
    found = table(made(tmp_path), "difference to none")
    assert found.rows[0][1].startswith("+0.750 [")
    same: list[Line] = [*LINES[:6], *(answer("none", f"q{n}", "a red kite" if n else "red") for n in range(4))]
    tie = table(made(tmp_path, same), "difference to none").rows[0][1]
    assert tie.startswith("= ")


def test_cost_is_a_session_s_and_an_answer_s(tmp_path: Path) -> None:
    cost = table(made(tmp_path), "costs")
    rsum = next(row for row in cost.rows if row[0] == "rsum")
    assert rsum == ("rsum", "1", "0", "2.0", "90", "3.00", "0.0", "0", "0.500", "110", "10", "1.50", "0")
    assert next(row for row in cost.rows if row[0] == "none")[2] == "1"  # not read


def test_evidence_is_what_the_recalled_units_come_from() -> None:
    answers = [answer("rsum", "q", "x", evidence=("t1", "t2"), units=(("t1",), ("t9",)))]
    assert all_scores(answers, [])["evidence recalled"] == {key(answers[0]): 0.5}


def test_a_judge_that_is_not_believed_is_marked_and_a_failed_answer_is_wrong() -> None:
    answers = [answer("rsum", "q1", "x"), answer("rsum", "q2", "", error="gone")]
    case = Case(answers[0].work, "q1")
    verdict = Judgement("correct", "m", "", False, case, "correct", {"right": 1.0, "correct": 1.0})
    scores = all_scores(answers, [verdict])
    assert scores[f"correct{MARK}"] == {key(answers[0]): 1.0, key(answers[1]): 0.0}
    assert "correct" in all_scores(answers, [replace(verdict, believable=True)])


def test_the_front_leaves_out_what_is_dearer_and_no_better() -> None:
    points = {"cheap": (1.0, 0.3), "dear": (9.0, 0.3), "good": (4.0, 0.6), "worse": (5.0, 0.5)}
    assert front(points) == ["cheap", "good"]


def test_texts_are_measured_together_and_memories_against_gold_ones() -> None:
    unit = Unit("u1", "Ana has a kite.", "Ana has a kite.", "sentence", "Ana", "s1", (), TIME, TIME)
    held = replace(read("rsum"), changes=(AddUnit(unit, TIME),), gold=("Ana has a kite.", "Ana lives in Lima."))
    whole, memory = corpus_metrics.tables([held, *LINES[2:6]], (), NO_MODELS)
    row = dict(zip(whole.head, whole.rows[0], strict=True))
    assert row["BLEU-1"] == "100.000"
    assert row["F1"] == "1.000"  # the failed one is left out
    assert row["Distinct-1"] == f"{2 / 6:.3f}"  # red, kite; articles do not count
    assert dict(zip(memory.head, memory.rows[0], strict=True)) | {"sessions": "1"} == {
        "system": "rsum",
        "sessions": "1",
        "precision of words": "1.000",
        "recall of words": f"{3 / 7:.3f}",
        "F1 of words": f"{6 / 10:.3f}",
        "precision of sentences": "1.000",
        "recall of sentences": "0.500",
        "F1 of sentences": f"{2 / 3:.3f}",
    }


def test_perplexity_counts_each_token_alike() -> None:
    weighed = [
        answer("rsum", "q1", "x", likelihood=Likelihood(-1.0, 1, 0)),
        answer("rsum", "q2", "x", likelihood=Likelihood(-5.0, 2, 0)),
    ]
    (table,) = corpus_metrics.tables(list(weighed), (), NO_MODELS)
    assert dict(zip(table.head, table.rows[0], strict=True))["perplexity of gold"] == f"{exp(6 / 3):.3f}"


def test_the_page_holds_every_answer_and_runs_none_of_it(tmp_path: Path) -> None:
    lines: list[Line] = [*LINES, answer("rsum", "q9", "<script>alert(1)</script>")]
    found = made(tmp_path, lines)
    assert set(found.pictures) == {"made-tokens.png", "made-seconds.png"}
    html = page([(tmp_path, found)])
    assert html.count("<details") == 9
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html
    assert html.count("data:image/png;base64,") == 2
    assert "http" not in html.replace("http-equiv", "")


def test_a_section_comes_back_and_reads_as_markdown(tmp_path: Path) -> None:
    found = made(tmp_path)
    found.save(tmp_path)
    assert read_section(tmp_path) == found
    text = markdown([(tmp_path / "run", found)], tmp_path)
    assert "](run/made-tokens.png)" in text
    assert "| rsum | 4 | 1 | 0.750" in text
    with pytest.raises(BadInput, match="holds no evaluation"):
        read_section(tmp_path / "nowhere")
