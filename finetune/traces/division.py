"""Division of conversations into train, valid and test: by user where there are several, else by session and time.

A user is in one part of every division, whatever system read the conversation. With fewer than three users each one's
sessions are divided instead, the latest ones for the test: a student is then measured on what comes after its lessons.
Does not depend on any model.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

from finetune.traces.trace import Trace

Part = Literal["train", "valid", "test"]
Conversation = tuple[str, str]  # data set and user

PARTS: tuple[Part, ...] = ("train", "valid", "test")
PART_NAMES: Mapping[Part, str] = {"train": "training", "valid": "validation", "test": "test"}  # for people
FEWEST = 3  # of users, or else of sessions, for three parts

_VALID, _TEST = 205, 230  # of 256: 80, 10 and 10 in a hundred
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def conversation_of(trace: Trace) -> Conversation:
    """The data set and user that a trace comes from."""
    return trace.metadata.work.dataset, trace.metadata.work.episode


def divide(traces: Sequence[Trace], seed: int = 0) -> Callable[[Trace], Part]:
    """A function that gives the part of each of these traces."""
    conversations = sorted({conversation_of(trace) for trace in traces})
    if len(conversations) >= FEWEST:
        by_user = divide_users(conversations, seed)
        return lambda trace: by_user[conversation_of(trace)]
    by_session = _divide_sessions(traces)
    return lambda trace: by_session[(*conversation_of(trace), trace.metadata.session)]


def divide_users(conversations: Iterable[Conversation], seed: int = 0) -> dict[Conversation, Part]:
    """The part of each user by a hash, and those with the highest hashes where a part would be empty."""
    numbers = {name: sha256(f"{seed}/{name[0]}/{name[1]}".encode()).digest()[0] for name in conversations}
    parts: dict[Conversation, Part] = {
        name: "train" if number < _VALID else "valid" if number < _TEST else "test" for name, number in numbers.items()
    }
    ordered = sorted(numbers, key=lambda name: (numbers[name], name))
    places: dict[Part, int] = {"test": -1, "valid": -2, "train": 0}
    for part, place in places.items():
        if part not in parts.values():
            parts[ordered[place]] = part
    return parts


def _divide_sessions(traces: Iterable[Trace]) -> dict[tuple[str, str, str], Part]:
    """The part of each session by time: four fifths, a tenth, and the latest tenth, at least one session each."""
    starts: defaultdict[Conversation, dict[str, datetime]] = defaultdict(dict)
    for trace in traces:
        own, about = starts[conversation_of(trace)], trace.metadata
        time = about.time or _LONG_AGO
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        own[about.session] = min(time, own.get(about.session, time))
    parts: dict[tuple[str, str, str], Part] = {}
    for conversation, sessions in starts.items():
        ordered = sorted(sessions, key=lambda name, sessions=sessions: (sessions[name], name))  # type: ignore[misc]
        held_out = max(1, round(len(ordered) / 10))
        sizes = (len(ordered) - 2 * held_out, held_out, held_out) if len(ordered) >= FEWEST else (len(ordered), 0, 0)
        names: list[Part] = [part for part, size in zip(PARTS, sizes, strict=True) for _ in range(size)]
        parts |= {(*conversation, name): part for name, part in zip(ordered, names, strict=True)}
    return parts


def describe_division(sessions: Mapping[Conversation, int]) -> list[str]:
    """How conversations, with their numbers of sessions, are divided; with the cure if a part would be empty."""
    users = len(sessions)
    if users >= FEWEST:
        return [f"{users} users: training, validation and test traces are those of different users"]
    line = (
        f"{users} user{'s' * (users > 1)}: training, validation and test traces are those of different sessions, the "
        "latest for the test"
    )
    most = max(sessions.values(), default=0)
    if most >= FEWEST:
        return [line]
    cure = (
        f"there would be no validation and no test traces: no user has more than {most} session{'s' * (most != 1)}; "
        f"collect from {FEWEST} sessions of one user, or from {FEWEST} users, before training"
    )
    return [line, cure]
