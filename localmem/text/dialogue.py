"""How turns, dates and units are written out in prompts, and how much of a dialogue fits a number of tokens.

Pure functions. They use no model: the caller passes a function that counts tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypedDict, TypeVar

from localmem.types import Role, Turn, Unit

Count = Callable[[Sequence[str]], list[int]]
"""The number of tokens of each text."""

Item = TypeVar("Item")

_BLOCK = 64  # texts counted in one call: however long the history, little more is counted than what fits


def day(moment: datetime) -> str:
    """A date as people write it, for example "2 March 2026"."""
    return f"{moment.day} {moment:%B %Y}"


def line(turn: Turn) -> str:
    """One turn of a transcript."""
    return f"{turn.speaker}: {turn.text}"


def transcript(turns: Iterable[Turn]) -> str:
    """Turns as lines "speaker: text"."""
    return "\n".join(line(turn) for turn in turns)


def dated_lines(units: Iterable[Unit]) -> str:
    """Units as lines "date: text", in the given order."""
    return "\n".join(f"{day(unit.time)}: {unit.text}" for unit in units)


# -- speakers


class PromptNames(TypedDict):
    """Two inputs of a prompt."""

    user: str
    assistant: str


def distinguish_speakers(turns: Sequence[Turn]) -> list[Turn]:
    """The turns, with the role appended to a speaker name that both sides share."""
    users, assistants = ({turn.speaker for turn in turns if turn.role == role} for role in ("user", "assistant"))
    shared = users & assistants
    return [
        replace(turn, speaker=f"{turn.speaker} ({turn.role})") if turn.speaker in shared else turn for turn in turns
    ]


def speaker_names(turns: Sequence[Turn]) -> dict[Role, str]:
    """The name of each side that spoke, as in the last of its turns."""
    return {turn.role: turn.speaker for turn in turns}


def prompt_names(turns: Sequence[Turn]) -> PromptNames:
    """The inputs `user` and `assistant` of a prompt: the names, or "the user" and "the assistant" for a silent side."""
    names = speaker_names(turns)
    return {"user": names.get("user", "the user"), "assistant": names.get("assistant", "the assistant")}


# -- token budgets


def split_turns(turns: Sequence[Turn], budget: int, count: Count) -> list[tuple[Turn, ...]]:
    """Consecutive runs of turns whose transcripts hold at most `budget` tokens each.

    A single turn over the budget is a run by itself; the backend's rule for long prompts then applies to it.
    """
    return pack(turns, count([line(turn) for turn in turns]), budget)


def pack(items: Sequence[Item], sizes: Sequence[int], budget: int) -> list[tuple[Item, ...]]:
    """Consecutive runs of items whose sizes add up to at most `budget`; an item over the budget is a run by itself."""
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


def count_fitting(texts: Sequence[str], budget: int, count: Count) -> int:
    """How many of `texts`, counted from the first, hold at most `budget` tokens together."""
    used = 0
    for fitting, tokens in enumerate(count(texts)):
        used += tokens
        if used > budget:
            return fitting
    return len(texts)


def count_last_fitting(texts: Sequence[str], budget: int, count: Count) -> int:
    """How many of `texts`, counted from the last, hold at most `budget` tokens together."""
    fitting = 0
    for end in range(len(texts), 0, -_BLOCK):
        for size in count(texts[max(0, end - _BLOCK) : end][::-1]):
            budget -= size
            if budget < 0:
                return fitting
            fitting += 1
    return fitting


def latest_turns(turns: Sequence[Turn], budget: int, count: Count) -> Sequence[Turn]:
    """The longest run of last turns that hold at most `budget` tokens as lines; always at least the last turn."""

    def count_lines(texts: Sequence[str]) -> list[int]:
        return [size + 1 for size in count(texts)]  # and the line break

    fitting = count_last_fitting([line(turn) for turn in turns], budget, count_lines)
    return turns[len(turns) - max(fitting, 1) :]
