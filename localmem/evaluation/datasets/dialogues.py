"""What readers of dialogues share: probes for the next utterance, given memories, times where a data set has none.

Knows no file format.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from localmem.evaluation.episodes import Probe
from localmem.types import Session, Turn, Unit

SAME_SPEAKER = "turns that follow one of the same speaker, not asked for"  # a note of readers
UNDATED = datetime(1970, 1, 1, tzinfo=UTC)  # where the times of a data set without times begin


class Names:
    """Ids that are unique in a file: the second record of one id is called id#2, and so on."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def once(self, name: str) -> str:
        """The id, with a number behind it if it was there before."""
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}#{self._seen[name]}"


def surrounding(held: Sequence[Session], place: int, count: int) -> tuple[Session, ...]:
    """The session at `place` and the `count` nearest to it in the file: half before and half after, but at the ends."""
    first = max(0, min(place - count // 2, len(held) - count - 1))
    return tuple(held[first : first + count + 1])


def session(name: str, said: Iterable[tuple[str, str]], user: str, start: datetime) -> Session:
    """A session out of (speaker, text); who is not `user` takes the assistant's role.

    Data sets date sessions and not turns, so a turn comes a second after the one before it.
    """
    turns = (
        Turn(
            f"{name}.{number}",
            "user" if speaker == user else "assistant",
            speaker,
            text,
            start + timedelta(seconds=number),
        )
        for number, (speaker, text) in enumerate(said)
    )
    return Session(name, tuple(turns))


def memory(key: str, text: str, speaker: str, of: str, time: datetime) -> Unit:
    """A sentence that the data set gives as a memory of the session `of`: indexed as it is shown, said in no turn."""
    return Unit(key, text, text, "memory", speaker, of, (), time, time)


def next_probes(
    name: str,
    turns: Sequence[Turn],
    *,
    kind: str,
    after: str,
    repliers: Collection[str] | None = None,
    evidence: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Probe, ...]:
    """A probe for each turn that answers another speaker's: given the session up to there, what is said next?

    Only of `repliers`, when they are named. `evidence` holds, by turn id, what a reply is known to rest on.
    """
    probes: list[Probe] = []
    for place, turn in enumerate(turns):
        last = turns[place - 1]
        if place == 0 or last.speaker == turn.speaker or (repliers is not None and turn.speaker not in repliers):
            continue
        probes.append(
            Probe(
                id=f"{name}/{place}",
                question=last.text,
                answer=turn.text,
                type=kind,
                time=turn.time,
                evidence=(evidence or {}).get(turn.id, ()),
                sessions=(),
                dialogue=tuple(as_heard_by(turn.speaker, before) for before in turns[: place - 1]),
                kind="next",
                after=after,
                speaker=turn.speaker,
            )
        )
    return tuple(probes)


def as_heard_by(speaker: str, turn: Turn) -> Turn:
    """The turn with the role it has for whoever is to reply: what he said is the assistant's."""
    return replace(turn, role="assistant" if turn.speaker == speaker else "user")
