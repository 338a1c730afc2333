"""Open WebUI's export of chats: a list with `id`, `user_id`, `created_at` and `chat`.

`chat.history.messages` is a tree by `parentId` whose shown leaf is `currentId`; older files have the list
`chat.messages` alone. Times are unix seconds or milliseconds. A model's thoughts, which it keeps in <details> elements,
are not read.
"""

import re
from collections.abc import Iterator

from localmem.errors import BadInput
from localmem.transfer.drafts import (
    Draft,
    DraftTurn,
    Record,
    describe_omitted,
    parse_time,
    record_at,
    records_at,
    text_at,
    walk_branch,
)

KEYS = ("chat",)

_DETAILS = re.compile(r"<details\b[^>]*\btype=.*?</details>", re.DOTALL)


def read(record: Record) -> Iterator[Draft]:
    """One draft. Raises BadInput for a chat without id or messages."""
    chat = record_at(record, "chat")
    history = record_at(chat, "history")
    name = text_at(record, "id") or text_at(chat, "id")
    nodes = record_at(history, "messages")
    branch = list(walk_branch(nodes, history.get("currentId"), "parentId"))
    messages = list(reversed(branch)) or records_at(chat, "messages")
    if not name or not messages:
        raise BadInput("has no id or no messages")
    files = sum(len(records_at(message, "files")) for message in messages)
    turns = [turn for message in messages for turn in _turns(message)]
    others = sum(1 for node in nodes for _ in _turns(record_at(nodes, node))) - len(turns) if branch else 0
    time = parse_time(record.get("created_at")) or parse_time(chat.get("timestamp"))
    yield Draft(name, turns, time, describe_omitted(files, others))


def _turns(message: Record) -> Iterator[DraftTurn]:
    role, text = message.get("role"), _DETAILS.sub("", text_at(message, "content")).strip()
    if text and role in ("user", "assistant"):
        yield DraftTurn("user" if role == "user" else "assistant", text, parse_time(message.get("timestamp")))
