"""What users have said before: sessions made up from a seed, remembered in the form that each system keeps.

No user is asked to wait for a backbone: one memory reads the sessions over a scripted LLM whose answers keep to each
prompt's format, every system by its own code, and the changes that it comes to are committed to every user's bank
straight through the journal. All users so have alike banks; the words of the past are not in their logs, which nothing
reads while a session goes on. Knows no store and no settings.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from localmem.benchmark.corpus import unit_length
from localmem.benchmark.sentences import Said, said
from localmem.chat.agent import ChatAgent
from localmem.journal import Journal, NoJournal
from localmem.llm.scripted import ScriptedLLM
from localmem.retrieval.base import Encoder, Side
from localmem.types import Change, Choice, JsonSchema, Prompt, Session, Turn

Rows = NDArray[np.float32]
Track = Callable[[Sequence[Session]], Iterable[Session]]

BEGAN = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
MOST_ENCODED = 10_000  # texts; further ones get a mixture of two of these with noise (see benchmark/corpus.py)
_STOCK = 2_000  # statements that scripted answers are made of
_BATCH = 5_000  # changes in one transaction
_LINES = 5  # of a free answer
_ITEMS = 3  # of a list in an answer
_SHARE, _NOISE = 0.7, 0.25


def sessions(count: int, exchanges: int, seed: int) -> list[Session]:
    """One a day, the last on the day before `today(count)`."""
    pairs = said(count * exchanges, seed)
    return [
        _session(number, pairs[number * exchanges : (number + 1) * exchanges], f"past{number:05d}")
        for number in range(count)
    ]


def today(history: int) -> datetime:
    """The morning after so many sessions."""
    return BEGAN + timedelta(days=history)


def words(history: int, exchanges: int, seed: int, user: str) -> Iterator[str]:
    """What the user says next: a question about what was said before, if there is anything, and something new."""
    chance = Random(f"{seed}/{user}")  # noqa: S311  # words, no secret
    asked = said(max(min(history * exchanges, _STOCK), 1), seed)
    stock = said(_STOCK, seed + 1)
    number = 0
    while True:
        number += 1
        statement, other = chance.choice(stock)[0], chance.choice(stock)[0]
        question = chance.choice(asked)[1] if history else chance.choice(stock)[1]
        yield f"{question} By the way, number {number}: {statement} {other}"


def changes(new_agent: Callable[[Journal], ChatAgent], past: Sequence[Session], track: Track = iter) -> list[Change]:
    """What a memory that reads these sessions comes to."""
    journal = _Kept()
    new_agent(journal).read(track(past))
    return journal.changes


def give(journal: Journal, made: Sequence[Change]) -> None:
    """The changes become a user's bank."""
    for start in range(0, len(made), _BATCH):
        journal.commit(f"past/{start}", made[start : start + _BATCH])


class _Kept(NoJournal):
    def __init__(self) -> None:
        self.changes: list[Change] = []

    def commit(self, cause: str, changes: Sequence[Change]) -> None:
        self.changes += changes

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        self.changes += changes
        return True


def _session(number: int, pairs: Sequence[Said], name: str) -> Session:
    began = BEGAN + timedelta(days=number)
    spoken = [text for pair in pairs for text in pair]
    return Session(name, tuple(_turn(name, place, text, began) for place, text in enumerate(spoken)))


def _turn(session: str, place: int, text: str, began: datetime) -> Turn:
    role, speaker = ("assistant", "Assistant") if place % 2 else ("user", "User")
    return Turn(f"{session}.{place}", role, speaker, text, began + timedelta(minutes=place))  # type: ignore[arg-type]


# -- answers without a model -------------------------------------------------------------------------------------------


def scripted(words_of_reply: int, *, first_token: float = 0.0, per_token: float = 0.0, name: str) -> ScriptedLLM:
    """A backbone of given times (seconds) that answers every prompt of every system in its format."""
    return ScriptedLLM(
        lambda prompt: answer(prompt, words_of_reply),
        name=name,
        context_length=32768,
        first_token=first_token,
        per_token=per_token,
    )


