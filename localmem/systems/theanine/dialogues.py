"""Origin dialogues: notes of the bank, and their excerpts for a prompt in which not all of them fits.

Each session's dialogue is stored as a note, because the relation between two events is judged with the dialogues they
come from (Theanine, Phase I-2). Pure functions.
"""

import re
from collections import Counter
from collections.abc import Sequence

from localmem.text.dialogue import Count

_WORD = re.compile(r"\w+")
_GAP = "[...]"
_MARK = 4  # tokens of a gap mark and its line break, at most


def note_name(session_id: str) -> str:
    """The note that holds a session's dialogue."""
    return f"dialogue/{session_id}"


def excerpt(dialogue: str, events: Sequence[str], budget: int, count: Count) -> str:
    """At most `budget` tokens: all of the dialogue, or the lines most similar to the events, in their order.

    Of equally similar lines the later ones are used. Gaps are marked. When no line fits, the best one is cut at its
    end.
    """
    lines = dialogue.split("\n")
    sizes = [size + 1 for size in count(lines)]  # and the line break
    if sum(sizes) <= budget:
        return dialogue
    ranked = _rank(lines, _words(" ".join(events)))
    selected: list[int] = []
    remaining = budget
    for number in ranked:
        if sizes[number] + _MARK <= remaining:
            remaining -= sizes[number] + _MARK
            selected.append(number)
    best = lines[ranked[0]]
    return _with_gaps(lines, sorted(selected)) if selected else best[: len(best) * budget // sizes[ranked[0]]]


def _rank(lines: Sequence[str], event_words: set[str]) -> list[int]:
    """The line numbers, best first: a shared word counts more, the fewer lines contain it."""
    words = [event_words & _words(text) for text in lines]
    frequency = Counter(word for shared in words for word in shared)
    scores = [sum(1 / frequency[word] for word in shared) for shared in words]
    return sorted(range(len(lines)), key=lambda number: (-scores[number], -number))


def _with_gaps(lines: Sequence[str], selected: Sequence[int]) -> str:
    result: list[str] = []
    for number, previous in zip(selected, [-1, *selected], strict=False):
        result += [lines[number]] if number == previous + 1 else [_GAP, lines[number]]
    return "\n".join(result)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
