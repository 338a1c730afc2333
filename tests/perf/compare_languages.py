"""What dateparser finds in the texts of tests/times/languages.yaml, and how long it and our rules take for them.

Run from the root: `python -m tests.perf.compare_languages`.

A text counts as right if one time is found that lies inside the days of its first time; dateparser marks no ranges.
"""

import time
import warnings
from collections import Counter
from datetime import datetime
from pathlib import Path
from statistics import median

import yaml
from dateparser.search import search_dates

from localmem.times.languages import find_times

NOON = datetime(2025, 10, 15, 12)  # noqa: DTZ001  # dateparser takes a naive moment
SETTINGS = {"RELATIVE_BASE": NOON, "PREFER_DATES_FROM": "future", "DATE_ORDER": "DMY"}


def judge(language: str, text: str, times: str) -> str:
    """Whether dateparser is "right", "wrong", rightly "silent", or finds "none"."""
    matches = search_dates(text, languages=[language], settings=SETTINGS) or []
    if not times or not matches:
        return ("wrong" if matches else "silent") if not times else "none"
    readings = [days.split("..") for days in times.split(" = ")[1].split(maxsplit=1)[0].split("|")]
    day = str(matches[0][1].date())
    return "right" if len(matches) == 1 and any(days[0] <= day <= days[-1] for days in readings) else "wrong"


def _ms(seconds: list[float]) -> str:
    return f"{1000 * median(seconds[len(seconds) // 2 :]):.2f}"


def main() -> None:
    """Print a row for each language."""
    warnings.simplefilter("ignore")
    table = yaml.safe_load(Path("tests/times/languages.yaml").read_text(encoding="utf-8"))
    for language, rows in table.items():
        counts: Counter[str] = Counter()
        theirs, ours = [], []
        for text in (*rows, *rows):  # the first time compiles patterns
            start = time.perf_counter()
            outcome = judge(language, text, rows[text])
            between = time.perf_counter()
            find_times(text, NOON.date(), (), language)
            theirs.append(between - start)
            ours.append(time.perf_counter() - between)
            counts[outcome] += 1
        columns = " ".join(f"{name} {counts[name] // 2}" for name in ("right", "silent", "wrong", "none"))
        print(f"{language}: {len(rows)} texts, {columns}, {_ms(theirs)} and {_ms(ours)} ms")


if __name__ == "__main__":
    main()
