"""What of a dialogue goes into a prompt when not all of it fits. Knows no prompt and no system.

A session's dialogue is kept as a note of the bank, for the relation between two events is judged with the dialogues
they come from (Theanine, Phase I-2).
"""

import re
from collections import Counter
from collections.abc import Sequence

from localmem.text.dialogue import Count, line, transcript
from localmem.types import Turn

_WORD = re.compile(r"\w+")
_GAP = "[...]"
_MARK = 4  # tokens of a mark and its line break, at most


def note_name(session_id: str) -> str:
    """The note that holds a session's dialogue."""
    return f"dialogue/{session_id}"


def excerpt(dialogue: str, events: Sequence[str], budget: int, count: Count) -> str:
    """At most `budget` tokens: all of the dialogue, or the lines that share most with the events, in their order.

    Of lines that share as much the later ones are kept. What is left out in between is marked. Where no line fits, the
    best of them is cut at its end.
    """
    lines = dialogue.split("\n")
    sizes = [size + 1 for size in count(lines)]  # and the line break
    if sum(sizes) <= budget:
        return dialogue
    ranked = _ranked(lines, _words(" ".join(events)))
    kept: list[int] = []
    left = budget
    for number in ranked:
        if sizes[number] + _MARK <= left:
            left -= sizes[number] + _MARK
            kept.append(number)
    best = lines[ranked[0]]
    return _with_gaps(lines, sorted(kept)) if kept else best[: len(best) * budget // sizes[ranked[0]]]


def latest(turns: Sequence[Turn], budget: int, count: Count) -> str:
    """The transcript of the last turns that hold at most `budget` tokens; of the last turn at least."""
    shown = 0
    for size in reversed(count([line(turn) for turn in turns])):
        budget -= size + 1
        if budget < 0 and shown:
            break
        shown += 1
    return transcript(turns[len(turns) - shown :])


def _ranked(lines: Sequence[str], said: set[str]) -> list[int]:
    """The lines' numbers, best first: a shared word counts the more, the fewer lines hold it."""
    words = [said & _words(text) for text in lines]
    held = Counter(word for shared in words for word in shared)
    scores = [sum(1 / held[word] for word in shared) for shared in words]
    return sorted(range(len(lines)), key=lambda number: (-scores[number], -number))


def _with_gaps(lines: Sequence[str], kept: Sequence[int]) -> str:
    shown: list[str] = []
    for number, before in zip(kept, [-1, *kept], strict=False):
        shown += [lines[number]] if number == before + 1 else [_GAP, lines[number]]
    return "\n".join(shown)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
