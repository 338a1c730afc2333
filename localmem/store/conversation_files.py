"""Reads past conversations from files: JSON lines of sessions, or the conversations.json of an OpenAI export.

Does not depend on the database or a model. A bad record is an error with file and line; nothing is skipped silently.

A line is one session: {"id": "...", "turns": [{"role": "user", "text": "...", "time": "2026-03-02T18:05Z"}]}. The names
`messages` and `content` are accepted for `turns` and `text`. `speaker` is optional, and the `time` of a session is used
for turns without one. A session without an id gets one from its content, so importing a file twice adds nothing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from localmem.errors import BadInput
from localmem.files import is_json_list, parse_json, read_json, read_lines
from localmem.types import Role, Session, Turn

_CURE = "give one session per line, with its turns"
_CONVERSATIONS: TypeAdapter[list[dict[str, object]]] = TypeAdapter(list[dict[str, object]])


@dataclass(frozen=True, slots=True)
class SpeakerNames:
    """Names of the speakers where a file does not give them."""

    user: str = "User"
    assistant: str = "Assistant"

    def of(self, role: Role) -> str:
        """The name of the speaker in this role."""
        return self.user if role == "user" else self.assistant


_DEFAULT_NAMES = SpeakerNames()


def read_sessions(path: Path, names: SpeakerNames = _DEFAULT_NAMES) -> list[Session]:
    """The sessions of a file in the order of their first turns. Raises BadInput with file and line of a bad record."""
    if is_json_list(path, _CURE):
        sessions = list(_openai_sessions(path, names))
    else:
        sessions = [parse_session(line, place, names) for place, line in read_lines(path, _CURE)]
    if not sessions:
        raise BadInput(f"{path} does not contain sessions; each line must be one session with its turns")
    return sorted(sessions, key=lambda session: session.turns[0].time)


def _aware(value: object) -> object:
    """A time without a zone is UTC; a number is unix seconds."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return value
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


ZonedTime = Annotated[AwareDatetime, BeforeValidator(_aware)]


class _TurnRecord(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: Literal["user", "assistant", "system"]
    text: str = Field(validation_alias=AliasChoices("text", "content"))
    time: ZonedTime | None = None
    speaker: str | None = None


class _SessionRecord(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str | None = Field(default=None, min_length=1)
    turns: list[_TurnRecord] = Field(validation_alias=AliasChoices("turns", "messages"), min_length=1)
    time: ZonedTime | None = None


def parse_session(line: str, place: str, names: SpeakerNames = _DEFAULT_NAMES) -> Session:
    """The session in one JSON line. Raises BadInput that begins with `place`."""
    record = parse_json(place, line, _SessionRecord, _CURE)
    dialogue = [turn for turn in record.turns if turn.role != "system"]
    if not dialogue:
        raise BadInput(f"{place}: the session has no turn of a user or assistant; remove the line")
    content = json.dumps([(turn.role, turn.text, str(turn.time or record.time)) for turn in dialogue])
    session_id = record.id or sha256(content.encode()).hexdigest()[:12]
    turns = (_turn(turn, f"{session_id}.{n}", record.time, place, names) for n, turn in enumerate(dialogue))
    return Session(session_id, tuple(turns))


def _turn(record: _TurnRecord, turn_id: str, session_time: datetime | None, place: str, names: SpeakerNames) -> Turn:
    time = record.time or session_time
    if time is None:
        raise BadInput(f"{place}: the turn {record.text[:40]!r} has no time; add `time` to it or to its session")
    role: Role = "user" if record.role == "user" else "assistant"
    return Turn(turn_id, role, record.speaker or names.of(role), record.text, time)


def _openai_sessions(path: Path, names: SpeakerNames) -> Iterator[Session]:
    cure = "give JSON lines, or the conversations.json of an OpenAI export"
    conversations = read_json(path, _CONVERSATIONS, cure)
    for number, conversation in enumerate(conversations, start=1):
        place = f"{path}, conversation {number}"
        if "mapping" not in conversation:
            raise BadInput(f"{place} has no `mapping`; give the conversations.json of an OpenAI export")
        session = _conversation(conversation, place, names)
        if session.turns:
            yield session


def _conversation(conversation: Mapping[str, object], place: str, names: SpeakerNames) -> Session:
    """The branch of the conversation that was shown last: from its current node up to the root."""
    nodes = conversation["mapping"]
    session_id = str(conversation.get("conversation_id") or conversation.get("id") or "")
    node_id = conversation.get("current_node")
    if not isinstance(nodes, Mapping) or not session_id:
        raise BadInput(f"{place} has no id or no messages; give the conversations.json of an OpenAI export")
    messages: list[tuple[Role, str, datetime]] = []
    while isinstance(node := nodes.get(node_id), Mapping):
        messages += _message(node.get("message"))
        node_id = node.get("parent")
    turns = (
        Turn(f"{session_id}.{n}", role, names.of(role), text, time)
        for n, (role, text, time) in enumerate(reversed(messages))
    )
    return Session(session_id, tuple(turns))


def _message(message: object) -> list[tuple[Role, str, datetime]]:
    """The turn in a node's message, or nothing for tools, system messages, images and empty texts."""
    if not isinstance(message, Mapping):
        return []
    author, content, created = message.get("author"), message.get("content"), message.get("create_time")
    if not (isinstance(author, Mapping) and isinstance(content, Mapping) and isinstance(created, int | float)):
        return []
    role = author.get("role")
    parts = content.get("parts")
    text = "\n".join(part for part in parts if isinstance(part, str)).strip() if isinstance(parts, list) else ""
    if role not in ("user", "assistant") or not text:
        return []
    return [("user" if role == "user" else "assistant", text, datetime.fromtimestamp(created, UTC))]