def answer(prompt: Prompt, words_of_reply: int) -> str:
    """The same for the same prompt. A reply has so many words, another free answer some statements, one a line."""
    chance = Random(crc32(prompt.messages[-1].content.encode()))  # noqa: S311  # words, no secret
    match prompt.format:
        case Choice(options=options):
            return chance.choice(options)
        case JsonSchema(schema=schema):
            return _json(schema, chance)
    stock = _stock()
    if "/respond" not in prompt.name:
        return "\n".join(chance.choices(stock, k=_LINES))
    spoken = " ".join(chance.choices(stock, k=1 + words_of_reply // 5)).split()
    return " ".join(spoken[:words_of_reply])


def _json(schema: Mapping[str, object], chance: Random) -> str:
    import json

    return json.dumps(_value(schema, chance), ensure_ascii=False)


def _value(schema: Mapping[str, object], chance: Random) -> object:
    """Something that satisfies a schema of those that the systems write (see text/schemas.py)."""
    if "enum" in schema:
        return chance.choice(list(schema["enum"]))  # type: ignore[call-overload]
    match schema["type"]:
        case "object":
            fields: Mapping[str, Mapping[str, object]] = schema["properties"]  # type: ignore[assignment]
            return {name: _value(field, chance) for name, field in fields.items()}
        case "array":
            most = min(int(schema.get("maxItems", _ITEMS)), _ITEMS)  # type: ignore[call-overload]
            count = max(most, int(schema.get("minItems", 0)))  # type: ignore[call-overload]
            return [_value(schema["items"], chance) for _ in range(count)]  # type: ignore[arg-type]
        case "integer":
            return chance.randint(schema.get("minimum", 0), schema.get("maximum", 9))  # type: ignore[arg-type]
        case "boolean":
            return chance.random() < 0.5
    return chance.choice(_stock())[: cast("int | None", schema.get("maxLength"))]


@cache
def _stock() -> tuple[str, ...]:
    return tuple(statement for statement, _ in said(_STOCK, 7))


class Vectors(dict[str, bytes]):
    """What an encoder made while one memory read the past, to be put into the store at once (see EmbeddingCache)."""

    def get(self, _identity: str, digests: Sequence[str]) -> dict[str, bytes]:  # type: ignore[override]  # by contract
        return {digest: self[digest] for digest in digests if digest in self}

    def put(self, _identity: str, rows: Mapping[str, bytes]) -> None:
        self.update(rows)

    def parts(self) -> Iterator[dict[str, bytes]]:
        """As many as go into one transaction."""
        items = list(self.items())
        return (dict(items[start : start + _BATCH]) for start in range(0, len(items), _BATCH))


class Mixed:
    """An encoder that encodes the first passages, and mixes the vectors of the further ones from two of these.

    A bank of 100,000 units is so made in a minute; distances stay like those of real texts, which is what an index
    feels. It has the inner one's identity, for its vectors stand in for that one's.
    """

    def __init__(self, inner: Encoder, most: int = MOST_ENCODED, seed: int = 0) -> None:
        self._inner = inner
        self._most = most
        self._made: list[Rows] = []
        self._chance = np.random.default_rng(seed)

    @property
    def identity(self) -> str:
        return self._inner.identity

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        """(n, dimension) rows of unit length."""
        if side == "query" or not texts:
            return self._inner.encode(texts, side)
        room = max(self._most - len(self._made), 0)
        if not room:
            return self._mixture(len(texts))
        real = self._inner.encode(texts[:room], side)
        self._made += list(real)
        return np.concatenate([real, self._mixture(len(texts) - len(real))])

    def _mixture(self, count: int) -> Rows:
        if not count:
            return np.zeros((0, self.dimension), dtype=np.float32)
        one, other = (self._picked(count) for _ in range(2))
        noise = unit_length(self._chance.standard_normal(one.shape).astype(np.float32)) * np.float32(_NOISE)
        return unit_length(np.float32(_SHARE) * one + np.float32(1 - _SHARE) * other + noise)

    def _picked(self, count: int) -> Rows:
        return np.stack([self._made[at] for at in self._chance.integers(len(self._made), size=count)])
