"""The two sides of a dialogue by their names, told apart where they bear one name. Knows no prompt and no system."""

from collections.abc import Sequence
from dataclasses import replace

from localmem.types import Role, Turn


def named_apart(turns: Sequence[Turn]) -> list[Turn]:
    """The turns, with the role beside a name that both sides bear."""
    users, others = ({turn.speaker for turn in turns if turn.role == role} for role in ("user", "assistant"))
    shared = users & others
    return [
        replace(turn, speaker=f"{turn.speaker} ({turn.role})") if turn.speaker in shared else turn for turn in turns
    ]


def names(turns: Sequence[Turn]) -> dict[Role, str]:
    """What each side that spoke is called, by the last of its turns."""
    return {turn.role: turn.speaker for turn in turns}
