"""The summary of a run: figures checked by hand, failures counted, differences, costs, and corpus metrics."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from localmem.config import Settings
from localmem.evaluation.answers import Answer, Case, Judgement, Line, Read, Work
from localmem.evaluation.corpus_tables import MEMORY_TURNS, corpus_tables, graded_memory_tables
from localmem.evaluation.episodes import Episode, Probe
from localmem.evaluation.file_scoring import ScoringModels, TextRecipe
from localmem.evaluation.memory_turns import used_sentences
from localmem.evaluation.metrics.model_based import Likelihood
from localmem.evaluation.summary import UNCALIBRATED, SystemResult, key, score_answers, section
from localmem.evaluation.teafarm import success_rates
from localmem.llm.wrappers import PromptUsage
from localmem.reporting.sections import Chapter, Section, Table, html_page, markdown
from localmem.types import AddUnit, Unit

NO_MODELS = ScoringModels(Settings(model="absent"), TextRecipe(encoder="absent"))
TIME = datetime(2026, 3, 1, tzinfo=UTC)
USAGE = PromptUsage(calls=1, input_tokens=100, output_tokens=10)


def answer(system: str, probe: str, text: str, gold: str = "a red kite", **changes: object) -> Answer:
    plain = Answer(
        Work(system, "sample", "e1"),
        probe,
        "question",
        "single",
        "s1",
        "What flew?",
        (gold,),
        text=text,
        seconds={"recall": 0.5, "respond": 1.5},
        spent={"recall": {}, "respond": {"agent/respond": USAGE}},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def read(system: str, error: str = "") -> Read:
    spent = {"rsum/update": PromptUsage(calls=2, input_tokens=60, output_tokens=30)}
    return Read(Work(system, "sample", "e1"), "s1", "Ana", "Ana: A kite flew.", (), 3.0, spent, (), error)


LINES: list[Line] = [
    read("rsum"),
    read("none", "LLMUnavailable: no server"),
    *(answer("rsum", f"q{n}", "a red kite") for n in range(3)),
    answer("rsum", "q3", "", error="LLMUnavailable: no server"),
    *(answer("none", f"q{n}", "no idea") for n in range(4)),
]


def run_section(folder: Path, lines: list[Line] = LINES) -> Section:
    scores = score_answers([line for line in lines if isinstance(line, Answer)], [])
    return section("Run", ["a note"], lines, scores, folder, against=("none",))


def table(report: Section, caption: str) -> Table:
    return next(each for each in report.tables if caption in each.caption)


def test_a_failed_answer_scores_zero_and_is_counted(tmp_path: Path) -> None:
    quality = table(run_section(tmp_path), "quality")
    rows = {row[0]: dict(zip(quality.head, row, strict=True)) for row in quality.rows}
    assert rows["rsum"]["failed"] == "1"
    assert rows["rsum"]["F1"] == "0.750"
    assert rows["none"]["F1"] == "0.000"


def test_differences_are_paired_and_those_within_the_interval_are_marked(tmp_path: Path) -> None:
    assert table(run_section(tmp_path), "difference from none").rows[0][1] == "+0.750", "four say nothing"
    apart = [
        replace(answer(system, f"q{n}", text), work=Work(system, "sample", f"e{n % 4}"))
        for system, text in (("rsum", "a red kite"), ("none", "no"))
        for n in range(8)
    ]
    assert table(run_section(tmp_path, [*apart]), "difference from none").rows[0][1].startswith("+1.000 [+0.")
    others = (replace(line, text="red" if number == 0 else "a red kite") for number, line in enumerate(apart[8:]))
    similar = [*apart[:8], *others]
    assert table(run_section(tmp_path, [*similar]), "difference from none").rows[0][1].startswith("= ")


def test_costs_are_per_session_and_per_answer(tmp_path: Path) -> None:
    costs = {row[0]: row for row in table(run_section(tmp_path), "costs").rows}
    assert costs["rsum"] == ("rsum", "1", "0", "2.0", "90", "3.00", "0.0", "0", "0.500", "110", "10", "1.50", "0", "")
    assert costs["none"][2] == "1"  # sessions that failed to be read


def test_failed_answers_do_not_make_the_others_look_cheap() -> None:
    failed = [answer("rsum", f"f{n}", "", error="no server", seconds={}, spent={}) for n in range(3)]
    alone, among = (SystemResult([], [answer("rsum", "q", "a kite"), *others]) for others in ([], failed))
    assert among.cost_cells() == alone.cost_cells()
    assert (among.tokens, among.seconds) == (alone.tokens, alone.seconds) == (110, 2.0)


def test_categories_get_a_table_of_their_own(tmp_path: Path) -> None:
    lines: list[Line] = [*LINES, answer("rsum", "q8", "a red kite", about="multi")]
    categories = table(run_section(tmp_path, lines), "by question type")
    assert categories.head == ("system", "multi", "single")
    assert {row[0]: row[1:] for row in categories.rows}["rsum"] == ("1.000 (1)", "0.750 (4)")


def test_evidence_is_where_the_recalled_units_come_from() -> None:
    recalled = answer("rsum", "q", "x", evidence=("t1", "t2"), units=(("t1",), ("t9",)))
    assert score_answers([recalled], [])["evidence recalled"] == {key(recalled): 0.5}


def test_the_accuracy_of_golden_memories_is_the_share_of_answers_with_any_of_them() -> None:
    """Theanine, Table 3: the report of a run has it."""
    lines: list[Line] = [
        answer("theanine", f"q{n}", "x", evidence=("t1", "t2"), units=((turn,),)) for n, turn in enumerate(["t2", "t9"])
    ]
    scores = score_answers([line for line in lines if isinstance(line, Answer)], [])
    assert list(scores["any of it"].values()) == [1.0, 0.0]


def test_the_grades_of_memories_have_a_table_with_the_mean_of_each_criterion() -> None:
    grades = [{"integration": 2.0, "diversity": 4.0}, {"integration": 3.0, "diversity": 5.0}]
    verdicts = [
        Judgement("memory", "m", "", True, Case(Work("creem", "msc", f"e{n}"), ""), None, scores)
        for n, scores in enumerate(grades)
    ]
    (table,) = graded_memory_tables([*verdicts, replace(verdicts[0], scores={})])
    assert (table.caption, table.head) == (
        "msc: grades of memories",
        ("system", "memories", "integration", "diversity"),
    )
    assert [cell.partition(" ")[0] for cell in table.rows[0]] == ["creem", "2", "2.50", "4.50"]
    assert "memory: integration" not in score_answers([answer("creem", "q", "", error="x")], verdicts)


def test_an_uncalibrated_judge_is_marked_and_a_failed_answer_is_wrong() -> None:
    answers = [answer("rsum", "q1", "x"), answer("rsum", "q2", "", error="no server")]
    case = Case(answers[0].work, "q1")
    verdict = Judgement("correct", "m", "", False, case, "correct", {"right": 1.0, "correct": 1.0})
    scores = score_answers(answers, [verdict])
    assert scores[f"correct{UNCALIBRATED}"] == {key(answers[0]): 1.0, key(answers[1]): 0.0}
    assert "correct" in score_answers(answers, [replace(verdict, believable=True)])


def test_an_unusable_verdict_counts_as_the_worst_and_the_share_of_judged_answers_is_shown() -> None:
    answers = [answer("rsum", f"q{number}", "x") for number in range(3)]
    right = Judgement("correct", "m", "", True, Case(answers[0].work, "q0"), "correct", {"right": 1.0})
    unusable = [replace(right, case=Case(answers[0].work, probe), label=None, scores={}) for probe in ("q1", "q2")]
    measures = score_answers(answers, [right, *unusable])
    assert list(measures["correct"].values()).count(0.0) == 2
    assert measures["correct: judged"] == {key(answers[0]): 1.0, key(answers[1]): 0.0, key(answers[2]): 0.0}
    other = replace(unusable[0], model="n", label="correct", scores={"right": 1.0})
    assert score_answers(answers, [right, other, unusable[0]])["correct"][key(answers[1])] == 1.0
    assert "correct: judged" not in score_answers(answers, [right])
    (rate,) = success_rates(["rsum"], answers, [right, *unusable])
    assert rate.rate.mean == fmean(measures["correct"].values()), "TeaFarm's rule"


def test_a_failed_answer_is_worse_than_any_other_but_not_than_its_own() -> None:
    answers = [answer(system, "q1", "x") for system in ("rsum", "none")]
    failed = [answer(system, "q2", "", error="no server") for system in ("rsum", "none")]
    scores = {"first": 1.0, "second": 0.0, "tie": 0.0}
    verdict = Judgement("preference", "m", "", True, Case(answers[0].work, "q1", "none"), "first", scores)
    measures = score_answers([*answers, *failed], [verdict])
    assert measures["preference: better than none"] == {key(answers[0]): 1.0, key(failed[0]): 0.0}
    assert measures["preference: worse than none"] == {key(answers[0]): 0.0, key(failed[0]): 1.0}


def test_a_failed_reply_is_not_wrong_where_only_questions_are_judged() -> None:
    answers = [answer("rsum", "q1", "x"), answer("rsum", "q2", "", error="no server", kind="next")]
    verdict = Judgement("correct", "m", "", True, Case(answers[0].work, "q1"), "correct", {"right": 1.0})
    assert score_answers(answers, [verdict])["correct"] == {key(answers[0]): 1.0}


def test_corpus_metrics_of_all_answers_and_of_memories_against_gold_ones() -> None:
    unit = Unit("u1", "Ana has a kite.", "Ana has a kite.", "sentence", "Ana", "s1", (), TIME, TIME)
    memory_line = replace(read("rsum"), changes=(AddUnit(unit, TIME),), gold=("Ana has a kite.", "Ana lives in Lima."))
    corpus, memory = corpus_tables([memory_line, *LINES[2:6]], (), NO_MODELS)
    row = dict(zip(corpus.head, corpus.rows[0], strict=True))
    assert row["BLEU-1"] == "100.000"
    assert row["F1"] == "1.000"  # without the failed answer
    assert row["Distinct-1"] == f"{2 / 6:.3f}"  # red, kite; articles do not count
    assert dict(zip(memory.head, memory.rows[0], strict=True)) == {
        "system": "rsum",
        "sessions": "1",
        "precision of words": "1.000",
        "recall of words": f"{3 / 7:.3f}",
        "F1 of words": f"{6 / 10:.3f}",
        "precision of sentences": "1.000",
        "recall of sentences": "0.500",
        "F1 of sentences": f"{2 / 3:.3f}",
    }


def test_replies_that_use_the_gold_memory_have_a_table_of_their_own() -> None:
    probe = Probe("p1", "Any plans?", "I will fly my kite!", "next", kind="next", after="s1")
    units = tuple(
        Unit(text, text, text, "memory", "Ana", "s1", (), TIME, TIME) for text in ("Ana has a kite.", "Ana has plans.")
    )
    episode = Episode("e1", "report", (), (probe,), golds={"s1": units})
    assert used_sentences(episode, probe) == ("Ana has a kite.",), "the dialogue spoke of plans already"
    assert used_sentences(episode, replace(probe, kind="question")) == ()
    lines = [answer("rsum", "q1", "a red kite", rests_on=("Ana has a kite.",)), answer("rsum", "q2", "no idea")]
    everything, turns = corpus_tables(lines, (), NO_MODELS)
    assert MEMORY_TURNS in turns.caption
    rows = [dict(zip(table.head, table.rows[0], strict=True)) for table in (everything, turns)]
    assert [(row["answers"], row["F1"]) for row in rows] == [("2", "0.500"), ("1", "1.000")]


class NearKites(ScoringModels):
    """Texts about kites mean the same."""

    def similarities(self, memories: Sequence[str], golds: Sequence[str]) -> NDArray[np.float32]:
        return np.asarray([[float("kite" in own and "kite" in gold) for gold in golds] for own in memories], np.float32)


def test_memories_are_compared_by_meaning_where_that_is_asked_for() -> None:
    unit = Unit("u1", "Flying kites, Ana is happy.", "", "sentence", "Ana", "s1", (), TIME, TIME)
    line = replace(read("rsum"), changes=(AddUnit(unit, TIME),), gold=("Ana has a kite.", "Ana lives in Lima."))
    (memory,) = corpus_tables([line], ("meaning",), NearKites(Settings(model="absent"), TextRecipe()))
    row = dict(zip(memory.head, memory.rows[0], strict=True))
    assert (row["recall of sentences"], row["recall of sentences by meaning"]) == ("0.000", "0.500")


def test_perplexity_weighs_every_token_alike() -> None:
    answers: list[Line] = [
        answer("rsum", "q1", "x", likelihood=Likelihood(-1.0, 1, 0)),
        answer("rsum", "q2", "x", likelihood=Likelihood(-5.0, 2, 0)),
    ]
    (corpus,) = corpus_tables(answers, (), NO_MODELS)
    assert dict(zip(corpus.head, corpus.rows[0], strict=True))["perplexity of gold"] == f"{exp(6 / 3):.3f}"


def test_the_page_of_a_run_contains_every_answer_as_text(tmp_path: Path) -> None:
    lines: list[Line] = [*LINES, answer("rsum", "q9", "<script>alert(1)</script>")]
    report = run_section(tmp_path, lines)
    assert set(report.plots) == {"sample-tokens.png", "sample-seconds.png"}
    html = html_page("evaluation", [Chapter("Run", tmp_path, (report,))])
    assert html.count("<details") == 9
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html


def test_the_markdown_of_a_run_has_its_figures(tmp_path: Path) -> None:
    chapter = Chapter("Run", tmp_path / "run", (run_section(tmp_path),))
    text = markdown("evaluation", [chapter], tmp_path)
    assert "](run/sample-tokens.png)" in text
    assert "| rsum | 4 | 1 | 0.750" in text


def test_locomo_is_scored_with_and_without_what_was_never_said() -> None:
    work = Work("rsum", "locomo", "c1")
    golds = {"q1": ("single-hop", ("a red kite",)), "q2": ("adversarial", ("",)), "q3": ("adversarial", ("",))}
    texts = {"q1": "a red kite", "q2": "You never mentioned that.", "q3": "a red kite"}
    answers = [
        replace(answer("rsum", probe, texts[probe]), work=work, about=about, gold=gold)
        for probe, (about, gold) in golds.items()
    ]
    scores = score_answers(answers, [])
    assert [scores["LoCoMo F1"][key(each)] for each in answers] == [1.0, 1.0, 0.0]
    assert scores["LoCoMo F1 without adversarial"] == {key(answers[0]): 1.0}
    assert set(scores["F1"]) == {key(answers[0])}, "without a gold answer there is no overlap"
