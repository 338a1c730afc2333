"""localmem's own JSON lines of sessions. A bad record is an error with file and line; nothing is skipped silently.

A line is one session: {"id": "...", "turns": [{"role": "user", "text": "...", "time": "2026-03-02T18:05Z"}]}. The names
`messages` and `content` are accepted for `turns` and `text`. `speaker` is optional, and the `time` of a session is used
for turns without one. Times without a zone are those of the user's clock. A session without an id gets one from its
content, so importing a file twice adds nothing.
"""

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from localmem.errors import BadInput, OutOfOrder
from localmem.files import parse_json
from localmem.journal import check_order
from localmem.times.zones import check_year, in_log_zone
from localmem.transfer.drafts import FileDefaults
from localmem.types import Role, Session, Turn

CURE = "give one session per line, with its turns"


def content_id(content: object) -> str:
    """A name made of what is in a record, for one that has none."""
    return sha256(json.dumps(content).encode()).hexdigest()[:12]


def _parse_time(value: object) -> object:
    """A time as Python writes it; what else pydantic reads, such as unix seconds, is left to it."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return value
    return value


def _aware(value: object) -> object:
    """A time without a zone is UTC."""
    value = _parse_time(value)
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


LogTime = Annotated[datetime, BeforeValidator(_parse_time), AfterValidator(check_year)]
ZonedTime = Annotated[AwareDatetime, BeforeValidator(_aware), AfterValidator(check_year)]


class _TurnRecord(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: Literal["user", "assistant", "system"]
    text: str = Field(validation_alias=AliasChoices("text", "content"))
    time: LogTime | None = None
    speaker: str | None = None


class _SessionRecord(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str | None = Field(default=None, min_length=1)
    turns: list[_TurnRecord] = Field(validation_alias=AliasChoices("turns", "messages"), min_length=1)
    time: LogTime | None = None


_DEFAULTS = FileDefaults()


def parse_session(line: str, place: str, defaults: FileDefaults = _DEFAULTS, cure: str = CURE) -> Session:
    """The session in one JSON line. Raises BadInput that begins with `place`."""
    record = parse_json(place, line, _SessionRecord, cure)
    dialogue = [turn for turn in record.turns if turn.role != "system"]
    if not dialogue:
        raise BadInput(f"{place}: the session has no turn of a user or assistant; remove the line")
    content = [(turn.role, turn.text, str(_aware(turn.time or record.time))) for turn in dialogue]
    session_id = record.id or content_id(content)
    turns: list[Turn] = []
    for turn in dialogue:
        written = turn.time or record.time or defaults.time
        if written is None:
            name = f"turn {len(turns) + 1} ({turn.text[:40]!r})"
            raise BadInput(f"{place}: {name} has no time; add `time` to it or to its session")
        time = in_log_zone(written, defaults.zone, turns[-1].time if turns else None)
        role: Role = "user" if turn.role == "user" else "assistant"
        turns.append(Turn(f"{session_id}.{len(turns)}", role, turn.speaker or defaults.of(role), turn.text, time))
    session = Session(session_id, tuple(turns))
    try:
        check_order(session)
    except OutOfOrder as error:
        raise BadInput(f"{place}: {error}") from error
    return session
