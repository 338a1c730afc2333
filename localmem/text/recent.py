"""The last turns of a dialogue that fit a number of tokens. Knows no tokenizer; the caller counts."""

from collections.abc import Sequence

from localmem.text.dialogue import Count, line
from localmem.types import Turn

_BLOCK = 64  # turns counted at once: a long dialogue costs no more than what is kept of it


def recent(turns: Sequence[Turn], budget: int, count: Count) -> Sequence[Turn]:
    """The longest run of last turns that hold at most `budget` tokens as lines; of the last turn at least."""
    kept = 0
    for end in range(len(turns), 0, -_BLOCK):
        block = turns[max(0, end - _BLOCK) : end][::-1]
        for size in count([line(turn) for turn in block]):
            budget -= size + 1  # and the line break
            if budget < 0 and kept:
                return turns[len(turns) - kept :]
            kept += 1
    return turns
