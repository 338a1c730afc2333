"""Times in languages other than English: what each expression means, what names no time, and other languages."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
import yaml

from localmem.times.languages import find_times
from localmem.types import TimeSpan

DAY = date(2025, 10, 15)  # a Wednesday
TABLE = yaml.safe_load(Path(__file__).with_name("languages.yaml").read_text(encoding="utf-8"))


def _cases() -> Iterator[tuple[str, str, str]]:
    for language, rows in TABLE.items():
        yield from ((language, text, times) for text, times in rows.items())


def _describe(span: TimeSpan) -> str:
    readings = "|".join(f"{first}..{last}" if first != last else str(first) for first, last in span.readings)
    role = f" {span.role} {span.repeats}".rstrip() if span.repeats or span.role != "at" else ""
    return f"{span.words} = {readings} {span.precision}{role}"


@pytest.mark.parametrize(("language", "text", "times"), list(_cases()))
def test_what_is_said_means_these_days(language: str, text: str, times: str) -> None:
    spans = find_times(text, DAY, (), language)
    assert "; ".join(map(_describe, spans)) == times
    assert all(text[span.at :].startswith(span.words) for span in spans)
