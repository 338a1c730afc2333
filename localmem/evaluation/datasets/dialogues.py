"""What readers of dialogues share: probes for the next utterance, given memories, times where a data set has none.

Knows no file format.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from localmem.evaluation.episodes import Probe
from localmem.types import Turn, Unit

UNDATED = datetime(1970, 1, 1, tzinfo=UTC)  # where the times of a data set without times begin


def seconds_after(start: datetime, number: int) -> datetime:
    """The time of a session's turn: a second for each before it, for data sets date sessions and not turns."""
    return start + timedelta(seconds=number)


def memory(key: str, text: str, speaker: str, session: str, time: datetime) -> Unit:
    """A sentence that the data set gives as a memory: indexed as it is shown, said in no turn."""
    return Unit(key, text, text, "memory", speaker, session, (), time, time)


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
                dialogue=tuple(_as_heard_by(turn.speaker, before) for before in turns[: place - 1]),
                kind="next",
                after=after,
                speaker=turn.speaker,
            )
        )
    return tuple(probes)


def _as_heard_by(speaker: str, turn: Turn) -> Turn:
    return replace(turn, role="assistant" if turn.speaker == speaker else "user")
