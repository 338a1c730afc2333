"""mem0's dump: what `get_all` returns, a list of memories, alone or in the field `results`.

A memory has `id`, `memory` (a sentence), `user_id` and `created_at`. Each becomes a session with one turn of the user:
so it is in the log, every memory system reads it, and reading a later dump adds only what is new or was changed.
"""

from collections.abc import Iterator

from localmem.errors import BadInput
from localmem.transfer.drafts import Draft, DraftTurn, Record, parse_time, text_at

KEYS = ("memory", "id")


def read(record: Record) -> Iterator[Draft]:
    """One draft. Raises BadInput for a memory without id or text."""
    name, text = text_at(record, "id"), text_at(record, "memory")
    if not name or not text:
        raise BadInput("has no `id` or no text in `memory`")
    time = parse_time(record.get("updated_at")) or parse_time(record.get("created_at"))
    yield Draft(f"mem0-{name}", [DraftTurn("user", text, time)])
