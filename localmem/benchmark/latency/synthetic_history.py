"""What users said before a measurement: sessions generated from a seed, and the memory that each system keeps of them.

No backbone is needed. One memory reads the sessions over a scripted LLM whose answers fit each prompt's format, every
system with its own code, and the resulting changes are committed to every user's bank through the journal. So all users
have the same bank; the words of past sessions are not in their logs, which nothing reads during a session.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any
from zlib import crc32

from localmem.benchmark.corpus import Statement, generate_statements
from localmem.chat.conversation import Conversation
from localmem.journal import Journal, NoJournal
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Change, Choice, JsonSchema, Prompt, Role, Session, Turn

Track = Callable[[Sequence[Session]], Iterable[Session]]

FIRST_DAY = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
_STATEMENTS = 2_000  # that scripted answers are made of
_BATCH = 5_000  # changes in one transaction
_LINES = 5  # of a free-text answer
_MAX_ITEMS = 3  # of a list in an answer


def generate_sessions(count: int, exchanges: int, seed: int) -> list[Session]:
    """One session a day; the last is on the day before `today(count)`."""
    pairs = generate_statements(count * exchanges, seed)
    return [
        _session(number, pairs[number * exchanges : (number + 1) * exchanges], f"past{number:05d}")
        for number in range(count)
    ]


def today(history: int) -> datetime:
    """The morning after that many sessions."""
    return FIRST_DAY + timedelta(days=history)


def user_texts(history: int, exchanges: int, seed: int, user: str) -> Iterator[str]:
    """A user's turns: each asks about something said before, if there is anything, and says something new."""
    random = Random(f"{seed}/{user}")  # noqa: S311  # words, not a secret
    past = generate_statements(max(min(history * exchanges, _STATEMENTS), 1), seed)
    statements = generate_statements(_STATEMENTS, seed + 1)
    number = 0
    while True:
        number += 1
        first, second = random.choice(statements)[0], random.choice(statements)[0]
        question = random.choice(past if history else statements)[1]
        yield f"{question} By the way, number {number}: {first} {second}"


def remember(
    new_agent: Callable[[Journal], Conversation], sessions: Sequence[Session], track: Track = iter
) -> list[Change]:
    """The changes that a memory makes while it reads the sessions."""
    journal = _RecordingJournal()
    new_agent(journal).writer.read(track(sessions))
    return journal.changes


def commit_history(journal: Journal, changes: Sequence[Change]) -> None:
    """Apply the changes to a user's bank."""
    for start in range(0, len(changes), _BATCH):
        journal.commit(f"past/{start}", changes[start : start + _BATCH])


class _RecordingJournal(NoJournal):
    def __init__(self) -> None:
        self.changes: list[Change] = []

    def commit(self, cause: str, changes: Sequence[Change]) -> None:
        self.changes += changes

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        self.changes += changes
        return True


def _session(number: int, pairs: Sequence[Statement], name: str) -> Session:
    start = FIRST_DAY + timedelta(days=number)
    speakers: tuple[tuple[Role, str], ...] = (("user", "User"), ("assistant", "Assistant"))
    texts = enumerate(text for pair in pairs for text in pair)
    return Session(
        name,
        tuple(Turn(f"{name}.{at}", *speakers[at % 2], text, start + timedelta(minutes=at)) for at, text in texts),
    )


def scripted_llm(reply_words: int, *, first_token: float = 0.0, per_token: float = 0.0) -> ScriptedLLM:
    """A backbone with fixed times in seconds that answers every prompt of every system in its format."""
    return ScriptedLLM(
        lambda prompt: scripted_answer(prompt, reply_words),
        name="scripted",
        context_length=32768,
        first_token=first_token,
        per_token=per_token,
    )


def scripted_answer(prompt: Prompt, reply_words: int) -> str:
    """The same for the same prompt: a reply of `reply_words`, a value of the prompt's format, or some statements."""
    random = Random(crc32(prompt.messages[-1].content.encode()))  # noqa: S311  # words, not a secret
    match prompt.format:
        case Choice(options=options):
            return random.choice(options)
        case JsonSchema(schema=schema):
            return json.dumps(_schema_value(schema, random), ensure_ascii=False)
    if "/respond" not in prompt.name:
        return "\n".join(random.choices(_statement_texts(), k=_LINES))
    words = " ".join(random.choices(_statement_texts(), k=1 + reply_words // 5)).split()
    return " ".join(words[:reply_words])


def _schema_value(schema: Mapping[str, Any], random: Random) -> object:
    if "enum" in schema:
        return random.choice(list(schema["enum"]))
    match schema["type"]:
        case "object":
            return {name: _schema_value(field, random) for name, field in schema["properties"].items()}
        case "array":
            count = max(min(schema.get("maxItems", _MAX_ITEMS), _MAX_ITEMS), schema.get("minItems", 0))
            return [_schema_value(schema["items"], random) for _ in range(count)]
        case "integer":
            return random.randint(schema.get("minimum", 0), schema.get("maximum", 9))
        case "boolean":
            return random.random() < 0.5
    return random.choice(_statement_texts())[: schema.get("maxLength")]


@cache
def _statement_texts() -> tuple[str, ...]:
    return tuple(statement for statement, _ in generate_statements(_STATEMENTS, 7))
