"""Episodes: what a data set's user said over time, and the probes that ask about it. Knows no file format.

A data set is split into two halves by a hash of ids: settings are chosen on one and reported on the other, so that no
probe is reported on that something was tuned on.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from typing import Literal

from localmem.types import Session, Turn

Half = Literal["choose", "report"]
Kind = Literal["question", "next"]


@dataclass(frozen=True, slots=True)
class Probe:
    """What is asked of a memory: a question about the sessions, or the next thing to say in a dialogue.

    `answer` is the gold answer, `others` are further ones that are as right; of the kind next they are what was really
    said, and `question` is the user's turn before it. `evidence` holds ids of turns and `sessions` ids of sessions
    where the answer stands; both are empty for a question that the sessions do not answer. `time` is when it is asked,
    if the data says so; `dialogue` are the turns just before it, if there are. It is asked after the session `after`,
    or after the last.
    """

    id: str
    question: str
    answer: str
    type: str
    time: datetime | None
    evidence: tuple[str, ...]
    sessions: tuple[str, ...]
    dialogue: tuple[Turn, ...] = ()
    kind: Kind = "question"
    after: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Episode:
    """Sessions in time order, one at least, and the probes that are asked after them."""

    id: str
    half: Half
    sessions: tuple[Session, ...]
    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class Data:
    """A data set as read: `sha256` is that of its file; `notes` say what was odd in it and what was made of it."""

    name: str
    sha256: str
    episodes: tuple[Episode, ...]
    notes: tuple[str, ...] = ()

    def of(self, half: Half | None, limit: int | None = None) -> "Data":
        """Only the episodes of this half, and of all together the first `limit` probes; their sessions stay whole."""
        kept: list[Episode] = []
        left = limit
        for episode in self.episodes:
            if half in (None, episode.half) and left != 0:
                probes = episode.probes[:left]
                left = None if left is None else left - len(probes)
                kept.append(replace(episode, probes=probes))
        return replace(self, episodes=tuple(kept))


def half_of(key: str) -> Half:
    """The half of an id: the parity of the first byte of its sha256. Stable, whatever else is in the file."""
    return "report" if sha256(key.encode()).digest()[0] % 2 else "choose"


def counted(oddities: Counter[str]) -> tuple[str, ...]:
    """Notes out of oddities and how often each was met."""
    return tuple(f"{what}: {count}" for what, count in sorted(oddities.items()) if count)


def sessions_of(sessions: tuple[Session, ...], evidence: tuple[str, ...]) -> tuple[str, ...]:
    """The ids of the sessions that hold these turns, in time order."""
    wanted = set(evidence)
    holding = (session.id for session in sessions if any(turn.id in wanted for turn in session.turns))
    return tuple(key for key, _ in groupby(holding))
