"""ChatGPT's export: `conversations.json`, a list of trees of messages.

A conversation has `mapping` (node id to parent and message), `current_node` and `create_time` in unix seconds; a
message has an author, `content` with parts, a recipient and a time that may be null. The branch that was shown last is
read: words of the user and of the assistant, transcribed speech included; not tools, images and hidden messages.
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

KEYS = ("mapping",)

_CITATION = re.compile("\ue200.*?\ue201", re.DOTALL)  # between these private characters stand marks of sources
_SPOKEN = ("text", "multimodal_text")


def read(conversation: Record) -> Iterator[Draft]:
    """One draft. Raises BadInput for a conversation without id or messages."""
    name = text_at(conversation, "conversation_id") or text_at(conversation, "id")
    nodes = record_at(conversation, "mapping")
    if not name or not nodes:
        raise BadInput("has no id or no `mapping` with messages")
    branch = list(walk_branch(nodes, _leaf(conversation, nodes), "parent"))
    turns = [turn for node in reversed(branch) for turn in _turns(record_at(node, "message"))]
    files = sum(_file_count(record_at(node, "message")) for node in branch)
    others = sum(1 for node in nodes for _ in _turns(record_at(record_at(nodes, node), "message"))) - len(turns)
    yield Draft(name, turns, parse_time(conversation.get("create_time")), describe_omitted(files, others))


def _leaf(conversation: Record, nodes: Record) -> str:
    """The node shown last; without a valid one the last of the newest messages."""
    current = conversation.get("current_node")
    if isinstance(current, str) and current in nodes:
        return current

    def time(node: str) -> float:
        written = parse_time(record_at(record_at(nodes, node), "message").get("create_time"))
        return written.timestamp() if written else 0.0

    return max(reversed(list(nodes)), key=time)


def _turns(message: Record) -> Iterator[DraftTurn]:
    role, content = record_at(message, "author").get("role"), record_at(message, "content")
    hidden = record_at(message, "metadata").get("is_visually_hidden_from_conversation")
    if role not in ("user", "assistant") or hidden or message.get("recipient") not in (None, "all"):
        return
    if content.get("content_type", "text") not in _SPOKEN:
        return
    text = _CITATION.sub("", "\n".join(_words(content))).strip()
    if text:
        yield DraftTurn("user" if role == "user" else "assistant", text, parse_time(message.get("create_time")))


def _words(content: Record) -> Iterator[str]:
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and part.get("content_type") == "audio_transcription":
            yield text_at(part, "text")


def _file_count(message: Record) -> int:
    """Images and attachments; an image of the user is among both."""
    pointers = records_at(record_at(message, "content"), "parts")
    images = sum(str(part.get("content_type", "")).startswith("image_") for part in pointers)
    return max(images, len(records_at(record_at(message, "metadata"), "attachments")))
