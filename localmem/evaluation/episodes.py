"""Episodes: what a user of a data set said over time, and the probes about it. Does not depend on a file format.

A data set is split into two halves by a hash of ids. Settings are chosen on one half and reported on the other, so that
nothing is reported on the probes it was tuned on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from typing import Literal

from localmem.errors import BadInput
from localmem.types import Session, Turn, Unit

Half = Literal["choose", "report"]
Kind = Literal["question", "next"]

BEFORE_ALL = "(before all)"  # `after` of a probe that comes before the first session


@dataclass(frozen=True, slots=True)
class Probe:
    """A test of a memory: a question about the sessions, or the next thing to say in a dialogue.

    `answer` is the gold answer and `others` are equally right ones. For kind "next" they are what was really said, and
    `question` is the user's turn before it. `dialogue` holds the turns just before the question, if any. Either speaker
    of a data set may be the one to reply: `speaker`, if set, replies, and their earlier turns are the assistant's.

    `evidence` holds ids of turns or of given memories, and `sessions` ids of sessions that contain the answer; both are
    empty for a question that the sessions do not answer. `time` is the time of the question, if the data has one. The
    probe comes after the session `after`, or after the last one if empty, or before the first if it is BEFORE_ALL.
    """

    id: str
    question: str
    answer: str
    type: str
    time: datetime | None = None
    evidence: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    dialogue: tuple[Turn, ...] = ()
    kind: Kind = "question"
    after: str = ""
    others: tuple[str, ...] = ()
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """Sessions in time order (at least one), probes in the order of asking, and what is known before them.

    `memories` are available from the start, as sentences from an earlier session or a persona. `golds` maps a session
    id to the sentences that a memory should contain after that session. The units of both have no source turns.
    """

    id: str
    half: Half
    sessions: tuple[Session, ...]
    probes: tuple[Probe, ...]
    memories: tuple[Unit, ...] = ()
    golds: Mapping[str, tuple[Unit, ...]] = field(default_factory=dict)

    def in_order(self) -> Iterator[tuple[Session | None, tuple[Probe, ...]]]:
        """None with the probes before any session, then each session with the probes after it.

        Raises BadInput for a probe after a session that the episode does not have.
        """
        last = self.sessions[-1].id
        probes: dict[str, list[Probe]] = {}
        for probe in self.probes:
            probes.setdefault(probe.after or last, []).append(probe)
        if unknown := probes.keys() - {BEFORE_ALL, *(session.id for session in self.sessions)}:
            name = min(unknown)
            raise BadInput(f"{self.id} has probes after the session {name!r}, which it lacks; correct the data")
        yield None, tuple(probes.get(BEFORE_ALL, ()))
        for session in self.sessions:
            yield session, tuple(probes.get(session.id, ()))


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set as read. `sha256` is that of its file; `notes` state what was odd in it and how it was read."""

    name: str
    sha256: str
    episodes: tuple[Episode, ...]
    notes: tuple[str, ...] = ()

    def select(self, half: Half | None, limit: int | None = None) -> "Dataset":
        """Only the episodes of this half, and of those only the first `limit` probes in all; sessions stay complete."""
        selected: list[Episode] = []
        remaining = limit
        for episode in self.episodes:
            if half in (None, episode.half) and remaining != 0:
                probes = episode.probes[:remaining]
                remaining = None if remaining is None else remaining - len(probes)
                selected.append(replace(episode, probes=probes))
        return replace(self, episodes=tuple(selected))

    def last_sessions(self, count: int) -> "Dataset":
        """Only the last `count` sessions of each episode, and the probes that these can answer."""
        episodes: list[Episode] = []
        for episode in self.episodes:
            sessions = episode.sessions[-count:]
            ids = {session.id for session in sessions}
            times = {"", BEFORE_ALL, *ids}
            probes = (probe for probe in episode.probes if ids.issuperset(probe.sessions) and probe.after in times)
            episodes.append(replace(episode, sessions=sessions, probes=tuple(probes)))
        return replace(self, episodes=tuple(episodes))


def half_of(key: str) -> Half:
    """The half of an id: the parity of the first byte of its sha256, so it does not depend on the rest of the file."""
    return "report" if sha256(key.encode()).digest()[0] % 2 else "choose"


def sessions_with(sessions: tuple[Session, ...], turn_ids: tuple[str, ...]) -> tuple[str, ...]:
    """The ids of the sessions that contain one of these turns, in time order."""
    ids = set(turn_ids)
    matches = (session.id for session in sessions if any(turn.id in ids for turn in session.turns))
    return tuple(key for key, _ in groupby(matches))
