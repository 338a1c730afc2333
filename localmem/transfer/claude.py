"""Claude's export: `conversations.json`, a list with `uuid`, `created_at` and `chat_messages`.

A message has a `sender` (human or assistant), `created_at`, and its words in `content` blocks of the type text, in
older exports in `text` alone. By `parent_message_uuid` they are a tree, of which the branch with the last message is
read. Tool calls, their results, attachments and files are not read.
"""

import re
from collections.abc import Iterator, Sequence

from localmem.errors import BadInput
from localmem.transfer.drafts import (
    Draft,
    DraftTurn,
    Record,
    describe_omitted,
    join_texts,
    parse_time,
    record_at,
    records_at,
    text_at,
    walk_branch,
)

KEYS = ("chat_messages",)

_NO_PARENT = "00000000-"
_PLACEHOLDER = re.compile(r"(?:```\s*)?This block is not supported on your current device yet\.(?:\s*```)?")


def read(conversation: Record) -> Iterator[Draft]:
    """One draft. Raises BadInput for a conversation without id."""
    name = text_at(conversation, "uuid")
    if not name:
        raise BadInput("has no `uuid`")
    messages = records_at(conversation, "chat_messages")
    branch = _branch(messages)
    turns = [turn for message in branch for turn in _turns(message)]
    files = sum(len(records_at(message, field)) for message in branch for field in ("attachments", "files"))
    others = sum(1 for message in messages for _ in _turns(message)) - len(turns)
    yield Draft(name, turns, parse_time(conversation.get("created_at")), describe_omitted(files, others))


def _branch(messages: Sequence[Record]) -> list[Record]:
    """The messages up to the last one; one whose parent is not there follows the message above it."""
    names = [text_at(message, "uuid") or f"#{number}" for number, message in enumerate(messages)]
    nodes: dict[str, Record] = {}
    for name, previous, message in zip(names, [_NO_PARENT, *names], messages, strict=False):
        parent = text_at(message, "parent_message_uuid")
        is_known = parent in nodes or parent.startswith(_NO_PARENT)
        nodes[name] = {"message": message, "parent": parent if is_known else previous}
    leaf = names[-1] if names else None
    return [record_at(node, "message") for node in walk_branch(nodes, leaf, "parent")][::-1]


def _turns(message: Record) -> Iterator[DraftTurn]:
    text = join_texts(records_at(message, "content")) or text_at(message, "text")
    text = _PLACEHOLDER.sub("", text).strip()
    sender = message.get("sender")
    if text and sender in ("human", "assistant"):
        yield DraftTurn("user" if sender == "human" else "assistant", text, parse_time(message.get("created_at")))
