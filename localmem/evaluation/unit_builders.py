"""Units of a chosen size from sessions, with keys of a chosen form. Does not depend on any retriever or data set.

The texts are those that memory systems show; only keys differ here. Segmenter, summarizer and compressor are passed in.
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
from localmem.text.dialogue import (
    day,
    exchange_units,
    line,
    session_units,
    statement_units,
    transcript,
    transcript_unit,
    utterance_units,
)
from localmem.types import Session, Turn, Unit

Builder = Callable[[Sequence[Session]], list[Unit]]
Sentences = Callable[[Session], list[str]]
Form = Literal["plain", "speaker", "dated"]

MEMORY = "memory"  # the kind of units that summarise a session and do not show its words


@dataclass(frozen=True, slots=True)
class KeyForm:
    """What a key contains: the words (plain), with their speakers (speaker), and with the date (dated).

    The words of `before` and `after` neighbouring units of the same session are included. A `rate` below 1 compresses
    the key.
    """

    form: Form = "plain"
    before: int = 0
    after: int = 0
    rate: float = 1.0


def build_turns(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each turn."""
    return [unit for session in sessions for unit in utterance_units(session)]


def build_exchanges(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each exchange."""
    return [unit for session in sessions for unit in exchange_units(session)]


def build_sessions(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each session."""
    return [unit for session in sessions for unit in session_units(session)]


def build_segments(sessions: Sequence[Session], segmenter: Segmenter) -> list[Unit]:
    """A unit for each segment of the segmenter."""
    units: list[Unit] = []
    for session, ranges in zip(sessions, segmenter.segment(sessions), strict=True):
        exchanges = session.exchanges()
        for number, segment in enumerate(ranges):
            turns = [turn for exchange in exchanges[segment.start : segment.stop] for turn in exchange.turns()]
            units.append(transcript_unit(session, f"g{number}", turns, "segment"))
    return units


def build_memories(sessions: Sequence[Session], sentences: Sentences) -> list[Unit]:
    """A unit for each sentence that summarises a session."""
    return [unit for session in sessions for unit in statement_units(session, sentences(session), MEMORY)]


def apply_key_form(
    units: Sequence[Unit], sessions: Sequence[Session], form: KeyForm, compressor: Compressor | None = None
) -> list[Unit]:
    """The units with keys of this form. Raises BadInput for a rate below 1 without a compressor."""
    turns = {turn.id: turn for session in sessions for turn in session.turns}
    result: list[Unit] = []
    for _, group in groupby(units, key=lambda unit: unit.session):
        neighbours = list(group)
        result += [replace(unit, key=_key(neighbours, place, form, turns)) for place, unit in enumerate(neighbours)]
    if form.rate == 1:
        return result
    if compressor is None:
        raise BadInput(f"a rate of {form.rate} needs a compressor")
    return compress_keys(result, compressor, form.rate)


def compress_keys(units: Sequence[Unit], compressor: Compressor, rate: float) -> list[Unit]:
    """The units with their keys compressed, all at once; a key that would become empty is left unchanged."""
    keys = compressor.compress([unit.key for unit in units], rate)
    return [replace(unit, key=key or unit.key) for unit, key in zip(units, keys, strict=True)]


def _key(neighbours: Sequence[Unit], place: int, form: KeyForm, turns: Mapping[str, Turn]) -> str:
    included = neighbours[max(0, place - form.before) : place + form.after + 1]
    words = "\n".join(_words(unit, form.form, turns) for unit in included)
    return f"{day(neighbours[place].time)}\n{words}" if form.form == "dated" else words


def _words(unit: Unit, form: Form, turns: Mapping[str, Turn]) -> str:
    if unit.kind == MEMORY:
        return unit.text
    sources = [turns[key] for key in unit.sources]
    return "\n".join(turn.text for turn in sources) if form == "plain" else transcript(sources)


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
        """The sentences of a session."""
        digest = sha256("\n".join([self._maker, *map(line, session.turns)]).encode()).hexdigest()
        if digest not in self._sentences:
            entry = SessionSentences(session.id, digest, self._make(session.turns))
            self._log.append(entry)
            self._sentences[digest] = entry.sentences
        return self._sentences[digest]
