"""Lessons for replies from memory: what is asked is known or not as their kind says; nothing of the demo is in them."""

import json
import re
from collections.abc import Iterator

import pytest

from finetune.reply_lessons.generate import lessons
from finetune.reply_lessons.vocabulary import DATA, HELD_OUT, Part, share, topics, values
from finetune.traces.trace import Trace
from localmem.evaluation import DATA as EVALUATION_DATA
from localmem.experiments.abstention import abstains
from localmem.files import read_yaml
from localmem.prompts import load


@pytest.fixture(scope="module")
def checked() -> list[Trace]:
    return lessons("test", 300)


def test_the_same_seed_gives_the_same_lessons() -> None:
    assert lessons("train", 20, seed=3) == lessons("train", 20, seed=3) != lessons("train", 20, seed=4)


def test_a_reply_owns_up_where_its_kind_says_that_memory_does_not_know(checked: list[Trace]) -> None:
    kinds = {kind: [abstains(one.answer) for one in checked if one.metadata.work.dataset == kind] for kind in _kinds()}
    assert all(len(found) > 3 for found in kinds.values())
    assert all(kinds["unknown"])
    assert not any(gave_up for kind in ("fact", "change", "was", "talk") for gave_up in kinds[kind])


def test_a_known_fact_stands_in_what_was_shown_and_an_unknown_one_leaves_its_person_s_other_facts(
    checked: list[Trace],
) -> None:
    pools = {value for pool in values().values() for value in pool}
    for one in checked:
        if one.metadata.work.dataset in ("fact", "change", "was"):
            shown = " ".join(message.content for message in one.asked).lower()
            told = [value for value in pools if value.lower() in one.answer.lower()]
            assert told, one.answer
            assert any(value.lower() in shown for value in told)


def test_prompts_are_those_of_the_starter_s_replies(checked: list[Trace]) -> None:
    for one in checked:
        assert one.metadata.prompt_sha256 == load(one.metadata.prompt).digest
        assert one.messages[0].role == "system"
    lines = [one.messages[0].content for one in checked if one.metadata.prompt == "agent/respond"]
    assert sum("told you:\n" in line for line in lines) > len(lines) / 2


def test_checking_shares_no_value_and_half_of_its_topics_with_learning() -> None:
    for pool in values().values():
        assert set(share(pool, "train")).isdisjoint(share(pool, "test"))
    assert {topic.id for topic in topics()} > HELD_OUT
    held_out = {text for topic in topics() if topic.id in HELD_OUT for text in _asked(topic.me) | _asked(topic.other)}
    asked = _questions("train")
    assert held_out.isdisjoint(asked)
    assert not held_out.isdisjoint(_questions("test"))


def test_nothing_of_the_demo_is_learned() -> None:
    """Neither its people and answers nor its questions."""
    questions = read_yaml(EVALUATION_DATA / "demo" / "questions.yaml")["questions"]
    assert isinstance(questions, list)
    names = {"Nina", "Clara", "Jonas", "Freja", "Mathieu", "Brandt", "Ingrid", "Dahl", "Hamburg", "Lyon"}
    answers = {text for one in questions for text in (*one["accept"], *one.get("reject", ()))}
    words = {word.lower() for word in names | answers}
    told = " ".join(path.read_text(encoding="utf-8") for path in DATA.glob("*.yaml")).lower()
    assert {word for word in words if re.search(rf"\b{re.escape(word)}\b", told)} == set()
    asked = {one["question"] for one in questions}
    assert asked.isdisjoint(text for topic in topics() for text in _asked(topic.me) | _asked(topic.other))


def test_learning_holds_dialogues_of_several_replies() -> None:
    found = lessons("train", 50)
    assert all(one.metadata.whole for one in found)
    assert max(sum(message.role == "assistant" for message in one.messages) for one in found) > 2
    assert json.dumps([one.id for one in found])


def _kinds() -> tuple[str, ...]:
    return ("fact", "change", "was", "unknown", "talk")


def _asked(side: object) -> set[str]:
    return set(getattr(side, "ask", ()))


def _questions(part: Part) -> set[str]:
    """The questions without a person in them, as they are asked."""

    def said() -> Iterator[str]:
        for one in lessons(part, 300):
            yield from (message.content for message in one.messages if message.role == "user")

    return set(said())
