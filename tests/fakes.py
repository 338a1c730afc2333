"""Fakes for unit tests: an encoder without weights, a journal in memory, turns and units in one line."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localmem.bank import Bank
from localmem.errors import Conflict
from localmem.journal import Extents
from localmem.llm.scripted import Script, ScriptedLLM
from localmem.retrieval.base import Match, Scope, Side
from localmem.types import Change, Choice, Completion, JsonSchema, Prompt, Session, Turn, Unit

START = datetime(2026, 3, 2, 18, 0, tzinfo=UTC)


def turns(*texts: str, session: str = "s1", start: datetime = START) -> tuple[Turn, ...]:
    """User and assistant in turn, a minute apart."""
    return tuple(
        Turn(
            f"{session}.{n}",
            "assistant" if n % 2 else "user",
            "Assistant" if n % 2 else "User",
            text,
            start + timedelta(minutes=n),
        )
        for n, text in enumerate(texts)
    )


def session(*texts: str, name: str = "s1", start: datetime = START) -> Session:
    return Session(name, turns(*texts, session=name, start=start))


def unit(name: str, text: str = "", *, key: str | None = None, time: datetime = START) -> Unit:
    text = text or name
    return Unit(name, text, text if key is None else key, "sentence", "User", "s1", ("s1.0",), time, time)


def script(answers: dict[str, str]) -> Callable[[Prompt], str]:
    """Answers by prompt name; a prompt that no answer was given for is an error."""
    return lambda prompt: answers[prompt.name]


class BatchRecorder(ScriptedLLM):
    """Keeps the prompts of each call."""

    def __init__(self, script: Script, *, context_length: int = 8192) -> None:
        super().__init__(script, context_length=context_length)
        self.batches: list[list[Prompt]] = []

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.batches.append(list(prompts))
        return super().generate(prompts)


class WordEncoder:
    """Bags of words hashed into 512 numbers: texts that share words are near. No weights."""

    identity = "words-512"
    dimension = 512

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        self.encoded += texts
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().replace("?", " ").replace(".", " ").split():
                row[int.from_bytes(sha256(word.encode()).digest()[:4], "big") % self.dimension] += 1
        norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True, dtype=np.float32))
        np.divide(rows, norms, out=rows, where=norms > 0)
        return rows


class WordRetriever:
    """A retriever that scores by shared words, in plain Python."""

    def __init__(self) -> None:
        self.units: dict[str, Unit] = {}

    def add(self, units: Sequence[Unit]) -> None:
        for new in units:
            self.units.setdefault(new.id, new)

    def remove(self, ids: Sequence[str]) -> None:
        for unit_id in ids:
            self.units.pop(unit_id, None)

    @property
    def memory(self) -> int:
        return 100 * len(self.units)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        return [self._search(set(query.lower().split()), k, scope or Scope()) for query in queries]

    def _search(self, words: set[str], k: int, scope: Scope) -> list[Match]:
        units = {name: unit for name, unit in self.units.items() if in_scope(unit, scope)}
        scored = [Match(name, float(len(words & set(u.key.lower().split())))) for name, u in units.items()]
        return sorted(scored, key=lambda match: -match.score)[:k]


def in_scope(unit: Unit, scope: Scope) -> bool:
    """Whether a search within the scope may return the unit."""
    return (
        (scope.speaker is None or unit.speaker in (scope.speaker, ""))
        and (scope.since is None or scope.since <= unit.time)
        and (scope.until is None or unit.time <= scope.until)
    )


class MemoryJournal:
    """A journal that keeps everything in lists. `elsewhere` plays another process that changes the bank."""

    def __init__(self) -> None:
        self.turns: dict[str, list[Turn]] = {}
        self.commits: list[tuple[str, list[Change]]] = []
        self.closed: list[str] = []
        self.finished: set[str] = set()
        self.derived: list[str] = []
        self._newer = False

    def elsewhere(self, changes: Sequence[Change]) -> None:
        self.commits.append(("elsewhere", list(changes)))
        self._newer = True

    def bank(self) -> Bank:
        self._newer = False
        return Bank().apply(change for _, changes in self.commits for change in changes)

    def is_current(self) -> bool:
        return not self._newer

    def reread(self, opened: Extents, waiting: Extents) -> None:
        return None

    def session(self, session_id: str) -> Session | None:
        return Session(session_id, tuple(self.turns[session_id])) if session_id in self.turns else None

    def sessions(self) -> list[Session]:
        return [Session(session_id, tuple(turns)) for session_id, turns in self.turns.items()]

    def add_turns(self, session_id: str, turns: Sequence[Turn], after: str = "") -> None:
        self.turns.setdefault(session_id, []).extend(turns)

    def commit(self, cause: str, changes: Sequence[Change], *, derived: bool = False) -> bool:
        self._check()
        self.commits.append((cause, list(changes)))
        self.derived += [cause] * derived
        return True

    def close(self, session_id: str) -> Session:
        self.closed.append(session_id)
        return Session(session_id, tuple(self.turns[session_id]))

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        self._check()
        if session_id in self.finished:
            return False
        self.finished.add(session_id)
        self.commits.append((session_id, list(changes)))
        return True

    def _check(self) -> None:
        if self._newer:
            raise Conflict("the bank was changed elsewhere")


def instance(schema: Mapping[str, object], texts: Iterator[str]) -> object:
    """An answer in a prompt's schema that is made of `texts`, an endless iterator with one below 40 characters."""
    match schema:
        case {"enum": list(options)}:
            return options[0]
        case {"type": "object", "properties": dict(fields)}:
            return {name: instance(field, texts) for name, field in fields.items()}
        case {"type": "array", "items": dict(items), "maxItems": int(most)}:
            return [instance(items, texts) for _ in range(min(most, 8))]
        case {"type": "integer", "minimum": low}:
            return low
        case {"type": "boolean"}:
            return True
        case {"pattern": str(pattern)}:
            return re.sub(r"\([^)]*\)\?|[$^]", "", pattern)
        case {"maxLength": int(longest)}:
            return next(text for text in texts if len(text) <= longest or longest < 40)[:longest]
    raise AssertionError(schema)


