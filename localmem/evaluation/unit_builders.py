"""Sessions become units of a chosen size, and units get keys of a chosen form. Knows no retriever and no data set.

The texts are those that the memory systems show; only keys differ here. Segmenter, summarizer and compressor are parts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Literal

from localmem.errors import BadInput
from localmem.text.base import Compressor, Segmenter
from localmem.text.dialogue import day, line, transcript
from localmem.text.history import utterances
from localmem.text.shown import statements
from localmem.text.units import exchanges, said, whole
from localmem.types import Session, Turn, Unit

Builder = Callable[[Sequence[Session]], list[Unit]]
Sentences = Callable[[Session], list[str]]
Form = Literal["plain", "speaker", "dated"]

MEMORY = "memory"  # the kind of units that are about a session and do not show its words


@dataclass(frozen=True, slots=True)
class KeyForm:
    """What a key holds: the words (plain), who said them (speaker), and when (dated).

    `before` and `after` units of the same session lend it their words. `rate` below 1 compresses it.
    """

    form: Form = "plain"
    before: int = 0
    after: int = 0
    rate: float = 1.0


def turns_of(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each turn."""
    return [unit for session in sessions for unit in utterances(session)]


def exchanges_of(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each exchange."""
    return [unit for session in sessions for unit in exchanges(session)]


def sessions_of(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each session."""
    return [unit for session in sessions for unit in whole(session)]


def segments_of(sessions: Sequence[Session], segmenter: Segmenter) -> list[Unit]:
    """A unit for each segment that the segmenter finds."""
    units: list[Unit] = []
    for session, ranges in zip(sessions, segmenter.segment(sessions), strict=True):
        held = session.exchanges()
        runs = ([turn for exchange in held[one.start : one.stop] for turn in exchange.turns()] for one in ranges)
        units += [said(session, f"g{number}", run, "segment") for number, run in enumerate(runs)]
    return units


def sentences_of(sessions: Sequence[Session], sentences: Sentences) -> list[Unit]:
    """A unit for each sentence that sums a session up."""
    return [unit for session in sessions for unit in statements(session, sentences(session), MEMORY)]


def keyed(
    units: Sequence[Unit], sessions: Sequence[Session], form: KeyForm, compressor: Compressor | None = None
) -> list[Unit]:
    """The units with keys of this form. A compressor is needed for a rate below 1."""
    said_as = {turn.id: turn for session in sessions for turn in session.turns}
    keys: list[str] = []
    for _, group in groupby(units, key=lambda unit: unit.session):
        held = list(group)
        keys += [_key(held, place, form, said_as) for place in range(len(held))]
    made = [replace(unit, key=key) for unit, key in zip(units, keys, strict=True)]
    if form.rate == 1:
        return made
    if compressor is None:
        raise BadInput(f"a rate of {form.rate} needs a compressor")
    return shortened(made, compressor, form.rate)


def shortened(units: Sequence[Unit], compressor: Compressor, rate: float) -> list[Unit]:
    """The units with their keys compressed, all at once; a key of which nothing would stay stays as it is."""
    keys = compressor.compress([unit.key for unit in units], rate)
    return [replace(unit, key=key or unit.key) for unit, key in zip(units, keys, strict=True)]


def _key(held: Sequence[Unit], place: int, form: KeyForm, said_as: Mapping[str, Turn]) -> str:
    shown = held[max(0, place - form.before) : place + form.after + 1]
    words = "\n".join(_words(unit, form.form, said_as) for unit in shown)
    return f"{day(held[place].time)}\n{words}" if form.form == "dated" else words


def _words(unit: Unit, form: Form, said_as: Mapping[str, Turn]) -> str:
    if unit.kind == MEMORY:
        return unit.text
    turns = [said_as[key] for key in unit.sources]
    return "\n".join(turn.text for turn in turns) if form == "plain" else transcript(turns)


class KeptSentences:
    """Sentences of sessions in a file, so that a run that was broken off goes on where it stood.

    `make` is asked for sessions that the file does not hold; `maker` names it (model and prompt), and sentences of
    another maker are not taken.
    """

    def __init__(self, path: Path, maker: str, make: Callable[[Sequence[Turn]], list[str]]) -> None:
        self._path, self._maker, self._make = path, maker, make
        self._kept: dict[str, list[str]] = {}
        for row in _whole_rows(path):
            self._kept[str(row["digest"])] = list(row["sentences"])

    def __call__(self, session: Session) -> list[str]:
        digest = sha256("\n".join([self._maker, *map(line, session.turns)]).encode()).hexdigest()
        if digest not in self._kept:
            self._kept[digest] = self._make(session.turns)
            row = {"session": session.id, "digest": digest, "sentences": self._kept[digest]}
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        return self._kept[digest]


def _whole_rows(path: Path) -> list[dict[str, list[str]]]:
    """The file's rows; a last one that was broken off in the middle is cut from the file."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    whole_lines = text[: text.rfind("\n") + 1]
    if whole_lines != text:
        path.write_text(whole_lines, encoding="utf-8")
    return [json.loads(one) for one in whole_lines.splitlines()]
