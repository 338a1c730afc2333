"""How well libraries that parse English dates do on turns of chats, beside our own rules. Run from the root.

Needs `pip install dateparser parsedatetime ctparse timefhuman python-dateutil`, best in an environment of its own; one
that is not installed has no row. Libraries give points in time, so that a point inside the expected days is right, and
the first of several counts. Texts and answers: compare_times.yaml.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml

from localmem.times.english import find_times

Parse = Callable[[str, datetime], Any]


class Case(NamedTuple):
    """A text, its day, and the days that it names; none where it names none."""

    text: str
    day: date
    first: date | None
    last: date | None


def read_cases() -> list[Case]:
    """The cases of compare_times.yaml."""
    entries = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return [Case(entry["text"], entry["day"], *_read_range(entry["expected"])) for entry in entries]


def _read_range(expected: date | str | None) -> tuple[date | None, date | None]:
    if not isinstance(expected, str):
        return expected, expected
    first, last = expected.split("..")
    return date.fromisoformat(first), date.fromisoformat(last)


def _points(value: Any) -> Iterator[date]:  # noqa: ANN401  # whatever a library returns
    """The days in a library's answer, in its order."""
    if isinstance(value, datetime):
        yield value.date()
    elif isinstance(value, date):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _points(part)
    elif getattr(value, "dt", None) is not None:  # a time of ctparse
        yield value.dt.date()
    elif hasattr(value, "start"):  # its interval, or one of timefhuman
        yield from _points(value.start)


def _ours(text: str, now: datetime) -> list[date]:
    return [span.readings[0].first for span in find_times(text, now.date()) if len(span.readings) == 1]


def load_libraries() -> dict[str, Parse]:
    """A function of a text and a moment for each library that is installed."""
    loaders: dict[str, Callable[[], Parse]] = {
        "dateparser": _load_dateparser,
        "parsedatetime": _load_parsedatetime,
        "ctparse": _load_ctparse,
        "timefhuman": _load_timefhuman,
        "dateutil": _load_dateutil,
        "localmem": lambda: _ours,
    }
    libraries: dict[str, Parse] = {}
    for name, load in loaders.items():
        with suppress(ImportError):
            libraries[name] = load()
    return libraries


def _load_dateparser() -> Parse:
    search = import_module("dateparser.search").search_dates
    return lambda text, now: search(text, languages=["en"], settings={"RELATIVE_BASE": now})


def _load_parsedatetime() -> Parse:
    calendar = import_module("parsedatetime").Calendar()
    return calendar.nlp  # type: ignore[no-any-return]


def _load_ctparse() -> Parse:
    ctparse = import_module("ctparse").ctparse
    return lambda text, now: getattr(ctparse(text, ts=now, timeout=2), "resolution", None)


def _load_timefhuman() -> Parse:
    module = import_module("timefhuman")
    return lambda text, now: module.timefhuman(text, config=module.tfhConfig(now=now))


def _load_dateutil() -> Parse:
    parser = import_module("dateutil.parser")

    def parse(text: str, now: datetime) -> datetime | None:
        with suppress(parser.ParserError, OverflowError):
            return parser.parse(text, default=now, fuzzy=True)  # type: ignore[no-any-return]
        return None

    return parse


def judge(case: Case, parse: Parse) -> str:
    """ "right", "wrong" or "none": what a library makes of a case; one that fails has found none."""
    try:
        day = next(_points(parse(case.text, datetime.combine(case.day, datetime.min.time()))), None)
    except Exception:  # noqa: BLE001  # libraries raise many things on ordinary text
        day = None
    if case.first is None or case.last is None:
        return "right" if day is None else "wrong"
    return "none" if day is None else "right" if case.first <= day <= case.last else "wrong"


def measure(cases: list[Case], parse: Parse) -> dict[str, float]:
    """Shares of cases, and the median milliseconds a text and a turn of about 40 words, after one that loads."""
    judge(Case("see you tomorrow", date(2025, 5, 1), None, None), parse)
    times = {"ms": _time(cases, parse), "ms of 40 words": _time(_join_cases(cases), parse)}
    verdicts = [judge(case, parse) for case in cases]
    shares = {verdict: round(verdicts.count(verdict) / len(cases), 2) for verdict in ("right", "wrong", "none")}
    return {**shares, **times}


def _join_cases(cases: list[Case]) -> list[Case]:
    """The cases as turns of 40 words and more."""
    turns, texts = [], list[str]()
    for case in cases:
        texts.append(case.text)
        if sum(len(text.split()) for text in texts) >= 40:
            turns.append(Case(". ".join(texts), case.day, None, None))
            texts = []
    return turns


def _time(cases: list[Case], parse: Parse) -> float:
    seconds = []
    for case in cases:
        start = time.perf_counter()
        judge(case, parse)
        seconds.append(time.perf_counter() - start)
    return round(1000 * median(seconds), 2)


if __name__ == "__main__":
    cases = read_cases()
    print(json.dumps({name: measure(cases, parse) for name, parse in load_libraries().items()}, indent=2))
