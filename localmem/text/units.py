"""Consecutive turns as one unit: what was said, word for word, under the speakers' names.

Knows no system. Exchanges, segments and whole sessions are remembered this way; the key may be another text.
"""

from collections.abc import Sequence

from localmem.text.dialogue import transcript
from localmem.types import Session, Turn, Unit


def said(session: Session, name: str, turns: Sequence[Turn], kind: str, key: str = "") -> Unit:
    """The unit `name` of the session over some of its turns (one at least); the key is the text unless one is given."""
    text = transcript(turns)
    return Unit(
        id=f"{session.id}/{name}",
        text=text,
        key=key if key.strip() else text,
        kind=kind,
        speaker="",
        session=session.id,
        sources=tuple(turn.id for turn in turns),
        time=turns[0].time,
        learned=session.turns[-1].time,
    )


def exchanges(session: Session) -> list[Unit]:
    """A unit for each exchange."""
    return [
        said(session, f"e{number}", exchange.turns(), "exchange") for number, exchange in enumerate(session.exchanges())
    ]


def whole(session: Session) -> list[Unit]:
    """One unit for the session; none where nothing was said."""
    return [said(session, "session", session.turns, "session")] if session.turns else []
