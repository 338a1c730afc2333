"""Prompt files: each loads, declares what it uses, and reads as its snapshot says; the demo's content is sound."""

from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import Environment, meta

from localmem import prompts
from localmem.errors import BadSettings
from localmem.evaluation.metrics.replies import contains_answer
from localmem.experiments.demo import DEMO_CONVERSATION, DemoQuestion, read_questions, read_scene
from localmem.prompts import PromptFile, load, render
from localmem.transfer import FileDefaults, read_sessions
from localmem.types import Message
from tests.snapshots import Snapshots, snapshot_names

_FOLDER = Path(prompts.__file__).parent
SNAPSHOTS = Snapshots(__file__)
NAMES = sorted(path.relative_to(_FOLDER).with_suffix("").as_posix() for path in _FOLDER.glob("*/*.md"))
REPLIES = [name for name in NAMES if name.endswith("/respond")]
SNAPSHOT = [
    "agent/respond",
    "carecall/fuse",
    "carecall/operation",
    "carecall/summarize",
    "compressor/extract",
    "evaluation/question",
    "evaluation/questions",
    "memory_retrieval/summarize",
    "none/respond",
    "rsum/recall",
    "rsum/respond",
    "rsum/respond_2_examples",
    "rsum/respond_3_examples",
    "rsum/update",
    "theanine/respond",
]
VALUES: dict[str, object] = {
    "today": "2 March 2026",
    "memory": "1 February 2026: Ana: I moved to Porto.",
    "user": "Ana",
    "assistant": "Ada",
    "instructions": "Be kind.",
    "dialogue": "Ana: I have a cat.\nAda: What is it called?",
    "last": "1",
    "limit": 20,
    "about": "Ana",
    "memories": ["Ana lives in Porto.", "Ana lives by the sea."],
    "sentence": "Ana lives in Faro.",
    "found": "1 February 2026: Ana: I have a cat.",
    "history": "",
}


def render_section(file: PromptFile, title: str, **changed: object) -> str:
    values = VALUES | changed
    return file.section(title, **{name: values[name] for name in file.inputs})


