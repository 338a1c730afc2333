"""Generated lessons in replying from memory: invented users tell an assistant things and ask for them, or for others.

Decides at random who says what, what a system would recall of it, and which replies are good; the same seed gives the
same lessons. Does not use any model. `localmem distill lessons` writes them as traces for `localmem distill train`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, TypeVar, get_args

from finetune.reply_lessons import vocabulary
from finetune.reply_lessons.rendering import PROMPTS, Statement, render_memory, reply_prompt
from finetune.reply_lessons.vocabulary import Fact, Naming, Part, Person, Topic, load_phrases, select_share
from finetune.traces.trace import Teacher, Trace, make_trace, write_traces
from localmem.evaluation.answers import Work
from localmem.prompts import load
from localmem.types import Completion, Message

Kind = Literal["fact", "change", "was", "unknown", "talk"]
Item = TypeVar("Item")

AUTHOR = "written by hand"


class CurriculumStage(NamedTuple):
    """The mixture of a curriculum stage.

    `shares` are those of the kinds (fact, change, was, unknown, talk) among a hundred turns; "was" asks for an earlier
    value. `near` weights how often the next fact or question is about the same topic, the same person, or neither.
    `counts` are the lessons for train, valid and test, and `chats` is how many of a hundred turns of small talk are
    longer chats with somebody who has a voice of their own.
    """

    shares: tuple[int, ...]
    near: tuple[int, int, int]
    counts: tuple[int, ...]
    chats: int = 0


# In stage 1 unknowns are rarer than facts, because otherwise a student that always gives up would mostly be right.
# After it the student claimed to know too much about people of whom something else was told, and free chat surprised
# it. Stage 2 addresses both, and stage 3 the former once more.
CURRICULUM: Mapping[int, CurriculumStage] = {
    1: CurriculumStage((42, 14, 2, 26, 16), (40, 30, 30), (1300, 150, 300)),
    2: CurriculumStage((26, 10, 2, 38, 24), (20, 60, 20), (600, 60, 300), chats=60),
    3: CurriculumStage((36, 8, 0, 42, 14), (20, 60, 20), (300, 24, 300), chats=60),
}

_NAMINGS: tuple[Naming, ...] = ("relation", "name", "both")


def write_lessons(folder: Path, stage: int = 1) -> dict[str, int]:
    """Write train, valid and test as `localmem distill sift` does; return the number of lessons by part.

    Each curriculum stage has people of its own.
    """
    counts = dict(zip(get_args(Part), CURRICULUM[stage].counts, strict=True))
    for part, count in counts.items():
        write_traces(folder / part / "respond.jsonl", make_lessons(part, count, stage - 1, stage))
    return counts


def make_lessons(part: Part, count: int, seed: int = 0, stage: int = 1) -> list[Trace]:
    """`count` lessons of a part, each with its own invented user: dialogues for training, single turns otherwise."""
    return [_Lesson(part, f"{seed}/{part}/{number}", CURRICULUM[stage]).trace() for number in range(count)]


class _Lesson:
    """One invented user, their people, what they told, and what they ask today.

    The order of random choices is part of the result: another order would give other lessons for the same seed.
    """

    def __init__(self, part: Part, name: str, stage: CurriculumStage) -> None:
        self._part, self._name, self._stage = part, name, stage
        self._random = random = Random(name)  # noqa: S311  # not used for security
        self._prompt = random.choices(list(PROMPTS), weights=list(PROMPTS.values()))[0]
        pools = (("f", "women"), ("m", "men"))
        self._names = {gender: list(select_share(vocabulary.load_values()[pool], part)) for gender, pool in pools}
        for names in self._names.values():
            random.shuffle(names)
        self._user = "User" if random.random() < 0.35 else self._names[random.choice("fm")].pop()
        relations = random.sample(list(load_phrases().relations), 4)
        people = ((relation, self._pick(load_phrases().relations[relation])) for relation in relations)
        self._people = [Person(relation, self._names[gender].pop(), gender) for relation, gender in people]
        self._nameless = random.random() < 0.1  # people are referred to by relation, so that names can be asked for
        self._today = datetime(2024, 1, 20, 18, tzinfo=UTC) + timedelta(days=random.randrange(900))
        self._facts: list[Fact] = []

    def trace(self) -> Trace:
        """The lesson as a trace; its work names the kinds of its turns."""
        kinds = self._choose_kinds()
        statements = self._make_statements("fact" in kinds, bool({"change", "was"} & {*kinds}))
        earlier = self._pick(self._own_share(vocabulary.load_talk().turns)) if self._random.random() < 0.15 else ()
        dialogue = _alternate(earlier)
        for kind in kinds:
            dialogue += self._turn(kind)
        memory = render_memory(self._prompt, self._date(statements), self._user, self._random)
        prompt = reply_prompt(self._prompt, memory, dialogue[:-1], self._user, self._today)
        work = Work("lessons", "+".join(sorted(kinds)), self._name)
        reply = Completion(dialogue[-1].content)
        trace = make_trace(prompt, reply, load(prompt.name).digest, Teacher(AUTHOR), work)
        return replace(trace, metadata=replace(trace.metadata, whole=True))

    # -- statements of the past ------------------------------------------------------------------------------------

    def _make_statements(self, needs_fact: bool, needs_change: bool) -> list[Statement]:
        """What is recalled, oldest first: related facts, a changed one if it is asked for, and idle talk."""
        if not (needs_fact or needs_change) and self._random.random() < 0.12:
            return []
        count = self._random.choices((1, 2, 3, 4, 5), (2, 4, 10, 3, 1))[0]
        first = self._new_fact(lambda fact: bool(fact.side.new) or not needs_change)
        statements = [*self._change(first)] if needs_change else [self._tell(first)]
        while len(statements) < count + needs_change:
            near = None if self._random.random() < 0.15 else self._near_fact(first)
            if near is None:
                self._insert(statements, Statement(*self._pick(load_phrases().idle), ""))
            elif not self._is_misleading(near):
                self._insert(statements, self._tell(near))
        return statements

    def _insert(self, statements: list[Statement], statement: Statement) -> None:
        """At a random place; the two statements of a change keep their order."""
        statements.insert(self._random.randrange(len(statements) + 1), statement)

    def _change(self, fact: Fact) -> tuple[Statement, Statement]:
        """The earlier value, then the new one."""
        fact = replace(fact, old=self._value(fact.topic, exclude=fact.value))
        before = self._statement(replace(fact, value=fact.old, old=""))
        now = self._statement(fact, new=True)
        self._facts.append(fact)
        return before, now

    def _tell(self, fact: Fact) -> Statement:
        """In the user's words, alone or with another fact about the same person."""
        self._facts.append(fact)
        if fact.person and not fact.side.bare and self._random.random() < 0.2:
            other = self._new_fact(lambda candidate: bool(candidate.person) and not candidate.side.bare)
            more = replace(other, person=fact.person)
            if not self._is_misleading(more):
                self._facts.append(more)
                return self._combined_statement(fact, more, fact.person)
        return self._statement(fact)

    def _combined_statement(self, fact: Fact, more: Fact, person: Person) -> Statement:
        """The person is named in the first sentence and is "she" or "he" in the second."""
        statement = self._statement(fact)
        second = self._fill(more, vocabulary.use_pronouns(self._pick(more.side.say), person.gender))
        tell = self._fill(more, self._pick(more.side.tell), owner=f"{self._user}'s")
        text = f"{self._fill(fact, self._pick(fact.side.say))} {second}"
        return replace(statement, text=text, sentence=f"{statement.sentence} {tell}")

    def _statement(self, fact: Fact, *, new: bool = False) -> Statement:
        side = fact.side
        text = self._fill(fact, self._pick(side.new if new else side.say))
        sentence = self._fill(fact, self._pick(side.tell), owner=f"{self._user}'s")
        if new and self._random.random() < 0.5:
            sentence = f"{sentence.removesuffix('.')} now."
        number = self._random.random()
        if number < 0.25:
            text = f"{self._pick(load_phrases().before)} {text}"
        elif number < 0.5:
            text = f"{text} {self._pick(load_phrases().after)}"
        return Statement(text, self._pick(load_phrases().replies), sentence, (fact.topic.id, fact.who))

    # -- questions and replies of today ----------------------------------------------------------------------------

    def _choose_kinds(self) -> list[Kind]:
        """One kind for validation and test, a few for training, with at most one question about a change."""
        count = self._random.choices((1, 2, 3, 4), (2, 3, 3, 2))[0] if self._part == "train" else 1
        kinds: list[Kind] = self._random.choices(get_args(Kind), self._stage.shares, k=count)
        changes = [kind for kind in kinds if kind in ("change", "was")]
        selected = [kind for kind in kinds if kind not in changes] + changes[:1]
        return self._random.sample(selected, len(selected))

    def _turn(self, kind: Kind) -> list[Message]:
        """What the user says and the right reply."""
        if kind == "talk":
            return _alternate(self._small_talk())
        candidates = [fact for fact in self._facts if bool(fact.old) == (kind != "fact")] if kind != "unknown" else []
        if not candidates:
            return self._ask_unknown()
        fact = self._pick(candidates)
        if fact.person and fact.person.naming == "both" and not fact.side.bare:  # the statements make any naming clear
            fact = fact.with_naming(self._pick(_NAMINGS))
        if kind == "was" and fact.side.was:
            question, reply = fact.side.was
            return [self._question(fact, question), Message("assistant", self._fill(fact, reply))]
        reply = self._pick(fact.side.answer)
        if fact.old and self._random.random() < 0.4:
            reply = f"{reply.removesuffix('.')} now."
        return [self._question(fact, self._pick(fact.side.ask)), Message("assistant", self._fill(fact, reply))]

    def _ask_unknown(self) -> list[Message]:
        """A question for something that was never told, though something similar was."""
        anchor = self._pick(self._facts) if self._facts else None
        fact = self._near_fact(anchor)
        while fact is None or self._is_misleading(fact):
            fact = self._near_fact(anchor)
        fact = fact.with_naming("relation" if fact.side.bare else self._pick(_NAMINGS))
        phrases = load_phrases()
        reply = self._pick(phrases.unknown if self._random.random() < 0.8 else phrases.unknown_all)
        reply = reply.replace("{what}", vocabulary.fill(fact, fact.side.what, self._user))
        return [self._question(fact, self._pick(fact.side.ask)), Message("assistant", reply)]

    def _question(self, fact: Fact, question: str) -> Message:
        text = self._fill(fact, question)
        number = self._random.random()
        if number < 0.15:
            opening = self._pick(load_phrases().openings)
            text = f"{opening}{text if opening[-2] in '.!?' else text[0].lower() + text[1:]}"
        elif number < 0.2:
            text = text.lower().removesuffix("?")
        return Message("user", text)

    def _small_talk(self) -> Sequence[str]:
        """A turn and its reply, or the beginning of a dialogue."""
        talk = vocabulary.load_talk()
        if self._stage.chats and 100 * self._random.random() < self._stage.chats:
            lines = self._pick(self._own_share(talk.chats))
            return lines[: self._pick(range(4, len(lines) + 1, 2))]
        if self._random.random() > 0.2:
            return self._pick(self._own_share(talk.turns))
        lines = self._pick(self._own_share(talk.dialogues))
        return lines[: self._pick(range(2, len(lines) + 1, 2))]

    # -- facts -----------------------------------------------------------------------------------------------------

    def _new_fact(self, condition: Callable[[Fact], bool] = lambda _: True) -> Fact:
        """A fact about the user or one of their people that fulfils the condition and contradicts no earlier one."""
        while True:
            # Half of the validation and test lessons are on topics that nobody trains on.
            held_out = self._part != "train" and self._random.random() < 0.5
            topic = self._pick(
                [topic for topic in vocabulary.load_topics() if (topic.id in load_phrases().held_out) == held_out]
            )
            other = topic.me is None or (topic.other is not None and self._random.random() < 0.5)
            fact = self._make_fact(topic, self._pick(self._people) if other else None)
            if fact and condition(fact) and not self._is_misleading(fact):
                return fact

    def _near_fact(self, anchor: Fact | None) -> Fact | None:
        """About the same topic but another person, another topic of the same person, or something else."""
        kind = self._random.choices(("topic", "person", "any"), self._stage.near)[0]
        other = self._new_fact()
        if anchor is None or kind == "any":
            return other
        if kind == "topic":
            people = [person for person in (self._pick(self._people), None) if anchor.topic.side(person)]
            return self._make_fact(anchor.topic, self._pick(people), exclude=anchor.value)
        return self._make_fact(other.topic, anchor.person) if other.topic.side(anchor.person) else other

    def _make_fact(self, topic: Topic, person: Person | None, exclude: str = "") -> Fact | None:
        """A fact with a random value, or a person's name; None for a name if people go by name in this lesson."""
        fact = Fact(topic, person, person.name if person else "")
        if fact.side.bare and not self._nameless:
            return None
        naming: Naming = "relation" if self._nameless else self._random.choices(_NAMINGS, (4, 2, 4))[0]
        value = fact.value if fact.side.bare else self._value(topic, exclude)
        return replace(fact, value=value).with_naming(naming)

    def _is_misleading(self, fact: Fact) -> bool:
        return any(vocabulary.misleads(earlier, fact) for earlier in self._facts)

    def _value(self, topic: Topic, exclude: str = "") -> str:
        return self._pick(
            [value for value in select_share(vocabulary.load_values()[topic.pool], self._part) if value != exclude]
        )

    # -- random choices --------------------------------------------------------------------------------------------

    def _fill(self, fact: Fact, text: str, owner: str = "my") -> str:
        return vocabulary.capitalise(vocabulary.fill(fact, text, self._user, owner))

    def _date(self, statements: Sequence[Statement]) -> list[Statement]:
        """Each on a different day before today, in order."""
        days = sorted((self._random.randrange(1, 200) for _ in statements), reverse=True)
        return [
            replace(statement, time=self._today - timedelta(days=ago))
            for statement, ago in zip(statements, days, strict=True)
        ]

    def _own_share(self, items: Sequence[Item]) -> list[Item]:
        """Small talk of this part: every tenth item is for validation and test."""
        return [item for number, item in enumerate(items) if (number % 10 == 9) == (self._part != "train")]

    def _pick(self, items: Sequence[Item]) -> Item:
        return items[self._random.randrange(len(items))]


def _alternate(lines: Sequence[str]) -> list[Message]:
    """Lines alternate, beginning with the user's."""
    return [Message("assistant" if number % 2 else "user", text) for number, text in enumerate(lines)]
