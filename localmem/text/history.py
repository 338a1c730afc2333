"""Past dialogue kept word for word: a unit an utterance, and as much of it as fits a reply's prompt.

Knows no system. What is shown is the newest that fits, whole utterances, written out in the order it was said.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from localmem.llm.base import LLM
from localmem.prompts import load
from localmem.text.dialogue import Count, day, line, transcript
from localmem.types import Session, Unit

UTTERANCE = "utterance"

_BLOCK = 64  # utterances counted at once: a history of any length costs no more than what is shown of it


def utterances(session: Session) -> list[Unit]:
    """A unit for each turn: its text with the speaker's name, its key without."""
    return [
        Unit(
            id=f"{session.id}/t{number}",
            text=line(turn),
            key=turn.text,
            kind=UTTERANCE,
            speaker=turn.speaker,
            session=session.id,
            sources=(turn.id,),
            time=turn.time,
            learned=session.turns[-1].time,
        )
        for number, turn in enumerate(session.turns)
    ]


def newest(units: Sequence[Unit], budget: int, count: Count) -> list[Unit]:
    """The longest run of last units whose texts hold at most `budget` tokens together, in their order."""
    kept: list[Unit] = []
    for end in range(len(units), 0, -_BLOCK):
        block = units[max(0, end - _BLOCK) : end][::-1]
        for unit, size in zip(block, count([f"{unit.text}\n" for unit in block]), strict=True):
            if size > budget:
                return kept[::-1]
            budget -= size
            kept.append(unit)
    return kept[::-1]


def written(units: Iterable[Unit]) -> str:
    """Utterances in the order given, each session's under its date, sessions apart by an empty line."""
    sessions = groupby(units, key=lambda unit: unit.session)
    return "\n\n".join(_session(list(said)) for _, said in sessions)


def room(llm: LLM, session: Session, reply_prompt: str, beside: str = "") -> int:
    """Tokens left for the past in the reply's prompt, beside the dialogue so far, the answer and the text `beside`.

    A quarter of what is left goes to instructions and template.
    """
    held = sum(llm.count_tokens([transcript(session.turns), beside]))
    left = llm.context_length - load(reply_prompt).max_tokens - held
    return max(0, left * 3 // 4)


def _session(said: Sequence[Unit]) -> str:
    return "\n".join([day(said[0].time), *(unit.text for unit in said)])
