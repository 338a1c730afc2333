"""The vocabulary of the reply lessons: topics, values, small talk, and how a fact is put into words.

Reads the hand-written YAML files in `data`. Does not depend on prompts or on random choices.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from localmem.files import read_yaml

DATA = Path(__file__).parent / "data"

Part = Literal["train", "valid", "test"]
Naming = Literal["relation", "name", "both"]
Gender = Literal["f", "m"]
Pair = tuple[str, str]

_PRONOUNS: Mapping[Gender, tuple[str, str, str]] = {"f": ("she", "her", "her"), "m": ("he", "his", "him")}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Side(_Strict):
    """How people talk about a topic, of the user or of somebody else; topics.yaml describes the lists.

    `bare` means that the person is named by relation alone, because the topic is the name itself.
    """

    say: tuple[str, ...]
    tell: tuple[str, ...]
    ask: tuple[str, ...]
    answer: tuple[str, ...]
    what: str
    new: tuple[str, ...] = ()
    was: Pair | None = None
    bare: bool = False


class Topic(_Strict):
    """A matter that people talk about; `pool` names its possible values."""

    id: str
    pool: str
    me: Side | None = None
    other: Side | None = None

    def side(self, person: "Person | None") -> Side | None:
        """How it is told of this person, or of the user if there is none; None if the topic does not apply."""
        return self.other if person else self.me


class Talk(_Strict):
    """Small talk: turns with replies, and dialogues whose lines alternate between user and assistant.

    `chats` are longer, and the assistant has tastes of its own in them.
    """

    turns: tuple[Pair, ...]
    dialogues: tuple[tuple[str, ...], ...]
    chats: tuple[tuple[str, ...], ...]


class Phrases(_Strict):
    """Phrases around the facts, people's relations with their genders, and groups of topics; see words.yaml."""

    relations: Mapping[str, tuple[Gender, ...]]
    held_out: frozenset[str]
    related: tuple[frozenset[str], ...]
    moments: Mapping[str, tuple[str, ...]]
    openings: tuple[str, ...]
    unknown: tuple[str, ...]
    unknown_all: tuple[str, ...]
    replies: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    idle: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in the user's life, referred to by relation ("my aunt"), by name, or by both."""

    relation: str
    name: str
    gender: Gender
    naming: Naming = "both"

    def phrase(self, owner: str) -> str:
        """How the owner ("my", "your", "Ana's") refers to them."""
        if self.naming == "name":
            return self.name
        return f"{owner} {self.relation}" + (f" {self.name}" if self.naming == "both" else "")


@dataclass(frozen=True, slots=True)
class Fact:
    """A value of a topic, about the user if there is no person. `old` is the earlier value, if it changed."""

    topic: Topic
    person: Person | None
    value: str
    old: str = ""

    @property
    def side(self) -> Side:
        """How it is talked about. Raises ValueError for a side that the topic does not have."""
        side = self.topic.side(self.person)
        if side is None:
            raise ValueError(f"topic {self.topic.id!r} does not apply to {'others' if self.person else 'the user'}")
        return side

    @property
    def who(self) -> str:
        """The name of the person, "" for the user."""
        return self.person.name if self.person else ""

    def with_naming(self, naming: Naming) -> "Fact":
        """The same fact with another way of referring to the person."""
        return replace(self, person=replace(self.person, naming=naming)) if self.person else self


def misleads(near: Fact, fact: Fact) -> bool:
    """Whether a question about `fact` could be about `near`, or be answered with it."""
    if fact.value in (near.value, near.old):
        return True
    ids = {near.topic.id, fact.topic.id}
    return near.who == fact.who and (len(ids) == 1 or any(ids <= group for group in load_phrases().related))


def fill(fact: Fact, text: str, user: str, owner: str = "my") -> str:
    """The text with names and values in place of its placeholders."""
    person = fact.person
    if person and fact.side.bare:
        person = replace(person, naming="relation")
    he, his, him = _PRONOUNS[person.gender] if person else ("", "", "")
    mine, yours = (person.phrase(owner), person.phrase("your")) if person else ("", "")
    places = {
        "v": fact.value, "a v": _with_article(fact.value), "old": fact.old, "a old": _with_article(fact.old),
        "o": mine, "O": capitalise(mine), "y": yours, "Y": capitalise(yours), "u": user, "his_u": "a",
        "he": he, "his": his, "him": him,
        **{name: options[len(mine + fact.value) % len(options)] for name, options in load_phrases().moments.items()},
    }  # fmt: skip
    return re.sub(r"\{([^}]+)\}", lambda match: places[match.group(1)], text)


def use_pronouns(text: str, gender: Gender) -> str:
    """The text with pronouns for a person who was just named."""
    he, his, him = _PRONOUNS[gender]
    for place, word in (("{O}'s", capitalise(his)), ("{o}'s", his), ("{O}", capitalise(he)), ("{o}", him)):
        text = text.replace(place, word)
    return text


def capitalise(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def select_share(items: Sequence[str], part: Part) -> Sequence[str]:
    """The first two thirds for training, the others for validation and test."""
    cut = 2 * len(items) // 3
    return items[:cut] if part == "train" else items[cut:]


@cache
def load_topics() -> tuple[Topic, ...]:
    """All topics, from topics.yaml."""
    return TypeAdapter(tuple[Topic, ...]).validate_python(_read("topics")["topics"])


@cache
def load_values() -> Mapping[str, tuple[str, ...]]:
    """The values of the topics by pool, from values.yaml."""
    return TypeAdapter(Mapping[str, tuple[str, ...]]).validate_python(_read("values"))


@cache
def load_phrases() -> Phrases:
    """The phrases of words.yaml."""
    return Phrases.model_validate(_read("words"))


@cache
def load_talk() -> Talk:
    """The small talk of talk.yaml and chats.yaml."""
    return Talk.model_validate({**_read("talk"), **_read("chats")})


def _with_article(value: str) -> str:
    return f"{'an' if value[:1].lower() in 'aeio' else 'a'} {value}"


def _read(name: str) -> dict[str, object]:
    return read_yaml(DATA / f"{name}.yaml")
