"""What every reader of a foreign file makes: drafts of sessions, whose turns may lack a time, and their dating.

A turn without a time is dated by its neighbours: it gets the time of the turn before it, the first turns that of the
next. Without any, the time of the conversation holds, then that of the import.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from localmem.errors import BadInput
from localmem.times.zones import check_year, in_log_zone
from localmem.types import Role, Session, Turn

Record = Mapping[str, object]

_MILLISECONDS = 1e11  # a number from here on counts milliseconds: in seconds it would be the year 5138


@dataclass(frozen=True, slots=True)
class FileDefaults:
    """What holds where a file does not say it: the speakers' names, the zone of its times, and the time of all.

    Times in UTC are taken for those of a program, and converted to the zone; None is that of this machine.
    """

    user: str = "User"
    assistant: str = "Assistant"
    zone: tzinfo | None = UTC
    time: datetime | None = None

    def of(self, role: Role) -> str:
        """The name of the speaker in this role."""
        return self.user if role == "user" else self.assistant


class DraftTurn(NamedTuple):
    """A message as a file has it; without a speaker it is the one of the defaults."""

    role: Role
    text: str
    time: datetime | None = None
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A session as a file has it. `omitted` says what of it is not read, one line each."""

    id: str
    turns: Sequence[DraftTurn]
    time: datetime | None = None
    omitted: tuple[str, ...] = ()


def date_draft(draft: Draft, defaults: FileDefaults) -> Session:
    """The session with a time for every turn, none before the turn above it. Raises BadInput where no time is known."""
    fallback = next((turn.time for turn in draft.turns if turn.time), None) or draft.time or defaults.time
    if fallback is None:
        raise BadInput("has no time; say when it was with --time, such as --time 2025-03-01")
    turns: list[Turn] = []
    for number, (role, text, written, speaker) in enumerate(draft.turns):
        previous = turns[-1].time if turns else None
        time = in_log_zone(written, defaults.zone, previous) if written else previous
        time = time or in_log_zone(fallback, defaults.zone)
        time = max(time, previous) if previous else time
        turns.append(Turn(f"{draft.id}.{number}", role, speaker or defaults.of(role), text, time))
    return Session(draft.id, tuple(turns))


def parse_time(value: object) -> datetime | None:
    """A time as programs write it: seconds or milliseconds since 1970, or ISO; UTC without a zone. None for others."""
    try:
        if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
            time = check_year(datetime.fromisoformat(value))
            return time if time.tzinfo else time.replace(tzinfo=UTC)
        seconds = float(value)  # type: ignore[arg-type]  # what is no number is caught
        seconds = seconds / 1000 if seconds >= _MILLISECONDS else seconds
        return check_year(datetime.fromtimestamp(seconds, UTC)) if seconds else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def records_with(document: object, *keys: str) -> list[Record]:
    """The records of a document, which is a record or a list, if any of them has all of these keys."""
    records = document if isinstance(document, list) else [document]
    if not any(isinstance(record, Mapping) and all(key in record for key in keys) for record in records):
        return []
    return [record if isinstance(record, Mapping) else {} for record in records]


def record_at(record: Record, key: str) -> Record:
    """The record in this field; an empty one where there is none."""
    value = record.get(key)
    return value if isinstance(value, Mapping) else {}


def records_at(record: Record, key: str) -> list[Record]:
    """The records of the list in this field."""
    values = record.get(key)
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else []


def text_at(record: Record, key: str) -> str:
    """The text in this field, without space around it; empty where there is none."""
    value = record.get(key)
    return value.strip() if isinstance(value, str) else ""


def join_texts(blocks: Iterable[Record]) -> str:
    """The texts of content blocks of the type `text`."""
    return "\n".join(filter(None, (text_at(block, "text") for block in blocks if block.get("type") == "text")))


def walk_branch(nodes: Record, leaf: object, parent_key: str) -> Iterator[Record]:
    """The nodes of a tree of messages from a leaf up to the root."""
    ids = set[object]()
    while isinstance(leaf, str) and leaf not in ids and isinstance(node := nodes.get(leaf), Mapping):
        ids.add(leaf)
        yield node
        leaf = node.get(parent_key)


def describe_omitted(files: int, others: int) -> tuple[str, ...]:
    """What is not read of a conversation, one line each: so many images or files, and messages of other branches."""
    counts = {"images or files": files, "messages of other branches": others}
    return tuple(f"{count} {name} are not read" for name, count in counts.items() if count)
