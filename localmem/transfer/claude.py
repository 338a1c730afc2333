"""Claude's export: `conversations.json`, a list with `uuid`, `created_at` and `chat_messages`.

A message has a `sender` (human or assistant), `created_at`, and its words in `content` blocks of the type text, in
older exports in `text` alone. Tool calls, their results and attachments are not read.
"""

from collections.abc import Iterator

from localmem.errors import BadInput
from localmem.transfer.drafts import Draft, DraftTurn, Record, join_texts, parse_time, records_at, text_at

KEYS = ("chat_messages",)


def read(conversation: Record) -> Iterator[Draft]:
    """One draft. Raises BadInput for a conversation without id."""
    name = text_at(conversation, "uuid")
    if not name:
        raise BadInput("has no `uuid`")
    messages = records_at(conversation, "chat_messages")
    attachments = sum(len(records_at(message, "attachments")) for message in messages)
    omitted = (f"{attachments} attachments are not read",) if attachments else ()
    turns = [turn for message in messages for turn in _turns(message)]
    yield Draft(name, turns, parse_time(conversation.get("created_at")), omitted)


def _turns(message: Record) -> Iterator[DraftTurn]:
    text = join_texts(records_at(message, "content")) or text_at(message, "text")
    sender = message.get("sender")
    if text and sender in ("human", "assistant"):
        yield DraftTurn("user" if sender == "human" else "assistant", text, parse_time(message.get("created_at")))
