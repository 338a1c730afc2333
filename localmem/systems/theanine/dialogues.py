"""What of a dialogue goes into a prompt when not all of it fits. Knows no prompt and no system.

A session's dialogue is kept as a note of the bank, for the relation between two events is judged with the dialogues
they come from (Theanine, Phase I-2).
"""

import re
from collections.abc import Sequence

from localmem.text.dialogue import Count, line, transcript
from localmem.types import Turn

_WORD = re.compile(r"\w+")
_GAP = "[...]"
_MARK = 4  # tokens of a mark and its line break, at most


def note_name(session_id: str) -> str:
    """The note that holds a session's dialogue."""
    return f"dialogue/{session_id}"


class Origin:
    """A session's dialogue, of which excerpts are taken."""

    def __init__(self, dialogue: str, count: Count) -> None:
        self._text = dialogue
        self._lines = dialogue.split("\n")
        self._sizes = [size + 1 for size in count(self._lines)]  # and the line break
        self._words = [_words(text) for text in self._lines]

    def excerpt(self, events: Sequence[str], budget: int) -> str:
        """At most `budget` tokens: all of the dialogue, or the lines that share most words with the events, in order.

        Of lines that share as many the later ones are kept. What is left out in between is marked. Where no line fits,
        the best of them is cut at its end.
        """
        if sum(self._sizes) <= budget:
            return self._text
        said = _words(" ".join(events))
        ranked = sorted(range(len(self._lines)), key=lambda n: (-len(said & self._words[n]), -n))
        kept: list[int] = []
        left = budget
        for number in ranked:
            if self._sizes[number] + _MARK <= left:
                left -= self._sizes[number] + _MARK
                kept.append(number)
        return self._with_gaps(sorted(kept)) if kept else self._beginning(ranked[0], budget)

    def _beginning(self, number: int, budget: int) -> str:
        return self._lines[number][: len(self._lines[number]) * max(0, budget) // self._sizes[number]]

    def _with_gaps(self, kept: Sequence[int]) -> str:
        shown: list[str] = []
        for number, before in zip(kept, [-1, *kept], strict=False):
            shown += [self._lines[number]] if number == before + 1 else [_GAP, self._lines[number]]
        return "\n".join(shown)


def latest(turns: Sequence[Turn], budget: int, count: Count) -> str:
    """The transcript of the last turns that hold at most `budget` tokens; of the last turn at least."""
    shown = 0
    for size in reversed(count([line(turn) for turn in turns])):
        budget -= size + 1
        if budget < 0 and shown:
            break
        shown += 1
    return transcript(turns[len(turns) - shown :])


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
