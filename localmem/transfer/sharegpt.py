"""ShareGPT's format: records with `conversations`, a list of messages with `from` and `value`, and no times."""

from collections.abc import Iterator, Mapping

from localmem.transfer.drafts import Draft, DraftTurn, Record, parse_time, records_at, text_at
from localmem.transfer.session_lines import content_id
from localmem.types import Role

KEYS = ("conversations",)

_ROLES: Mapping[str, Role] = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant",
    "bot": "assistant", "model": "assistant", "bing": "assistant", "bard": "assistant",
}  # fmt: skip


def read(record: Record) -> Iterator[Draft]:
    """One draft; messages from others, such as the system, are not read."""
    messages = [(text_at(message, "from").lower(), text_at(message, "value")) for message in _messages(record)]
    turns = [DraftTurn(_ROLES[sender], text) for sender, text in messages if text and sender in _ROLES]
    name = text_at(record, "id") or content_id([(turn.role, turn.text) for turn in turns])
    others = sorted({sender for sender, _ in messages} - {*_ROLES, "system"})
    omitted = (f"messages from {', '.join(map(repr, others))} are not read",) if others else ()
    yield Draft(name, turns, parse_time(record.get("time")), omitted)


def _messages(record: Record) -> list[Record]:
    return records_at(record, "conversations")
