"""Episodes: what a data set's user said over time, and the probes that ask about it. Knows no file format.

A data set is split into two halves by a hash of ids: settings are chosen on one and reported on the other, so that no
probe is reported on that something was tuned on.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from typing import Literal

from localmem.errors import BadInput
from localmem.types import Session, Turn, Unit

Half = Literal["choose", "report"]
Kind = Literal["question", "next"]

BEFORE_ALL = "(before all)"  # `after` of a probe that is asked before the first session


@dataclass(frozen=True, slots=True)
class Probe:
    """What is asked of a memory: a question about the sessions, or the next thing to say in a dialogue.

    `answer` is the gold answer, `others` are further ones that are as right; of the kind next they are what was really
    said, and `question` is the user's turn before it. `dialogue` are the turns just before the question, if there are.
    Either speaker of a data set may be the one to reply, so their roles are as the reply needs them: `speaker`, where
    it is named, is to reply, and what he said before is the assistant's.

    `evidence` holds ids of turns, or of given memories, and `sessions` ids of sessions where the answer stands; both
    are empty for a question that the sessions do not answer. `time` is when it is asked, if the data says so. It is
    asked after the session `after`, or after the last, or first of all where that is BEFORE_ALL.
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
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """Sessions in time order, one at least, probes in the order they are asked, and what is known before them.

    `memories` are given at the start, as sentences that a session left behind or a persona. `golds` are, by session id,
    the sentences that a memory should hold once that session is over. The units of both have no source turns.
    """

    id: str
    half: Half
    sessions: tuple[Session, ...]
    probes: tuple[Probe, ...]
    memories: tuple[Unit, ...] = ()
    golds: Mapping[str, tuple[Unit, ...]] = field(default_factory=dict)

    def in_order(self) -> Iterator[tuple[Session | None, tuple[Probe, ...]]]:
        """The probes that come before any session, with None, and then each session with the probes asked after it.

        Raises BadInput for a probe that is asked after no session of the episode.
        """
        last = self.sessions[-1].id
        asked: dict[str, list[Probe]] = {}
        for probe in self.probes:
            asked.setdefault(probe.after or last, []).append(probe)
        lost = asked.keys() - {BEFORE_ALL, *(session.id for session in self.sessions)}
        if lost:
            raise BadInput(f"{self.id} has probes after {min(lost)!r}, which is no session of it; mend the data set")
        yield None, tuple(asked.get(BEFORE_ALL, ()))
        for session in self.sessions:
            yield session, tuple(asked.get(session.id, ()))


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set as read: `sha256` is that of its file; `notes` say what was odd in it and what was made of it."""

    name: str
    sha256: str
    episodes: tuple[Episode, ...]
    notes: tuple[str, ...] = ()

    def select(self, half: Half | None, limit: int | None = None) -> "Dataset":
        """Only the episodes of this half, and of all together the first `limit` probes; their sessions stay whole."""
        kept: list[Episode] = []
        left = limit
        for episode in self.episodes:
            if half in (None, episode.half) and left != 0:
                probes = episode.probes[:left]
                left = None if left is None else left - len(probes)
                kept.append(replace(episode, probes=probes))
        return replace(self, episodes=tuple(kept))

    def last_sessions(self, count: int) -> "Dataset":
        """Only the last so many sessions of each episode, and the probes that these can answer."""
        return replace(self, episodes=tuple(_last(episode, count) for episode in self.episodes))


def _last(episode: Episode, count: int) -> Episode:
    kept = episode.sessions[-count:]
    names = {session.id for session in kept}
    asked = {"", BEFORE_ALL, *names}
    probes = (one for one in episode.probes if names.issuperset(one.sessions) and one.after in asked)
    return replace(episode, sessions=kept, probes=tuple(probes))


def half_of(key: str) -> Half:
    """The half of an id: the parity of the first byte of its sha256. Stable, whatever else is in the file."""
    return "report" if sha256(key.encode()).digest()[0] % 2 else "choose"


def counted(oddities: Counter[str]) -> tuple[str, ...]:
    """Notes out of oddities and how often each was met."""
    return tuple(f"{what}: {count}" for what, count in sorted(oddities.items()) if count)


def differing(what: str, found: int, full: Collection[int]) -> tuple[str, ...]:
    """A note when there are not as many as the published sets hold; no error, for one may have a part of a set."""
    if found in full:
        return ()
    return (f"{found} {what}; the published files hold {' or '.join(map(str, sorted(full)))}",)


def sessions_of(sessions: tuple[Session, ...], evidence: tuple[str, ...]) -> tuple[str, ...]:
    """The ids of the sessions that hold these turns, in time order."""
    wanted = set(evidence)
    holding = (session.id for session in sessions if any(turn.id in wanted for turn in session.turns))
    return tuple(key for key, _ in groupby(holding))
