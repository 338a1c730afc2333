"""The words of the lessons for replies: topics, values, small talk, and how a fact is put into them.

They stand in finetune/data/respond, written by hand. Knows no prompt and no draw.
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
By = Literal["relation", "name", "both"]
Gender = Literal["f", "m"]
Pair = tuple[str, str]

RELATIONS: Mapping[str, Sequence[Gender]] = {
    **dict.fromkeys(
        ["sister", "mother", "aunt", "grandmother", "daughter", "wife", "niece", "sister-in-law", "godmother"], ("f",)
    ),
    **dict.fromkeys(
        ["brother", "father", "uncle", "grandfather", "son", "husband", "nephew", "brother-in-law", "godson"], ("m",)
    ),
    **dict.fromkeys(("cousin", "flatmate", "colleague", "neighbour", "best friend", "partner"), ("f", "m")),
}
# Topics that nobody trains on: half of what is checked is about them.
HELD_OUT = frozenset(
    ["employer", "drink", "fear", "lost", "passport", "dayoff", "team", "savings", "colour", "floor", "wake", "collect"]
)
# Where one topic is told, a question about the other has half an answer.
_ALIKE = tuple(
    frozenset(group.split())
    for group in (
        "home origin", "hobby sport collect instrument grow band volunteer course", "job taught employer",
        "cat pet", "dog pet", "breed pet", "gift bought", "studies course taught", "illness allergy medicine",
        "diet dislike allergy dish", "project trip savings course",
    )
)  # fmt: skip
_PRONOUNS: Mapping[Gender, tuple[str, str, str]] = {"f": ("she", "her", "her"), "m": ("he", "his", "him")}
_MOMENTS = {
    "season": ("spring", "summer", "autumn", "winter"),
    "month": ("January", "March", "May", "August", "October", "November"),
    "day": ("Monday", "Tuesday", "Wednesday", "Friday", "Saturday"),
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Side(_Strict):
    """How a topic is spoken of, of the user or of somebody else; topics.yaml says what each list is.

    `bare`: the person is called by relation alone, for the topic is the name.
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
    """A matter that people tell of."""

    id: str
    pool: str
    me: Side | None = None
    other: Side | None = None

    def side(self, person: "Person | None") -> Side | None:
        """How it is told of this person, of the user where there is none; None where it is not."""
        return self.other if person else self.me


class Talk(_Strict):
    """Small talk: turns with their replies, dialogues whose lines are the user's and the assistant's by turns.

    Chats are longer, and the assistant's side has tastes of its own there.
    """

    turns: tuple[Pair, ...]
    dialogues: tuple[tuple[str, ...], ...]
    chats: tuple[tuple[str, ...], ...]


class Words(_Strict):
    """Turns of phrase around the facts; see words.yaml."""

    unknown: tuple[str, ...]
    unknown_all: tuple[str, ...]
    replies: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    idle: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in the user's life, called by relation ("my aunt"), by name, or by both."""

    relation: str
    name: str
    gender: Gender
    by: By = "both"

    def called(self, owner: str) -> str:
        """As the owner ("my", "your", "Ana's") calls them."""
        if self.by == "name":
            return self.name
        return f"{owner} {self.relation}" + (f" {self.name}" if self.by == "both" else "")


@dataclass(frozen=True, slots=True)
class Fact:
    """A value of a topic; about the user where there is no person. `old` is what held before, if it changed."""

    topic: Topic
    person: Person | None
    value: str
    old: str = ""

    @property
    def side(self) -> Side:
        """How it is spoken of. Raises ValueError for a side that its topic does not have."""
        side = self.topic.side(self.person)
        if side is None:
            raise ValueError(f"topic {self.topic.id!r} is not told of {'others' if self.person else 'the user'}")
        return side

    @property
    def who(self) -> str:
        """The name of whom it is about; "" for the user."""
        return self.person.name if self.person else ""

    def called(self, by: By) -> "Fact":
        """The same with the person called otherwise."""
        return replace(self, person=replace(self.person, by=by)) if self.person else self


def misleads(near: Fact, fact: Fact) -> bool:
    """Whether a question about `fact` could be about `near`, or be answered with it."""
    if fact.value in (near.value, near.old):
        return True
    topics = {near.topic.id, fact.topic.id}
    return near.who == fact.who and (len(topics) == 1 or any(topics <= group for group in _ALIKE))


def filled(fact: Fact, text: str, user: str, owner: str = "my") -> str:
    """The words with names and values in their places."""
    person = fact.person
    if person and fact.side.bare:
        person = replace(person, by="relation")
    he, his, him = _PRONOUNS[person.gender] if person else ("", "", "")
    mine, yours = (person.called(owner), person.called("your")) if person else ("", "")
    places = {
        "v": fact.value, "a v": _with_article(fact.value), "old": fact.old, "a old": _with_article(fact.old),
        "o": mine, "O": capital(mine), "y": yours, "Y": capital(yours), "u": user, "his_u": "a",
        "he": he, "his": his, "him": him,
        **{name: options[len(mine + fact.value) % len(options)] for name, options in _MOMENTS.items()},
    }  # fmt: skip
    return re.sub(r"\{([^}]+)\}", lambda found: places[found.group(1)], text)


def with_pronoun(text: str, gender: Gender) -> str:
    """The words about a person who was just named."""
    he, his, him = _PRONOUNS[gender]
    for place, said in (("{O}'s", capital(his)), ("{o}'s", his), ("{O}", capital(he)), ("{o}", him)):
        text = text.replace(place, said)
    return text


def capital(text: str) -> str:
    """The first letter large."""
    return text[:1].upper() + text[1:]


def share(items: Sequence[str], part: Part) -> Sequence[str]:
    """The first two thirds are for training, the rest for checking."""
    cut = 2 * len(items) // 3
    return items[:cut] if part == "train" else items[cut:]


@cache
def topics() -> tuple[Topic, ...]:
    """All topics, by topics.yaml."""
    return TypeAdapter(tuple[Topic, ...]).validate_python(_file("topics")["topics"])


@cache
def values() -> Mapping[str, tuple[str, ...]]:
    """What fills them, by values.yaml."""
    return TypeAdapter(Mapping[str, tuple[str, ...]]).validate_python(_file("values"))


@cache
def words() -> Words:
    """By words.yaml."""
    return Words.model_validate(_file("words"))


@cache
def talk() -> Talk:
    """By talk.yaml and chats.yaml."""
    return Talk.model_validate({**_file("talk"), **_file("chats")})


def _with_article(value: str) -> str:
    return f"{'an' if value[:1].lower() in 'aeio' else 'a'} {value}"


def _file(name: str) -> dict[str, object]:
    return read_yaml(DATA / f"{name}.yaml")
