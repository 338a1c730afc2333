"""Past conversations out of files: JSONL of sessions, or the conversations.json of an OpenAI export.

Knows no store and no model. A bad record is an error that names file and line; nothing is skipped in silence.

A line of JSONL is one session: {"id": "...", "turns": [{"role": "user", "text": "...", "time": "2026-03-02T18:05Z"}]}.
`messages` and `content` are taken for `turns` and `text`, `speaker` names who said it, and a `time` of the session
stands in for those its turns do not have. A session without an id gets one from its content, so reading a file twice
adds nothing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from localmem.errors import BadInput
from localmem.types import Role, Session, Turn


@dataclass(frozen=True, slots=True)
class Names:
    """What the speakers are called where the file does not say."""

    user: str = "User"
    assistant: str = "Assistant"

    def of(self, role: Role) -> str:
        return self.user if role == "user" else self.assistant


def read_sessions(path: Path, names: Names) -> list[Session]:
    """The sessions of a file in the order of their first turns. Raises BadInput with file and line of a bad record."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}; give a UTF-8 text file") from error
    read = _openai_export if text.lstrip().startswith("[") else _jsonl
    sessions = list(read(path, text, names))
    if not sessions:
        raise BadInput(f"{path} holds no session; a line of it must be one session with its turns")
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


Time = Annotated[AwareDatetime, BeforeValidator(_aware)]


class _Turn(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: Literal["user", "assistant", "system"]
    text: str = Field(validation_alias=AliasChoices("text", "content"))
    time: Time | None = None
    speaker: str | None = None


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str | None = Field(default=None, min_length=1)
    turns: list[_Turn] = Field(validation_alias=AliasChoices("turns", "messages"), min_length=1)
    time: Time | None = None


def _jsonl(path: Path, text: str, names: Names) -> Iterator[Session]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield read_line(line, f"{path}, line {number}", names)


def read_line(line: str, place: str, names: Names) -> Session:
    """The session in one line of JSONL. Raises BadInput, which begins with `place`."""
    try:
        record = _Line.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(str(part) for part in problem["loc"]) or "the line"
        raise BadInput(f"{place}: {field}: {problem['msg']}") from error
    return _session(record, place, names)


def _session(record: _Line, place: str, names: Names) -> Session:
    said = [turn for turn in record.turns if turn.role != "system"]
    if not said:
        raise BadInput(f"{place}: the session has no turn of a user or assistant; leave it out")
    content = json.dumps([(turn.role, turn.text, str(turn.time or record.time)) for turn in said])
    session_id = record.id or sha256(content.encode()).hexdigest()[:12]
    return Session(
        session_id, tuple(_turn(turn, f"{session_id}.{n}", record, place, names) for n, turn in enumerate(said))
    )


def _turn(turn: _Turn, turn_id: str, record: _Line, place: str, names: Names) -> Turn:
    time = turn.time or record.time
    if time is None:
        raise BadInput(f"{place}: the turn {turn.text[:40]!r} has no time; add `time` to it or to its session")
    role: Role = "user" if turn.role == "user" else "assistant"
    return Turn(turn_id, role, turn.speaker or names.of(role), turn.text, time)


def _openai_export(path: Path, text: str, names: Names) -> Iterator[Session]:
    try:
        conversations = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{path} begins like an OpenAI export and is no JSON: {error}") from error
    for number, conversation in enumerate(conversations, start=1):
        place = f"{path}, conversation {number}"
        if not isinstance(conversation, Mapping) or "mapping" not in conversation:
            raise BadInput(f"{place} has no `mapping`; give the conversations.json of an OpenAI export")
        session = _conversation(conversation, place, names)
        if session.turns:
            yield session


def _conversation(conversation: Mapping[str, object], place: str, names: Names) -> Session:
    """The branch of the conversation that was shown last: from its current node up to the root."""
    nodes = conversation["mapping"]
    session_id = str(conversation.get("conversation_id") or conversation.get("id") or "")
    node_id = conversation.get("current_node")
    if not isinstance(nodes, Mapping) or not session_id:
        raise BadInput(f"{place} has no id or no messages; give the conversations.json of an OpenAI export")
    said: list[tuple[Role, str, datetime]] = []
    while isinstance(node := nodes.get(node_id), Mapping):
        said += _message(node.get("message"))
        node_id = node.get("parent")
    turns = (
        Turn(f"{session_id}.{n}", role, names.of(role), text, time)
        for n, (role, text, time) in enumerate(reversed(said))
    )
    return Session(session_id, tuple(turns))


def _message(message: object) -> list[tuple[Role, str, datetime]]:
    """The turn in a node's message, or nothing: tools, system messages, pictures and empty texts are no turns."""
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
