"""The verdicts on a run: each case is judged once, and again when what was judged has changed."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from localmem.evaluation.answers import (
    FILE,
    Answer,
    JudgeSetup,
    Line,
    Read,
    Work,
    judge_all,
    open_judgements,
    read_judgements,
)
from localmem.evaluation.judging.judges import Item, get_judge
from localmem.evaluation.judging.verdicts import Verdict
from localmem.types import SetNote

WORK = Work("rsum", "sample", "e1")
ANSWER = Answer(WORK, "q1", "question", "single", "s1", "What flew?", ("a red kite",), text="a boat", recalled="boats")
TIME = datetime(2026, 3, 1, tzinfo=UTC)
READ = Read(WORK, "s1", "Ana", "Ana: A kite flew.", (SetNote("summary", "Ana has a kite.", TIME),), 3.0, {})


def judge_lines(folder: Path, judge: str, *lines: Line) -> list[Item]:
    """What a judge is asked about the lines of the run in `folder`; a right answer or memory contains "kite"."""
    requests: list[Item] = []

    def ask(items: Sequence[Item]) -> list[Verdict]:
        requests.extend(items)
        return [Verdict(None, {"right": float("kite" in item.get("answer", ""))}) for item in items]

    with open_judgements(folder) as log:
        judge_all(JudgeSetup(get_judge(judge), "m", ask, None), lines, "", log)
    return requests


def test_a_changed_answer_is_judged_again_and_its_latest_verdict_counts(tmp_path: Path) -> None:
    assert len(judge_lines(tmp_path, "correct", ANSWER)) == 1
    assert not judge_lines(tmp_path, "correct", replace(ANSWER, recalled="kites")), "the judge does not see it"
    better = replace(ANSWER, text="a red kite")
    assert len(judge_lines(tmp_path, "correct", better)) == 1
    assert not judge_lines(tmp_path, "correct", better)
    (verdict,) = read_judgements(tmp_path)
    assert verdict.scores == {"right": 1.0}


def test_a_verdict_that_is_not_usable_is_asked_for_again_with_another_seed_or_number_of_samples(tmp_path: Path) -> None:
    judge = get_judge("correct")
    setup = JudgeSetup(judge, "m", lambda items: [Verdict(unusable=1) for _ in items], None)
    others = [replace(setup, seed=1), replace(setup, judge=judge.with_samples(3)), replace(setup, model="n")]
    for own, count in [(setup, 1), (setup, 0), *((other, 1) for other in others), (setup, 0), (others[0], 0)]:
        with open_judgements(tmp_path) as log:
            assert len(judge_all(own, [ANSWER], "", log)) == count
    assert len((tmp_path / FILE).read_text().splitlines()) == 4
    changed = replace(ANSWER, text="a red kite")
    assert len(judge_lines(tmp_path, "correct", changed)) == 1
    assert not judge_lines(tmp_path, "correct", changed)


def test_the_memory_of_a_run_that_went_on_is_graded_again(tmp_path: Path) -> None:
    later = replace(READ, session="s2", changes=(SetNote("summary", "Ana has a kite and a boat.", TIME),))
    assert len(judge_lines(tmp_path, "memory", READ)) == 1
    assert [item["memory"] for item in judge_lines(tmp_path, "memory", READ, later)] == ["Ana has a kite and a boat."]
    assert len(read_judgements(tmp_path)) == 1


def test_a_verdict_of_an_earlier_version_is_not_given_again(tmp_path: Path) -> None:
    judge_lines(tmp_path, "correct", ANSWER)
    path = tmp_path / FILE
    record = json.loads(path.read_text(encoding="utf-8"))
    del record["item"]
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    assert not judge_lines(tmp_path, "correct", ANSWER)
    assert len(read_judgements(tmp_path)) == 1