def obedient(prompt: Prompt) -> str:
    """An answer in the prompt's format that follows from the prompt alone: the same prompt, the same answer."""
    messages = ", ".join(f"Message(role={each.role!r}, content={each.content!r})" for each in prompt.messages)
    text = f"({prompt.name!r}, ({messages}{',' if len(prompt.messages) == 1 else ''}))"
    seed = int.from_bytes(sha256(text.encode()).digest()[:4], "big")
    match prompt.format:
        case Choice(options=options):
            return options[seed % len(options)]
        case JsonSchema(schema=schema):
            return json.dumps(_instance(dict(schema), seed))
    return f"The user spoke of topic {_letters(seed % 97)}. It was called {_letters(seed % 89)}."


def _letters(number: int) -> str:
    """A number as a word: no source would hold the number."""
    return "".join(chr(ord("k") + int(digit)) for digit in str(number))


def _instance(schema: Mapping[str, Any], seed: int) -> object:
    """A small value that satisfies the schema (the keywords that our prompts use)."""
    if "enum" in schema:
        return schema["enum"][seed % len(schema["enum"])]
    if "const" in schema:
        return schema["const"]
    if "pattern" in schema:  # optional groups and what follows them
        return re.sub(r"\([^)]*\)\?|[$^]", "", schema["pattern"])
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {})
        return {name: _instance(field, seed + n) for n, (name, field) in enumerate(fields.items())}
    if kind == "array":
        count = max(schema.get("minItems", 0), min(2, schema.get("maxItems", 2)))
        return [_instance(schema.get("items", {"type": "string"}), seed + 31 * n) for n in range(count)]
    if kind == "integer":
        low = schema.get("minimum", 0)
        return low + seed % (schema.get("maximum", low + 3) - low + 1)
    if kind == "boolean":
        return bool(seed % 2)
    return f"fact {_letters(seed % 97)}"[: schema.get("maxLength", 99)]
