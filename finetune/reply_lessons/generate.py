"""Lessons for replies from memory: invented users tell an assistant things, and ask for them later or for other things.

Draws who told what, what a system would recall of it, and what good replies are. Knows no model; the same seed gives
the same lessons. `python -m finetune.reply_lessons.generate DIR [COURSE]` writes them as traces that
`localmem distill train` reads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, TypeVar

import click

from finetune.program import PLACE, run_program
from finetune.reply_lessons.rendering import PROMPTS, Told, recalled, served
from finetune.reply_lessons.vocabulary import (
    HELD_OUT,
    RELATIONS,
    By,
    Fact,
    Part,
    Person,
    Topic,
    capital,
    filled,
    misleads,
    share,
    talk,
    topics,
    values,
    with_pronoun,
    words,
)
from finetune.traces.trace import Teacher, Trace, trace_of, write_traces
from localmem.evaluation.answers import Work
from localmem.prompts import load
from localmem.types import Completion, Message

Kind = Literal["fact", "change", "was", "unknown", "talk"]
Item = TypeVar("Item")

AUTHOR = "written by hand"


class Course(NamedTuple):
    """What a hundred turns are about ("was" asks for what held before), how often what is told or asked for next is of
    the same topic, the same person or neither, how many lessons there are, and how often of a hundred times small talk
    is a longer chat with somebody who has a voice of their own.
    """

    shares: Mapping[Kind, int]
    near: tuple[int, int, int]
    counts: Mapping[Part, int]
    chats: int = 0


# In the first, unknowns are fewer than facts: a student that always gave up would be right in them. After it the
# student knew too much of people of whom something else was told, and free chat surprised it; the second is about both,
# the third once more about the former.
COURSES: Mapping[int, Course] = {
    1: Course(
        {"fact": 42, "change": 14, "was": 2, "unknown": 26, "talk": 16},
        (40, 30, 30),
        {"train": 1300, "valid": 150, "test": 300},
    ),
    2: Course(
        {"fact": 26, "change": 10, "was": 2, "unknown": 38, "talk": 24},
        (20, 60, 20),
        {"train": 600, "valid": 60, "test": 300},
        chats=60,
    ),
    3: Course(
        {"fact": 36, "change": 8, "was": 0, "unknown": 42, "talk": 14},
        (20, 60, 20),
        {"train": 300, "valid": 24, "test": 300},
        chats=60,
    ),
}

_OPENINGS = ("Hey, ", "Quick question: ", "Remind me: ", "Tell me, ", "I forgot. ", "Do you remember? ", "Hi! ")
_NAMED: tuple[By, ...] = ("relation", "name", "both")


def lessons(part: Part, count: int, seed: int = 0, course: int = 1) -> list[Trace]:
    """`count` lessons of a part, each with an invented user of its own: dialogues to learn, single turns to check."""
    return [_Lesson(part, f"{seed}/{part}/{number}", COURSES[course]).trace() for number in range(count)]


def main(folder: Path, course: int = 1) -> None:
    """Writes train, valid and test as `localmem distill sift` lays them out. Each course has people of its own."""
    for part, count in COURSES[course].counts.items():
        write_traces(folder / part / "respond.jsonl", lessons(part, count, course - 1, course))


class _Lesson:
    """One invented user, their people, what they told, and what they ask today."""

    def __init__(self, part: Part, name: str, course: Course) -> None:
        self._part, self._name, self._course = part, name, course
        self._random = random = Random(name)  # noqa: S311  # no secret
        self._prompt = random.choices(list(PROMPTS), weights=list(PROMPTS.values()))[0]
        self._names = {gender: list(share(values()[pool], part)) for gender, pool in (("f", "women"), ("m", "men"))}
        for names in self._names.values():
            random.shuffle(names)
        self._user = "User" if random.random() < 0.35 else self._names[random.choice("fm")].pop()
        self._people = [self._new_person(relation) for relation in random.sample(list(RELATIONS), 4)]
        self._nameless = random.random() < 0.1  # people go by relation, so that their names can be asked for
        self._today = datetime(2024, 1, 20, 18, tzinfo=UTC) + timedelta(days=random.randrange(900))
        self._known: list[Fact] = []

    def trace(self) -> Trace:
        """The lesson; its work names the kinds of its turns."""
        kinds = self._kinds()
        told = self._tell("fact" in kinds, bool({"change", "was"} & {*kinds}))
        dialogue = self._earlier() if self._random.random() < 0.15 else []
        for kind in kinds:
            dialogue += self._turn(kind)
        memory = recalled(self._prompt, self._dated(told), self._user, self._random)
        prompt = served(self._prompt, memory, dialogue[:-1], self._user, self._today)
        work = Work("lessons", "+".join(sorted(kinds)), self._name)
        reply = Completion(dialogue[-1].content)
        trace = trace_of(prompt, reply, load(prompt.name).digest, Teacher(AUTHOR), work)
        return replace(trace, metadata=replace(trace.metadata, whole=True))

    # -- what is told ----------------------------------------------------------------------------------------------

    def _tell(self, known: bool, changed: bool) -> list[Told]:
        """What is recalled, oldest first: facts near to each other, one that changed if asked for, and idle talk."""
        if not (known or changed) and self._random.random() < 0.12:
            return []
        count = self._random.choices((1, 2, 3, 4, 5), (2, 4, 10, 3, 1))[0]
        first = self._new(lambda fact: bool(fact.side.new) or not changed)
        told = [*self._changing(first)] if changed else [self._say(first)]
        while len(told) < count + changed:
            near = None if self._random.random() < 0.15 else self._near(first)
            if near is None:
                self._put(told, Told(*self._pick(words().idle), ""))
            elif not self._misleading(near):
                self._put(told, self._say(near))
        return told

    def _put(self, told: list[Told], one: Told) -> None:
        """At a place of chance: what is told of a change keeps its order."""
        told.insert(self._random.randrange(len(told) + 1), one)

    def _changing(self, fact: Fact) -> tuple[Told, Told]:
        """The former value, then the new one."""
        fact = replace(fact, old=self._value(fact.topic, but=fact.value))
        before = self._said(replace(fact, value=fact.old, old=""))
        now = self._said(fact, new=True)
        self._known.append(fact)
        return before, now

    def _say(self, fact: Fact) -> Told:
        """In the user's words, alone or with another fact about the same person."""
        self._known.append(fact)
        if fact.person and not fact.side.bare and self._random.random() < 0.2:
            more = replace(self._new(lambda one: bool(one.person) and not one.side.bare), person=fact.person)
            if not self._misleading(more):
                self._known.append(more)
                return self._both(fact, more)
        return self._said(fact)

    def _both(self, fact: Fact, more: Fact) -> Told:
        """The person is named in the first sentence and is "she" or "he" in the second."""
        if fact.person is None:
            raise ValueError("two facts of one turn are about somebody else")
        told = self._said(fact)
        second = self._filled(more, with_pronoun(self._pick(more.side.say), fact.person.gender))
        tell = self._filled(more, self._pick(more.side.tell), owner=f"{self._user}'s")
        return replace(told, text=f"{self._filled(fact, self._pick(fact.side.say))} {second}",
                       sentence=f"{told.sentence} {tell}")  # fmt: skip

    def _said(self, fact: Fact, *, new: bool = False) -> Told:
        side = fact.side
        said = self._filled(fact, self._pick(side.new if new else side.say))
        tell = self._filled(fact, self._pick(side.tell), owner=f"{self._user}'s")
        if new and self._random.random() < 0.5:
            tell = f"{tell.removesuffix('.')} now."
        draw = self._random.random()
        if draw < 0.25:
            said = f"{self._pick(words().before)} {said}"
        elif draw < 0.5:
            said = f"{said} {self._pick(words().after)}"
        return Told(said, self._pick(words().replies), tell, (fact.topic.id, fact.who))

    # -- what is asked ---------------------------------------------------------------------------------------------

    def _kinds(self) -> list[Kind]:
        """One kind to check; to learn, a few: about what changed at most once."""
        count = self._random.choices((1, 2, 3, 4), (2, 3, 3, 2))[0] if self._part == "train" else 1
        kinds = self._random.choices(list(self._course.shares), list(self._course.shares.values()), k=count)
        changes = [kind for kind in kinds if kind in ("change", "was")]
        kept = [kind for kind in kinds if kind not in changes] + changes[:1]
        return self._random.sample(kept, len(kept))

    def _turn(self, kind: Kind) -> list[Message]:
        """What the user says and the reply that is due."""
        if kind == "talk":
            return [_message(number, text) for number, text in enumerate(self._small_talk())]
        if kind == "unknown":
            return self._ask_unknown()
        known = [fact for fact in self._known if bool(fact.old) == (kind != "fact")]
        if not known:
            return self._ask_unknown()
        fact = self._asked_for(self._pick(known))
        if kind == "was" and fact.side.was:
            question, reply = fact.side.was
            return [self._question(fact, question), self._reply(fact, reply)]
        reply = self._pick(fact.side.answer)
        if fact.old and self._random.random() < 0.4:
            reply = f"{reply.removesuffix('.')} now."
        return [self._question(fact, self._pick(fact.side.ask)), self._reply(fact, reply)]

    def _ask_unknown(self) -> list[Message]:
        """For something near to what was told, and never told."""
        anchor = self._pick(self._known) if self._known else None
        fact = self._near(anchor)
        while fact is None or self._misleading(fact):
            fact = self._near(anchor)
        fact = fact.called("relation" if fact.side.bare else self._pick(_NAMED))
        reply = self._pick(words().unknown if self._random.random() < 0.8 else words().unknown_all)
        reply = reply.replace("{what}", filled(fact, fact.side.what, self._user))
        return [self._question(fact, self._pick(fact.side.ask)), Message("assistant", reply)]

    def _question(self, fact: Fact, question: str) -> Message:
        text = self._filled(fact, question)
        draw = self._random.random()
        if draw < 0.15:
            opening = self._pick(_OPENINGS)
            text = f"{opening}{text if opening[-2] in '.!?' else text[0].lower() + text[1:]}"
        elif draw < 0.2:
            text = text.lower().removesuffix("?")
        return Message("user", text)

    def _reply(self, fact: Fact, reply: str) -> Message:
        return Message("assistant", self._filled(fact, reply))

    def _small_talk(self) -> Sequence[str]:
        """A turn and its reply, or a dialogue from its beginning."""
        if self._course.chats and 100 * self._random.random() < self._course.chats:
            lines = self._pick(self._kept(talk().chats))
            return lines[: self._pick(range(4, len(lines) + 1, 2))]
        if self._random.random() > 0.2:
            return self._pick(self._kept(talk().turns))
        lines = self._pick(self._kept(talk().dialogues))
        return lines[: self._pick(range(2, len(lines) + 1, 2))]

    def _earlier(self) -> list[Message]:
        """What was said before in this conversation."""
        return [_message(number, text) for number, text in enumerate(self._pick(self._kept(talk().turns)))]

    # -- facts -----------------------------------------------------------------------------------------------------

    def _new(self, wanted: Callable[[Fact], bool] = lambda _: True) -> Fact:
        """A fact about the user or one of their people, as wanted, that nothing known misleads about."""
        while True:
            topic = self._pick(self._topics())
            other = topic.me is None or (topic.other is not None and self._random.random() < 0.5)
            fact = self._of(topic, self._pick(self._people) if other else None)
            if fact and wanted(fact) and not self._misleading(fact):
                return fact

    def _near(self, anchor: Fact | None) -> Fact | None:
        """Of the same topic but somebody else, another of the same person, or something else."""
        kind = self._random.choices(("topic", "person", "any"), self._course.near)[0]
        other = self._new()
        if anchor is None or kind == "any":
            return other
        if kind == "topic":
            sides = [one for one in (self._pick(self._people), None) if anchor.topic.side(one)]
            return self._of(anchor.topic, self._pick(sides), but=anchor.value)
        return self._of(other.topic, anchor.person) if other.topic.side(anchor.person) else other

    def _of(self, topic: Topic, person: Person | None, but: str = "") -> Fact | None:
        """With a value that is drawn, but for a person's name; None for a name where names are told."""
        fact = Fact(topic, person, person.name if person else "")
        if fact.side.bare and not self._nameless:
            return None
        by: By = "relation" if self._nameless else self._random.choices(_NAMED, (4, 2, 4))[0]
        return replace(fact, value=fact.value if fact.side.bare else self._value(topic, but)).called(by)

    def _misleading(self, fact: Fact) -> bool:
        return any(misleads(known, fact) for known in self._known)

    def _asked_for(self, fact: Fact) -> Fact:
        """The fact as a question names its person: in any way that what was told makes clear."""
        both = fact.person and fact.person.by == "both" and not fact.side.bare
        return fact.called(self._pick(_NAMED)) if both else fact

    def _value(self, topic: Topic, but: str = "") -> str:
        return self._pick([value for value in share(values()[topic.pool], self._part) if value != but])

    def _topics(self) -> Sequence[Topic]:
        """Those of this part; half of what is checked is on topics that nobody trains on."""
        held_out = self._part != "train" and self._random.random() < 0.5
        return [topic for topic in topics() if (topic.id in HELD_OUT) == held_out]

    # -- drawing ---------------------------------------------------------------------------------------------------

    def _filled(self, fact: Fact, text: str, owner: str = "my") -> str:
        return capital(filled(fact, text, self._user, owner))

    def _new_person(self, relation: str) -> Person:
        gender = self._pick(RELATIONS[relation])
        return Person(relation, self._names[gender].pop(), gender)

    def _dated(self, told: Sequence[Told]) -> list[Told]:
        """Each on a day of its own before today, in their order."""
        days = sorted((self._random.randrange(1, 200) for _ in told), reverse=True)
        return [replace(one, time=self._today - timedelta(days=ago)) for one, ago in zip(told, days, strict=True)]

    def _kept(self, items: Sequence[Item]) -> list[Item]:
        """Of small talk every tenth is for checking."""
        return [item for number, item in enumerate(items) if (number % 10 == 9) == (self._part != "train")]

    def _pick(self, items: Sequence[Item]) -> Item:
        return items[self._random.randrange(len(items))]


def _message(number: int, text: str) -> Message:
    """The first line is the user's, and so on by turns."""
    return Message("assistant" if number % 2 else "user", text)


if __name__ == "__main__":
    run_program(
        main,
        click.Argument(["folder"], type=PLACE),
        click.Argument(["course"], type=click.IntRange(min(COURSES), max(COURSES)), default=1),
    )
