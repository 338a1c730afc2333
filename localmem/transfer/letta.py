"""Letta's agent files (.af): its messages, and what it keeps about the human.

Two versions: one agent with `core_memory`, and a list `agents` that share `blocks`. A user's message may be wrapped as
JSON with a type; what is no `user_message`, such as a login or a heartbeat, nobody said. An agent that calls
`send_message` speaks by it, and its other words are thoughts. Messages without end become a session for each day.

Archival memory is not in these files; a list of its passages, as Letta's API returns it, is read as well.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby

from localmem.errors import BadInput
from localmem.transfer.drafts import (
    Draft,
    DraftTurn,
    Record,
    join_texts,
    parse_time,
    record_at,
    records_at,
    text_at,
)
from localmem.transfer.session_lines import content_id

FILE_KEYS = ("agents",)
AGENT_KEYS = ("core_memory", "messages")
PASSAGE_KEYS = ("text", "embedding_config")

_HUMAN = "human"


def read_file(file: Record) -> Iterator[Draft]:
    """The drafts of all agents of a file."""
    blocks = {text_at(block, "id"): block for block in records_at(file, "blocks")}
    for agent in records_at(file, "agents"):
        names = agent.get("block_ids")
        yield from _drafts(agent, [blocks[name] for name in names if name in blocks] if isinstance(names, list) else [])


def read_agent(agent: Record) -> Iterator[Draft]:
    """The drafts of one agent in the older version."""
    yield from _drafts(agent, records_at(agent, "core_memory"))


def read_passage(passage: Record) -> Iterator[Draft]:
    """One draft. Raises BadInput for a passage without id or text."""
    name, text = text_at(passage, "id"), text_at(passage, "text")
    if not name or not text:
        raise BadInput("has no `id` or no `text`")
    yield Draft(name, [DraftTurn("user", text, parse_time(passage.get("created_at")))])


def _drafts(agent: Record, blocks: list[Record]) -> Iterator[Draft]:
    turns = [turn for message in records_at(agent, "messages") for turn in _turns(message)]
    omitted = tuple(
        f"the block {text_at(block, 'label')!r} is about the agent and not read; put it into chat.instructions"
        for block in blocks
        if text_at(block, "label") != _HUMAN and text_at(block, "value")
    )
    name = text_at(agent, "id") or content_id(text_at(agent, "name"))
    for block in blocks:
        if text_at(block, "label") == _HUMAN:
            yield from _facts(block, turns[0].time if turns else None)
    for number, (day, of_day) in enumerate(groupby(turns, key=lambda turn: turn.time.date() if turn.time else None)):
        yield Draft(f"{name}-{day or number}", list(of_day), None, omitted if number == 0 else ())
    if not turns and omitted:
        yield Draft(name, (), None, omitted)


def _facts(block: Record, first: datetime | None) -> Iterator[Draft]:
    """The lines of a block about the human, which the user is taken to have told."""
    time = parse_time(block.get("updated_at")) or parse_time(block.get("created_at")) or first
    lines = [line.strip() for line in text_at(block, "value").splitlines() if line.strip()]
    if lines:
        yield Draft(f"letta-{content_id(lines)}", [DraftTurn("user", line, time) for line in lines])


def _turns(message: Record) -> Iterator[DraftTurn]:
    role = message.get("role")
    text = join_texts(records_at(message, "content")) or text_at(message, "content") or text_at(message, "text")
    time = parse_time(message.get("created_at"))
    if role == "user" and (words := _unwrap(text)):
        yield DraftTurn("user", words, time)
    elif role == "assistant" and (words := _sent(message) if records_at(message, "tool_calls") else text):
        yield DraftTurn("assistant", words, time)


def _unwrap(text: str) -> str:
    """The words of a user's message; none of what the program itself put there."""
    wrapped = _parse(text)
    if not wrapped.get("type"):
        return text
    return text_at(wrapped, "message") if wrapped.get("type") == "user_message" else ""


def _sent(message: Record) -> str:
    calls = [record_at(call, "function") for call in records_at(message, "tool_calls")]
    texts = (text_at(_parse(call.get("arguments")), "message") for call in calls if call.get("name") == "send_message")
    return "\n".join(filter(None, texts))


def _parse(text: object) -> Record:
    try:
        value = json.loads(text) if isinstance(text, str) and text.startswith("{") else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
