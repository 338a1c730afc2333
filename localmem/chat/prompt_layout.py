"""Recalled memory that stays where it was shown, with its turn, so that a session's prompt begins as the one before.

A server keeps what it has computed of a prompt's beginning. Were the memory of the turn before taken away, all behind
it would be computed again; as it stays, only what is new is. Knows dialogues and texts; no bank, no model.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localmem.types import Session, Turn

Count = Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True, slots=True)
class Placed:
    """A turn's text as the model saw it, the pieces of memory in it, and how many tokens those are."""

    content: str
    pieces: frozenset[str]
    tokens: int


class Places:
    """What was shown with which turn of the sessions that go on; for many threads.

    `budget` bounds the tokens of memory that one session's dialogue holds: past it the session starts afresh, so that
    what was recalled long ago does not crowd out what is said.
    """

    def __init__(self, count: Count, budget: int) -> None:
        self._count = count
        self._budget = budget
        self._guard = threading.Lock()
        self._held: dict[str, dict[str, Placed]] = {}

    def content(self, session_id: str, turn: Turn) -> str:
        """The turn's text, with the memory that was shown with it."""
        placed = self._held.get(session_id, {}).get(turn.id)
        return placed.content if placed and placed.content.endswith(turn.text) else turn.text  # it may have been edited

    def fresh(self, dialogue: Session, text: str) -> str:
        """What of a recalled text does not stand in the dialogue already, behind one of its earlier turns."""
        held = self._held.get(dialogue.id, {})
        seen = {piece for turn in dialogue.turns[:-1] if turn.id in held for piece in held[turn.id].pieces}
        glue, pieces = _pieces(text)
        return glue.join(piece for piece in pieces if piece not in seen)

    def put(self, dialogue: Session, shown: str, content: str) -> None:
        """The dialogue's last turn was asked as `content`, with `shown` of memory in it."""
        if not shown:
            return
        last = dialogue.turns[-1]
        placed = Placed(content, frozenset(_pieces(shown)[1]), self._count([shown])[0])
        with self._guard:
            held = {**self._held.get(dialogue.id, {}), last.id: placed}
            if sum(one.tokens for one in held.values()) <= self._budget:
                self._held[dialogue.id] = held
            else:
                self._held.pop(dialogue.id, None)

    def forget(self, session_id: str) -> None:
        """The session is over, or its prompt no longer holds all of its turns."""
        with self._guard:
            self._held.pop(session_id, None)


def _pieces(text: str) -> tuple[str, list[str]]:
    """What a recalled text is made of: paragraphs where it has any, else lines; and what stands between them."""
    glue = "\n\n" if "\n\n" in text else "\n"
    return glue, [piece for piece in text.split(glue) if piece.strip()]
