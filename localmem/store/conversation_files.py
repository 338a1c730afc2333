"""Reads past conversations from files: JSON lines of sessions, or the conversations.json of an OpenAI export.

Does not depend on the database or a model. A bad record is an error with file and line; nothing is skipped silently.

A line is one session: {"id": "...", "turns": [{"role": "user", "text": "...", "time": "2026-03-02T18:05Z"}]}. The names
`messages` and `content` are accepted for `turns` and `text`. `speaker` is optional, and the `time` of a session is used
for turns without one. Times without a zone are those of the user's clock. A session without an id gets one from its
content, so importing a file twice adds nothing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from localmem.errors import BadInput
from localmem.files import is_json_list, parse_json, read_json, read_lines
from localmem.times.zones import in_log_zone
from localmem.types import Role, Session, Turn

_CURE = "give one session per line, with its turns"
_CONVERSATIONS: TypeAdapter[list[dict[str, object]]] = TypeAdapter(list[dict[str, object]])


@dataclass(frozen=True, slots=True)
class FileDefaults:
    """What holds where a file does not say it: the names of the speakers, and the zone of its times.

    Times in UTC are taken for those of a program, and converted to the zone; None is that of this machine.
    """

    user: str = "User"
    assistant: str = "Assistant"
    zone: tzinfo | None = UTC

    def of(self, role: Role) -> str:
        """The name of the speaker in this role."""
        return self.user if role == "user" else self.assistant


_DEFAULTS = FileDefaults()


def read_sessions(path: Path, defaults: FileDefaults = _DEFAULTS) -> list[Session]:
    """The sessions of a file in the order of their first turns. Raises BadInput with file and line of a bad record."""
    if is_json_list(path, _CURE):
        sessions = list(_openai_sessions(path, defaults))
    else:
        sessions = [parse_session(line, place, defaults) for place, line in read_lines(path, _CURE)]
    if not sessions:
        raise BadInput(f"{path} does not contain sessions; each line must be one session with its turns")
    return sorted(sessions, key=lambda session: session.turns[0].time)


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


LogTime = Annotated[datetime, BeforeValidator(_parse_time)]
ZonedTime = Annotated[AwareDatetime, BeforeValidator(_aware)]


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


def parse_session(line: str, place: str, defaults: FileDefaults = _DEFAULTS) -> Session:
    """The session in one JSON line. Raises BadInput that begins with `place`."""
    record = parse_json(place, line, _SessionRecord, _CURE)
    dialogue = [turn for turn in record.turns if turn.role != "system"]
    if not dialogue:
        raise BadInput(f"{place}: the session has no turn of a user or assistant; remove the line")
    content = json.dumps([(turn.role, turn.text, str(_aware(turn.time or record.time))) for turn in dialogue])
    session_id = record.id or sha256(content.encode()).hexdigest()[:12]
    turns: list[Turn] = []
    for turn in dialogue:
        written = turn.time or record.time
        if written is None:
            raise BadInput(f"{place}: the turn {turn.text[:40]!r} has no time; add `time` to it or to its session")
        time = in_log_zone(written, defaults.zone, turns[-1].time if turns else None)
        role: Role = "user" if turn.role == "user" else "assistant"
        turns.append(Turn(f"{session_id}.{len(turns)}", role, turn.speaker or defaults.of(role), turn.text, time))
    return Session(session_id, tuple(turns))


def _openai_sessions(path: Path, defaults: FileDefaults) -> Iterator[Session]:
    cure = "give JSON lines, or the conversations.json of an OpenAI export"
    conversations = read_json(path, _CONVERSATIONS, cure)
    for number, conversation in enumerate(conversations, start=1):
        place = f"{path}, conversation {number}"
        if "mapping" not in conversation:
            raise BadInput(f"{place} has no `mapping`; give the conversations.json of an OpenAI export")
        session = _conversation(conversation, place, defaults)
        if session.turns:
            yield session


def _conversation(conversation: Mapping[str, object], place: str, defaults: FileDefaults) -> Session:
    """The branch of the conversation that was shown last: from its current node up to the root."""
    nodes = conversation["mapping"]
    session_id = str(conversation.get("conversation_id") or conversation.get("id") or "")
    node_id = conversation.get("current_node")
    if not isinstance(nodes, Mapping) or not session_id:
        raise BadInput(f"{place} has no id or no messages; give the conversations.json of an OpenAI export")
    messages: list[tuple[Role, str, datetime]] = []
    while isinstance(node := nodes.get(node_id), Mapping):
        messages += _message(node.get("message"), place)
        node_id = node.get("parent")
    turns = (
        Turn(f"{session_id}.{n}", role, defaults.of(role), text, in_log_zone(time, defaults.zone))
        for n, (role, text, time) in enumerate(reversed(messages))
    )
    return Session(session_id, tuple(turns))


def _message(message: object, place: str) -> list[tuple[Role, str, datetime]]:
    """The turn in a node's message, or nothing for tools, system messages, images and empty texts.

    Raises BadInput for a turn without a time.
    """
    if not isinstance(message, Mapping):
        return []
    author, content, created = message.get("author"), message.get("content"), message.get("create_time")
    if not (isinstance(author, Mapping) and isinstance(content, Mapping)):
        return []
    role = author.get("role")
    parts = content.get("parts")
    text = "\n".join(part for part in parts if isinstance(part, str)).strip() if isinstance(parts, list) else ""
    if role not in ("user", "assistant") or not text:
        return []
    if not isinstance(created, int | float):
        raise BadInput(f"{place}: the message {text[:40]!r} has no time; add `create_time` to it")
    return [("user" if role == "user" else "assistant", text, datetime.fromtimestamp(created, UTC))]
