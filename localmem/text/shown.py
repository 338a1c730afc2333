"""Sentences and summaries as units, and as many of them as a reply's prompt has room for.

Knows no system. What does not fit is left out from the oldest on, logged and counted, before a backend would cut.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from localmem.llm.base import LLM
from localmem.llm.structured_output import unusable
from localmem.text.dialogue import dated
from localmem.text.history import newest, room
from localmem.types import Hit, Recall, Session, Unit


def statements(session: Session, texts: Iterable[str], kind: str) -> list[Unit]:
    """A unit for each text about the whole session; the session has a turn at least."""
    end = session.turns[-1].time
    return [
        Unit(
            id=f"{session.id}/{kind}{number}",
            text=text,
            key=text,
            kind=kind,
            speaker="",
            session=session.id,
            sources=tuple(turn.id for turn in session.turns),
            time=end,
            learned=end,
        )
        for number, text in enumerate(texts)
    ]


def all_that_fit(
    llm: LLM, session: Session, reply_prompt: str, units: Sequence[Unit], fallbacks: Counter[str]
) -> list[Unit]:
    """The newest units that fit beside the dialogue when each is written with its date."""
    written = [replace(unit, text=dated([unit])) for unit in units]
    kept = len(newest(written, room(llm, session, reply_prompt), llm.count_tokens))
    if kept < len(units):
        unusable(reply_prompt, f"the newest {kept} of {len(units)} memories fit its context", fallbacks)
    return list(units[len(units) - kept :])


def recalled(units: Sequence[Unit]) -> Recall:
    """These units with their dates, in the order given."""
    return Recall(text=dated(units), hits=tuple(Hit(unit, 0.0) for unit in units))
