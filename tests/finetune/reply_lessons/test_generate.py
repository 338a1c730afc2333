"""Reply lessons: replies fit the kind of each question, and nothing of Nina's conversation is in them."""

import json
import re

import pytest

from finetune.reply_lessons.generate import make_lessons
from finetune.reply_lessons.vocabulary import DATA, Part, Topic, load_phrases, load_topics, load_values, select_share
from finetune.traces.trace import Trace
from localmem.evaluation import DATA as EVALUATION_DATA
from localmem.evaluation.metrics.replies import abstains
from localmem.files import read_yaml
from localmem.prompts import load


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return make_lessons("test", 300)


def test_the_same_seed_gives_the_same_lessons() -> None:
    assert make_lessons("train", 20, seed=3) == make_lessons("train", 20, seed=3) != make_lessons("train", 20, seed=4)


KINDS = ("fact", "change", "was", "unknown", "talk")


def test_a_reply_abstains_exactly_if_its_kind_is_unknown(traces: list[Trace]) -> None:
    by_kind = {
        kind: [abstains(trace.answer) for trace in traces if trace.metadata.work.dataset == kind] for kind in KINDS
    }
    assert all(len(replies) > 3 for replies in by_kind.values())
    assert all(by_kind["unknown"])
    assert not any(abstained for kind in KINDS if kind != "unknown" for abstained in by_kind[kind])


def test_the_value_of_a_reply_from_memory_is_in_its_prompt(traces: list[Trace]) -> None:
    pool = {value for values in load_values().values() for value in values}
    for trace in traces:
        if trace.metadata.work.dataset in ("fact", "change", "was"):
            values = [value for value in pool if value.lower() in trace.answer.lower()]
            assert values, trace.answer
            assert any(value.lower() in trace.context_text.lower() for value in values)


def test_the_prompts_are_those_of_the_starter_s_replies(traces: list[Trace]) -> None:
    for trace in traces:
        assert trace.metadata.prompt_sha256 == load(trace.metadata.prompt).digest
        assert trace.messages[0].role == "system"
    lines = [trace.messages[0].content for trace in traces if trace.metadata.prompt == "agent/respond"]
    assert sum("told you:\n" in line for line in lines) > len(lines) / 2


def test_test_lessons_share_no_value_and_only_half_of_their_topics_with_training() -> None:
    for values in load_values().values():
        assert set(select_share(values, "train")).isdisjoint(select_share(values, "test"))
    assert {topic.id for topic in load_topics()} > load_phrases().held_out
    held_out = {text for topic in load_topics() if topic.id in load_phrases().held_out for text in _questions(topic)}
    assert held_out.isdisjoint(_user_turns("train"))
    assert not held_out.isdisjoint(_user_turns("test"))


def test_nothing_of_ninas_conversation_is_learned() -> None:
    """Neither its people and answers nor its questions."""
    questions = read_yaml(EVALUATION_DATA / "nina" / "questions.yaml")["questions"]
    assert isinstance(questions, list)
    names = {"Nina", "Clara", "Jonas", "Freja", "Mathieu", "Brandt", "Ingrid", "Dahl", "Hamburg", "Lyon"}
    answers = {text for question in questions for text in (*question["accept"], *question.get("reject", ()))}
    words = {word.lower() for word in names | answers}
    vocabulary = " ".join(path.read_text(encoding="utf-8") for path in DATA.glob("*.yaml")).lower()
    assert {word for word in words if re.search(rf"\b{re.escape(word)}\b", vocabulary)} == set()
    texts = {question["question"] for question in questions}
    assert texts.isdisjoint(text for topic in load_topics() for text in _questions(topic))


def test_training_lessons_are_dialogues_with_several_replies() -> None:
    lessons = make_lessons("train", 50)
    assert all(lesson.metadata.whole for lesson in lessons)
    assert max(sum(message.role == "assistant" for message in lesson.messages) for lesson in lessons) > 2
    assert json.dumps([lesson.id for lesson in lessons])


def _questions(topic: Topic) -> set[str]:
    return {text for side in (topic.me, topic.other) if side for text in side.ask}


def _user_turns(part: Part) -> set[str]:
    """Everything that users say in lessons of this part."""
    return {
        message.content for lesson in make_lessons(part, 300) for message in lesson.messages if message.role == "user"
    }