@pytest.mark.parametrize("name", NAMES)
def test_declared_inputs_are_those_the_sections_use(name: str) -> None:
    file = load(name)
    used = (meta.find_undeclared_variables(Environment().parse(text)) for text in file.sections.values())  # noqa: S701
    assert set(file.inputs) == set().union(*used)
    assert len(set(file.inputs)) == len(file.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_names_its_source_and_bounds_its_answer(name: str) -> None:
    file = load(name)
    assert len(file.source) > 20
    assert 1 <= file.max_tokens <= 1024


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_prompt_takes_the_agents_inputs(name: str) -> None:
    file = load(name)
    assert file.inputs == ("today", "memory", "user", "assistant", "instructions")
    assert set(file.sections) == {"system", "memory"}


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_prompt_passes_the_operators_words_on(name: str) -> None:
    instructions = "Speak {{ like }} a pirate & <smile>."
    assert instructions in render_section(load(name), "system", instructions=instructions)


@pytest.mark.parametrize("name", [name for name in REPLIES if name != "none/respond"])
def test_memory_stands_in_the_place_that_got_it_and_leaves_no_trace_elsewhere(name: str) -> None:
    file = load(name)
    memory = str(VALUES["memory"])
    assert memory in render_section(file, "system")
    assert memory in render_section(file, "memory")
    bare = render_section(file, "system", memory="")
    assert "earlier conversations" not in bare
    assert "\n\n\n" not in render_section(file, "system")
    assert render_section(file, "system").startswith(bare), "the fixed part comes first, for the prefix cache"


def test_the_control_never_shows_memory() -> None:
    assert render_section(load("none/respond"), "system") == render_section(load("none/respond"), "system", memory="")


@pytest.mark.parametrize("name", SNAPSHOT)
def test_reads_as_the_snapshot(name: str) -> None:
    file = load(name)
    text = "\n".join(f"# {title}\n{render_section(file, title)}" for title in file.sections) + "\n"
    SNAPSHOTS.check(name, text)


def test_every_prompt_has_a_snapshot() -> None:
    """Here or beside the tests of its room, under its own name."""
    SNAPSHOTS.check_names(SNAPSHOT)
    assert set(NAMES) <= snapshot_names(Path(__file__).parent)


def test_an_empty_memory_is_said_to_be_empty() -> None:
    prompt = render("rsum/update", memory="", dialogue="Ana: Hi.", limit=7)
    assert prompt.messages[1].content.startswith("Memory so far:\nEMPTY\n")
    assert "At most 7 sentences" in prompt.messages[0].content


def test_what_a_user_typed_is_no_template() -> None:
    typed = "Ana: {{ user }} {% if x %} <b>"
    prompt = render("memory_retrieval/summarize", dialogue=typed, user="Ana", assistant="Ada")
    assert prompt.messages[1] == Message("user", f"Dialogue:\n{typed}\n\nAnswer:")


def test_a_prompt_carries_the_values_it_was_rendered_with() -> None:
    dialogue = "Ana: {{ user }}\nMemory so far:\nEMPTY"
    prompt = render("rsum/update", memory="", dialogue=dialogue, limit=7)
    assert prompt.inputs == {"memory": "", "dialogue": dialogue, "limit": "7"}
    fuse = render("carecall/fuse", memories=["Ana lives in Évora.", "Ana rents."], sentence="Ana moved.")
    assert fuse.inputs == {"memories": '["Ana lives in Évora.", "Ana rents."]', "sentence": "Ana moved."}


def test_inputs_are_no_part_of_what_is_asked() -> None:
    prompt = render("rsum/update", memory="", dialogue="Ana: Hi.", limit=7)
    bare = replace(prompt, inputs={})
    assert prompt == bare
    assert repr(prompt) == repr(bare)


def test_undeclared_and_missing_values_are_refused() -> None:
    with pytest.raises(BadSettings, match="declares inputs"):
        load("rsum/update").section("user", memory="", dialogue="")


def test_an_unknown_prompt_is_one_clear_line() -> None:
    with pytest.raises(BadSettings, match="no prompt 'rsum/nothing'"):
        load("rsum/nothing")


# -- the demo's content


def demo_turns(role: str) -> list[str]:
    sessions = read_sessions(DEMO_CONVERSATION, FileDefaults())
    return [turn.text for session in sessions for turn in session.turns if turn.role == role]


def test_the_demo_opens_after_three_sessions_in_order() -> None:
    sessions = read_sessions(DEMO_CONVERSATION, FileDefaults())
    times = [turn.time for session in sessions for turn in session.turns]
    assert len(sessions) == 3
    assert times == sorted(times)
    assert read_scene().today > times[-1]


def test_the_demo_asks_twenty_different_questions_a_quarter_of_them_about_changes() -> None:
    questions = read_questions()
    assert len({question.question for question in questions}) == 20
    assert sum(question.about == "change" for question in questions) >= 5


@pytest.mark.parametrize("question", read_questions(), ids=lambda question: question.question)
def test_each_answer_was_said_and_no_question_gives_it_away(question: DemoQuestion) -> None:
    turns = demo_turns("assistant" if question.about == "reply" else "user")
    assert any(contains_answer(text, question.accept) for text in turns)
    assert not contains_answer(question.question, (*question.accept, *question.reject))


@pytest.mark.parametrize("question", [q for q in read_questions() if q.reject], ids=lambda question: question.question)
def test_what_no_longer_holds_was_said_before_what_does(question: DemoQuestion) -> None:
    turns = demo_turns("user")
    newest = max(n for n, text in enumerate(turns) if contains_answer(text, question.accept))
    assert any(contains_answer(text, question.reject) for text in turns[:newest])
