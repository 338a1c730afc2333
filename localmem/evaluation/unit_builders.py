"""Sessions become units of a chosen size, and units get keys of a chosen form. Knows no retriever and no data set.

The texts are those that the memory systems show; only keys differ here. Segmenter, summarizer and compressor are parts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from typing import Literal

from localmem.errors import BadInput
from localmem.files import JsonlLog
from localmem.segmentation import Segmenter
from localmem.text.compress import Compressor
from localmem.text.dialogue import day, line, transcript
from localmem.text.units import exchange_units, session_units, statement_units, transcript_unit, utterance_units
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
    return [unit for session in sessions for unit in utterance_units(session)]


def exchanges_of(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each exchange."""
    return [unit for session in sessions for unit in exchange_units(session)]


def sessions_of(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each session."""
    return [unit for session in sessions for unit in session_units(session)]


def segments_of(sessions: Sequence[Session], segmenter: Segmenter) -> list[Unit]:
    """A unit for each segment that the segmenter finds."""
    units: list[Unit] = []
    for session, ranges in zip(sessions, segmenter.segment(sessions), strict=True):
        held = session.exchanges()
        runs = ([turn for exchange in held[one.start : one.stop] for turn in exchange.turns()] for one in ranges)
        units += [transcript_unit(session, f"g{number}", run, "segment") for number, run in enumerate(runs)]
    return units


def sentences_of(sessions: Sequence[Session], sentences: Sentences) -> list[Unit]:
    """A unit for each sentence that sums a session up."""
    return [unit for session in sessions for unit in statement_units(session, sentences(session), MEMORY)]


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


@dataclass(frozen=True, slots=True)
class SessionSentences:
    """The sentences of a session; `digest` is over its turns and the maker."""

    session: str
    digest: str
    sentences: list[str]


class SentenceCache:
    """Sentences of sessions in an open log, so that an interrupted run resumes.

    `make` is called for sessions that the log lacks; `maker` names it (model and prompt), and sentences of another
    maker are not used.
    """

    def __init__(
        self, log: JsonlLog[SessionSentences], maker: str, make: Callable[[Sequence[Turn]], list[str]]
    ) -> None:
        self._log, self._maker, self._make = log, maker, make
        self._sentences = {entry.digest: entry.sentences for entry in log.records}

    def __call__(self, session: Session) -> list[str]:
        digest = sha256("\n".join([self._maker, *map(line, session.turns)]).encode()).hexdigest()
        if digest not in self._sentences:
            entry = SessionSentences(session.id, digest, self._make(session.turns))
            self._log.append(entry)
            self._sentences[digest] = entry.sentences
        return self._sentences[digest]
