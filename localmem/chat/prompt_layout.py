"""Keeps recalled memory where it was first shown, beside its turn, so that each prompt begins with the previous one.

A server caches what it has computed for the beginning of a prompt. If the memory shown with the previous turn were
removed, everything after it would have to be computed again; as it stays in place, only the new text is. Works on
dialogues and texts; depends on no bank and no model.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localmem.types import Session, Turn

Count = Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn's text as the model saw it, the pieces of memory in it, and how many tokens those are."""

    content: str
    pieces: frozenset[str]
    tokens: int


class ShownMemory:
    """The memory that was shown with each turn of the open sessions; for many threads.

    `budget` returns the most tokens of memory that one session's dialogue may hold. Past it the session starts afresh,
    so that what was recalled long ago does not crowd out the dialogue. It is asked only when memory has been shown,
    because counting needs the backbone.
    """

    def __init__(self, count: Count, budget: Callable[[], int]) -> None:
        self._count = count
        self._budget = budget
        self._lock = threading.Lock()
        self._turns: dict[str, dict[str, ShownTurn]] = {}  # by session, by turn

    def content(self, session_id: str, turn: Turn) -> str:
        """The turn's text, with the memory that was shown with it."""
        shown = self._turns.get(session_id, {}).get(turn.id)
        return shown.content if shown and shown.content.endswith(turn.text) else turn.text  # it may have been edited

    def select_new(self, dialogue: Session, text: str) -> str:
        """The parts of a recalled text that the dialogue does not hold already, with one of its earlier turns."""
        turns = self._turns.get(dialogue.id, {})
        earlier = {piece for turn in dialogue.turns[:-1] if turn.id in turns for piece in turns[turn.id].pieces}
        separator, pieces = _split(text)
        return separator.join(piece for piece in pieces if piece not in earlier)

    def record(self, dialogue: Session, memory: str, content: str) -> None:
        """Note that the dialogue's last turn was sent as `content`, with the text `memory` in it."""
        if not memory:
            return
        last = dialogue.turns[-1]
        shown = ShownTurn(content, frozenset(_split(memory)[1]), self._count([memory])[0])
        budget = self._budget()
        with self._lock:
            turns = {**self._turns.get(dialogue.id, {}), last.id: shown}
            if sum(turn.tokens for turn in turns.values()) <= budget:
                self._turns[dialogue.id] = turns
            else:
                self._turns.pop(dialogue.id, None)

    def forget(self, session_id: str) -> None:
        """The session is over, or its prompt no longer holds all of its turns."""
        with self._lock:
            self._turns.pop(session_id, None)


def _split(text: str) -> tuple[str, list[str]]:
    """The pieces of a recalled text, which are paragraphs where it has any, else lines; and their separator."""
    separator = "\n\n" if "\n\n" in text else "\n"
    return separator, [piece for piece in text.split(separator) if piece.strip()]
