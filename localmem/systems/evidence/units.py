"""Units of what was said: each turn by itself, long ones in passages, and what is no evidence left out.

A unit's id names its exchange, so that both sides of one can be shown and ranked together. Pure functions.
"""

from collections.abc import Iterable, Set
from typing import NamedTuple

from localmem.retrieval.views import SIDE_MARK, exchange_of
from localmem.systems.evidence.asking import surely_asks
from localmem.text.dialogue import line
from localmem.text.passages import PASSAGE, split_passages
from localmem.text.provenance import DOCUMENT, FOREIGN, Piece, split_message
from localmem.turns.readings import is_reading
from localmem.turns.reminders import without_reminder
from localmem.turns.utterances import adds_nothing, is_correction, is_denial, is_evidence, is_small_talk, only_asks_back
from localmem.types import Session, Turn, Unit

STATEMENT = "statement"  # of the user
ANSWER = "answer"  # of the assistant
_REQUEST = 400  # characters of the user's turn that belong to the key of an answer
_FOREIGN_PASSAGE = 560  # characters of a text that is nobody's words: any such passage fits the share of a recall


class Place(NamedTuple):
    """A turn with the one that opened its exchange, which may be the turn itself."""

    turn: Turn
    opening: Turn

    @property
    def unit_prefix(self) -> str:
        """The ids of the turn's units, up to the number of the passage."""
        return f"{self.opening.id}{SIDE_MARK}{self.turn.role[0]}"


def places(session: Session) -> list[Place]:
    """Every turn of a session in its exchange."""
    exchanges = [exchange.turns() for exchange in session.exchanges()]
    return [Place(turn, turns[0]) for turns in exchanges for turn in turns]


def first_unit(opening: Turn) -> str:
    """The id of the first unit of a user's turn."""
    return f"{opening.id}{SIDE_MARK}u0"


def is_new(place: Place, earlier: Iterable[str], scorer: object = None) -> bool:
    """Whether a turn tells something: a user's statement, or a reply that says more than the `earlier` texts do.

    A reply of the reader does not, nor one to a question about the user: it repeats what was said, or is a model's
    guess. Such questions are recognised with a `scorer` that reads queries.
    """
    if place.turn.role == "user":
        return is_evidence(place.turn.text) or is_correction(place.turn.text)
    reply, request = without_reminder(place.turn.text), [place.opening.text] if place.opening is not place.turn else []
    if is_reading(reply) or is_denial(reply) or is_small_talk(reply) or only_asks_back(reply):
        return False
    if any(surely_asks(text, scorer) for text in request):
        return False
    return not adds_nothing(reply, [*request, *earlier])


def turn_units(session: str, place: Place) -> list[Unit]:
    """The units of a turn: one, or one for each text in it and passage of a long one.

    The key holds the exchange so far. What a user shows is no statement of theirs, so it replaces nothing they said.
    """
    turn, opening = place
    pieces = split_message(turn.text) if turn.role == "user" else (Piece("assistant", without_reminder(turn.text)),)
    passages = [
        Piece(piece.origin, text) for piece in pieces for text in split_passages(piece.text, _longest_passage(piece))
    ]
    request = [line(opening)[:_REQUEST]] if turn is not opening else []
    return [
        Unit(
            id=f"{place.unit_prefix}{number}",
            text=_shown_text(turn, passage, number, len(passages)),
            key="\n".join([*request, f"{turn.speaker}: {passage.text}"]),
            kind={"user": STATEMENT, "assistant": ANSWER}.get(passage.origin, DOCUMENT),
            speaker=turn.speaker,
            session=session,
            sources=(turn.id,) if turn is opening else (opening.id, turn.id),
            time=turn.time,
            learned=turn.time,
            origin=passage.origin,
        )
        for number, passage in enumerate(passages)
    ]


def _longest_passage(piece: Piece) -> int:
    return _FOREIGN_PASSAGE if piece.origin in FOREIGN else PASSAGE


def is_said_in(unit: Unit, turns: Set[str]) -> bool:
    """Whether a unit is what one of these turns says; one that was edited names its turn, but says something else."""
    return exchange_of(unit.id) in unit.sources and not turns.isdisjoint(unit.sources)


def _shown_text(turn: Turn, passage: Piece, number: int, count: int) -> str:
    """The passage under its speaker's name, with its place in a long message; what a user shows without the name."""
    if passage.origin not in ("user", "assistant"):
        return passage.text
    place = "" if count == 1 else f" (part {number + 1} of {count})"
    return f"{turn.speaker}{place}: {passage.text}"
