"""Building blocks of the dialogue readers: sessions, probes for the next utterance, gold memories.

Does not depend on a file format.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from localmem.evaluation.episodes import Probe
from localmem.types import Session, Turn, Unit

_SAME_SPEAKER = "turns that follow a turn of the same speaker, not used as probes"
UNDATED = datetime(1970, 1, 1, tzinfo=UTC)  # the first time in a data set without times


def nearest_sessions(sessions: Sequence[Session], index: int, count: int) -> tuple[Session, ...]:
    """The session at `index` and the `count` nearest in the file: half before and half after it, except at the ends."""
    first = max(0, min(index - count // 2, len(sessions) - count - 1))
    return tuple(sessions[first : first + count + 1])


def build_session(name: str, utterances: Iterable[tuple[str, str]], user: str, start: datetime) -> Session:
    """A session from (speaker, text) pairs; every speaker other than `user` takes the assistant's role.

    Data sets date sessions and not turns, so each turn is one second after the previous one.
    """
    turns = (
        Turn(f"{name}.{n}", "user" if speaker == user else "assistant", speaker, text, start + timedelta(seconds=n))
        for n, (speaker, text) in enumerate(utterances)
    )
    return Session(name, tuple(turns))


def memory_unit(key: str, text: str, speaker: str, session: str, time: datetime) -> Unit:
    """A sentence that the data set gives as a memory of a session: its key is its text, and it has no source turns."""
    return Unit(key, text, text, "memory", speaker, session, (), time, time)


def next_turn_probes(
    name: str,
    turns: Sequence[Turn],
    *,
    kind: str,
    after: str,
    oddities: Counter[str] | None = None,
    repliers: Collection[str] | None = None,
    evidence: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Probe, ...]:
    """A probe for each turn that answers another speaker's: given the session so far, what is said next?

    Restricted to the speakers in `repliers` if given. `evidence` maps a turn id to the ids that the reply rests on.
    `oddities` counts the turns that answer nobody.
    """
    probes: list[Probe] = []
    for index, turn in enumerate(turns):
        previous = turns[index - 1]
        if index == 0 or previous.speaker == turn.speaker or (repliers is not None and turn.speaker not in repliers):
            continue
        probes.append(
            Probe(
                id=f"{name}/{index}",
                question=previous.text,
                answer=turn.text,
                type=kind,
                time=turn.time,
                evidence=(evidence or {}).get(turn.id, ()),
                sessions=(),
                dialogue=tuple(set_role(earlier, turn.speaker) for earlier in turns[: index - 1]),
                kind="next",
                after=after,
                speaker=turn.speaker,
            )
        )
    if oddities is not None:
        oddities[_SAME_SPEAKER] += max(0, len(turns) - 1) - len(probes)
    return tuple(probes)


def set_role(turn: Turn, replier: str) -> Turn:
    """The turn in the role it has when `replier` is to reply: that speaker's turns are the assistant's."""
    return replace(turn, role="assistant" if turn.speaker == replier else "user")
