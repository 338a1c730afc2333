"""How turns, dates and units are written out in prompts, in one place, and how a long dialogue is cut into parts.

Knows nothing of models; token counts come from the caller.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from localmem.types import Turn, Unit

Count = Callable[[Sequence[str]], list[int]]
Item = TypeVar("Item")


def day(moment: datetime) -> str:
    """A date as people write it, for example "2 March 2026"."""
    return f"{moment.day} {moment:%B %Y}"


def line(turn: Turn) -> str:
    """One turn of a transcript."""
    return f"{turn.speaker}: {turn.text}"


def transcript(turns: Iterable[Turn]) -> str:
    """Turns as lines "speaker: text"."""
    return "\n".join(line(turn) for turn in turns)


def dated(units: Iterable[Unit]) -> str:
    """Units as lines "date: text", in the order given."""
    return "\n".join(f"{day(unit.time)}: {unit.text}" for unit in units)


def parts(turns: Sequence[Turn], budget: int, count: Count) -> list[tuple[Turn, ...]]:
    """Consecutive runs of turns whose transcripts hold at most `budget` tokens each.

    A single turn over the budget makes a part of its own; the backend's rule for long prompts then applies to it.
    """
    return packed(turns, count([line(turn) for turn in turns]), budget)


def packed(items: Sequence[Item], sizes: Sequence[int], budget: int) -> list[tuple[Item, ...]]:
    """Consecutive runs of items whose sizes add up to at most `budget`; one over the budget makes a run of its own."""
    runs: list[tuple[Item, ...]] = []
    used = 0
    for item, size in zip(items, sizes, strict=True):
        if runs and used + size <= budget:
            runs[-1] = (*runs[-1], item)
            used += size
        else:
            runs.append((item,))
            used = size
    return runs
