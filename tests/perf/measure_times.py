"""How many of the labelled times and workings (tests/times/labelled) come out right. Run from the root of the checkout.

An entry is a text and the local day on which it was said. `source` names its turn in finetune/lessons/people, whose
session is its context; `context` are the texts before one that was `written` for the test, where it leans on them.
Its `expected` spans carry their words, first and last day, precision, role and RRULE; a list of roles or precisions
accepts each of them, `also` other answers, several `readings` only all of them together. What is `optional` is not
counted whatever is found there; every other sure span where no label is counts as wrong.

A question of workings.yaml has the turns that are its evidence, and `expected` strings of which one must be in what is
worked out (parts around "…" in this order), or `none` where nothing may be. Superseded turns are not recalled.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from localmem import factory
from localmem.times.parts import Relevance
from localmem.times.resolver import find_times
from localmem.times.workings import work_out
from localmem.types import DateRange, TimeSpan, Unit

LABELLED = Path(__file__).parent.parent / "times" / "labelled"
PEOPLE = Path(__file__).parent.parent.parent / "finetune" / "lessons" / "people"
LANGUAGES = {
    "english": "en", "german": "de", "french": "fr", "chinese": "zh", "japanese": "ja", "spanish": "es",
    "italian": "it", "portuguese": "pt", "dutch": "nl",
}  # fmt: skip

Verdict = Literal["exact", "near", "wrong", "none"]
VERDICTS: tuple[Verdict, ...] = ("exact", "near", "wrong", "none")


class Answer(NamedTuple):
    """What counts as right: all of the readings, one of the precisions, one of the roles, this RRULE."""

    readings: frozenset[DateRange]
    precisions: frozenset[str]
    roles: frozenset[str]
    repeats: frozenset[str]

    def judge(self, span: TimeSpan) -> Verdict:
        """near: the days are right and the rest is not; none: unsure where the label is sure."""
        if self.readings != set(span.readings):
            return "wrong" if len(span.readings) == 1 else "none"
        kind_fits = span.precision in self.precisions and span.role in self.roles
        return "exact" if len(self.readings) > 1 or (kind_fits and self.repeats == _rule(span.repeats)) else "near"


@dataclass(frozen=True)
class Label:
    """A labelled time at characters `start` to `end`; any of the answers is right, none are given where optional."""

    words: str
    start: int
    end: int
    answers: tuple[Answer, ...]

    def overlaps(self, span: TimeSpan) -> bool:
        """Whether they share a character."""
        return span.at < self.end and self.start < span.at + len(span.words)


@dataclass(frozen=True)
class Outcome:
    """What became of a label, or of a span where no label is (`label` None)."""

    verdict: Verdict
    day: date
    text: str
    label: Label | None
    spans: tuple[TimeSpan, ...]

    def report(self) -> str:
        """For the list of misses."""
        wanted = " or ".join(_shown(answer) for answer in self.label.answers) if self.label else "nothing"
        words = self.label.words if self.label else self.spans[0].words
        found = "; ".join(f"{span.words!r} {_shown(_answer_of(span))}" for span in self.spans) or "nothing"
        return f"{self.verdict:5} {self.day:%a %Y-%m-%d} {words!r}: {wanted}, got {found}\n      {self.text}"


def measure(language: str, part: str = "all") -> list[Outcome]:
    """The outcome of every label of a language, and of every sure span beside them."""
    of_voices = part.startswith("voices-")
    name = f"{language}_{part.replace('-', '_')}" if of_voices else language
    entries = yaml.safe_load((LABELLED / f"{name}.yaml").read_text(encoding="utf-8"))
    if part != "all" and not of_voices:
        entries = [entry for entry in entries if _is_seen(entry) == (part == "seen")]
    return [outcome for entry in entries for outcome in _outcomes(entry, LANGUAGES[language])]


def _is_seen(entry: Mapping[str, Any]) -> bool:
    """Whether the English rules were mended by the entry: by all but those of author m."""
    return not str(entry.get("source", "")).startswith("m-")


def shares(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Expressions and, of each verdict, the share with its 95 % interval. A span beside the labels is a wrong one."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    figures: dict[str, object] = {"expressions": sum(outcome.label is not None for outcome in outcomes)}
    for verdict in VERDICTS:
        figures[verdict] = [round(share, 3) for share in wilson(counts[verdict], len(outcomes))]
    return figures


@dataclass(frozen=True)
class Answered:
    """A question, what may be worked out from its evidence (nothing: no strings), and what was ("" for nothing)."""

    question: str
    expected: tuple[str, ...]
    line: str

    def is_right(self) -> bool:
        """Whether the line holds one of the expected strings; no line is right where nothing is expected."""
        line = re.sub(r"(?<=\d)[,\u00a0\u202f](?=\d{3}(?!\d))", "", self.line.lower())
        patterns = (".*".join(_alone(part) for part in string.split("…")) for string in self.expected)
        return any(re.search(pattern, line) for pattern in patterns) if self.expected else not line

    def report(self) -> str:
        """For the list of misses."""
        return f"{self.question}\n      {' or '.join(self.expected) or 'nothing'}, got {self.line or 'nothing'}"


def measure_workings(relevance: Relevance | None = None) -> list[Answered]:
    """The labelled questions, each with the first thing that is worked out for it."""
    entries = yaml.safe_load((LABELLED / "workings.yaml").read_text(encoding="utf-8"))
    return [_answered(entry, relevance) for entry in entries]


def workings_shares(answered: Sequence[Answered]) -> dict[str, object]:
    """Of the lines: how many are right. Of the questions with a result: how many get a line. Of the others: none."""
    lines = [answer for answer in answered if answer.line]
    solvable = [answer for answer in answered if answer.expected]
    others = [answer for answer in answered if not answer.expected]
    pairs = {
        "right lines": (sum(answer.is_right() for answer in lines), len(lines)),
        "questions with a line": (sum(bool(answer.line) for answer in solvable), len(solvable)),
        "nothing where nothing may be": (sum(not answer.line for answer in others), len(others)),
    }
    return {
        name: [total, *(round(share, 3) for share in wilson(count, total))] for name, (count, total) in pairs.items()
    }


def wilson(count: int, total: int) -> tuple[float, float, float]:
    """The share, and the ends of its 95 % interval (Wilson, 1927)."""
    if not total:
        return 0.0, 0.0, 1.0
    z = 1.959964
    share = count / total
    middle = share + z * z / (2 * total)
    half = z * (share * (1 - share) / total + z * z / (4 * total * total)) ** 0.5
    scale = 1 + z * z / total
    return share, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def _answered(entry: Mapping[str, Any], relevance: Relevance | None) -> Answered:
    turns = [turn for turn in entry["turns"] if not turn.get("superseded")]
    times = [turn["time"].replace(tzinfo=UTC) for turn in turns]
    units = [
        Unit(str(at), turn["text"], turn["text"], "turn", turn["speaker"], str(time.date()), (str(at),), time, time)
        for at, (turn, time) in enumerate(zip(turns, times, strict=True))
    ]
    workings = work_out(entry["question"], entry["asked"], units, relevance)
    return Answered(entry["question"], tuple(entry.get("expected", ())), workings[0].text if workings else "")


def _alone(part: str) -> str:
    """A pattern for a string that is no part of a longer number."""
    return rf"(?<![\d.]){re.escape(part.strip())}(?!\d|\.\d)"


def _outcomes(entry: Mapping[str, Any], code: str) -> Iterator[Outcome]:
    day, text = entry["day"], entry["text"]
    context: list[TimeSpan] = []
    for earlier in _texts_before(entry):
        context += find_times(earlier, day, context, language=code)
    spans = find_times(text, day, context, language=code)
    labels = list(_labels(text, entry.get("expected", ())))
    for label in labels:
        if label.answers:
            near_by = tuple(span for span in spans if label.overlaps(span))
            yield Outcome(_verdict(label, near_by), day, text, label, near_by)
    for span in spans:
        if len(span.readings) == 1 and not any(label.overlaps(span) for label in labels):
            yield Outcome("wrong", day, text, None, (span,))


def _texts_before(entry: Mapping[str, Any]) -> list[str]:
    if "source" not in entry:
        return list(entry.get("context", ()))
    session, turn = session_of(entry["source"])
    return [earlier["content"] for earlier in session["turns"][:turn]]


def session_of(source: str) -> tuple[dict[str, Any], int]:
    """The session and the place in it of a turn like h-1.0.4: person, session, turn."""
    person, session, turn = source.split(".")
    return _sessions(person)[int(session)], int(turn)


@cache
def _sessions(person: str) -> list[dict[str, Any]]:
    sessions: list[dict[str, Any]] = json.loads((PEOPLE / f"{person}.json").read_text(encoding="utf-8"))["sessions"]
    return sessions


def _verdict(label: Label, spans: Sequence[TimeSpan]) -> Verdict:
    verdicts = {answer.judge(span) for answer in label.answers for span in spans}
    return next((verdict for verdict in VERDICTS if verdict in verdicts), "none")


def _labels(text: str, expected: Sequence[Mapping[str, Any]]) -> Iterator[Label]:
    """The same words twice are two places, in the order of the text."""
    ends: dict[str, int] = {}
    for item in expected:
        words = item["words"]
        start = text.index(words, ends.get(words, 0))
        ends[words] = start + len(words)
        answers = () if item.get("optional") else (_answer(item), *map(_answer, item.get("also", ())))
        yield Label(words, start, ends[words], answers)


def _answer(item: Mapping[str, Any]) -> Answer:
    readings = item.get("readings") or [[item["first"], item["last"]]]
    return Answer(
        frozenset(DateRange(*reading) for reading in readings),
        _choices(item["precision"]),
        _choices(item["role"]),
        _rule(item.get("repeats", "")),
    )


def _answer_of(span: TimeSpan) -> Answer:
    return Answer(frozenset(span.readings), _choices(span.precision), _choices(span.role), _rule(span.repeats))


def _choices(value: str | list[str]) -> frozenset[str]:
    return frozenset([value] if isinstance(value, str) else value)


def _rule(repeats: str) -> frozenset[str]:
    """The parts of an RRULE; their order says nothing, nor does that of its days."""
    parts = [part.partition("=") for part in repeats.upper().removeprefix("RRULE:").split(";") if part]
    pairs = {f"{name}={','.join(sorted(values.split(',')))}" for name, _, values in parts}
    return frozenset(pairs - {"INTERVAL=1"})


def _shown(answer: Answer) -> str:
    days = " | ".join(f"{first}..{last}" for first, last in sorted(answer.readings))
    parts = ["/".join(sorted(values)) for values in (answer.precisions, answer.roles)]
    return " ".join([days, *parts, ";".join(sorted(answer.repeats))]).strip()


def main() -> None:
    """Print a row for each language, or JSON; with --misses what was not exact."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help="default: all")
    parts = ("all", "seen", "unseen", "voices-seen", "voices-unseen")
    parser.add_argument("--part", choices=parts, default="all", help="of English: rules mended by it or not")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--misses", action="store_true", help="list what is not right")
    parser.add_argument("--workings", action="store_true", help="sums, durations and orders in place of times")
    parser.add_argument("--reranker", help="judges by it which parts are meant, as the evidence memory does")
    options = parser.parse_args()
    if options.workings:
        answered = measure_workings(factory.reranker(options.reranker, "cpu").score if options.reranker else None)
        print(json.dumps(workings_shares(answered), indent=1))
        print(*(answer.report() for answer in answered if options.misses and not answer.is_right()), sep="\n")
        return
    results = {language: measure(language, options.part) for language in options.languages or LANGUAGES}
    others = [outcome for language, outcomes in results.items() if language != "english" for outcome in outcomes]
    figures = {language: shares(outcomes) for language, outcomes in results.items()} | {"others": shares(others)}
    print(json.dumps(figures, indent=1) if options.json else _table(figures))
    if options.misses:
        for language, outcomes in results.items():
            lines = [outcome.report() for outcome in outcomes if outcome.verdict != "exact"]
            print(f"\n{language}", *lines, sep="\n")


def _table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [f"{'language':11}{'number':>7}" + "".join(f"{verdict:>18}" for verdict in VERDICTS)]
    for language, row in figures.items():
        cells = (f"{row[verdict][0]:.3f} ({row[verdict][1]:.2f}-{row[verdict][2]:.2f})" for verdict in VERDICTS)
        lines.append(f"{language:11}{row['expressions']:>7}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
