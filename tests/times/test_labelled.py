"""The labelled times are consistent, and at least as many of them are resolved as when this was measured last."""

from datetime import date
from typing import Any

import pytest
import yaml

from localmem.types import DateRange, TimeRole, TimeSpan
from tests.perf.measure_times import LABELLED, LANGUAGES, Answer, Answered, measure, measure_workings, session_of

# Language: the least share that is exact, the most that is wrong. What `python -m tests.perf.measure_times` prints.
FLOORS: dict[str, tuple[float, float]] = {
    "english": (0.94, 0.02),
    "german": (0.83, 0.04),
    "french": (0.93, 0.04),
    "chinese": (0.93, 0.04),
    "japanese": (0.89, 0.04),
    "spanish": (0.87, 0.07),
    "italian": (0.9, 0.04),
    "portuguese": (0.9, 0.04),
    "dutch": (0.87, 0.04),
}

# The least share of worked-out lines that are right, and of the solvable questions that get one.
RIGHT_LINES, WITH_A_LINE = 0.96, 0.64

MONDAY = DateRange(date(2025, 11, 10), date(2025, 11, 10))
TUESDAY = DateRange(date(2025, 11, 11), date(2025, 11, 11))


def _entries(language: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = yaml.safe_load((LABELLED / f"{language}.yaml").read_text(encoding="utf-8"))
    return entries


@pytest.mark.parametrize("language", FLOORS)
def test_times_are_resolved_as_labelled(language: str) -> None:
    least, most = FLOORS[language]
    outcomes = measure(language)
    exact = sum(outcome.verdict == "exact" for outcome in outcomes) / len(outcomes)
    wrong = [outcome.report() for outcome in outcomes if outcome.verdict == "wrong"]
    assert exact >= least, f"{exact:.3f} of the {language} times are right, {least} were"
    assert len(wrong) / len(outcomes) <= most, "\n".join(wrong)


def test_times_of_voices_that_were_looked_at_stay_resolved() -> None:
    outcomes = measure("english", "voices-seen")
    wrong = [outcome.report() for outcome in outcomes if outcome.verdict == "wrong"]
    assert sum(outcome.verdict == "exact" for outcome in outcomes) / len(outcomes) >= 0.97
    assert len(wrong) / len(outcomes) <= 0.01, "\n".join(wrong)


def test_workings_come_out_as_labelled() -> None:
    answered = measure_workings()
    lines = [answer for answer in answered if answer.line]
    wrong = [answer.report() for answer in lines if not answer.is_right()]
    assert 1 - len(wrong) / len(lines) >= RIGHT_LINES, "\n".join(wrong)
    solvable = [answer for answer in answered if answer.expected]
    assert sum(bool(answer.line) for answer in solvable) / len(solvable) >= WITH_A_LINE


@pytest.mark.parametrize("line", ["EUR 340 in all", "Mo and then Jo: 12,500", ""])
def test_a_working_holds_what_was_expected(line: str) -> None:
    assert Answered("?", ("340", "mo … jo: 12500"), line).is_right() == bool(line)
    assert Answered("?", ("34", "2500", "jo … mo"), line).is_right() is False
    assert Answered("?", (), line).is_right() != bool(line)


@pytest.mark.parametrize("language", [*LANGUAGES, *(path.stem for path in sorted(LABELLED.glob("english_*.yaml")))])
def test_labels_stand_in_their_text(language: str) -> None:
    for entry in _entries(language):
        for item in entry.get("expected", ()):
            assert item["words"] in entry["text"], entry["text"]
            assert item.get("optional") or item.get("readings") or item["first"] <= item["last"], entry["text"]


def test_labelled_turns_are_what_people_said() -> None:
    for entry in _entries("english"):
        if "source" in entry:
            session, turn = session_of(entry["source"])
            assert entry["text"] == session["turns"][turn]["content"]
            assert session["started_at"].startswith(entry["day"].isoformat())


@pytest.mark.parametrize(
    ("readings", "role", "verdict"),
    [
        ((MONDAY,), "at", "exact"),
        ((MONDAY,), "since", "near"),
        ((TUESDAY,), "at", "wrong"),
        ((MONDAY, TUESDAY), "at", "none"),
    ],
)
def test_a_sure_label_is_judged(readings: tuple[DateRange, ...], role: TimeRole, verdict: str) -> None:
    label = Answer(frozenset([MONDAY]), frozenset(["day"]), frozenset(["at"]), frozenset())
    assert label.judge(TimeSpan("Monday", 0, readings, "day", role)) == verdict


def test_an_ambiguous_label_asks_for_all_readings() -> None:
    label = Answer(frozenset([MONDAY, TUESDAY]), frozenset(["day"]), frozenset(["at"]), frozenset())
    assert label.judge(TimeSpan("9/11/25", 0, (TUESDAY, MONDAY), "day")) == "exact"
    assert label.judge(TimeSpan("9/11/25", 0, (MONDAY,), "day")) == "wrong"
