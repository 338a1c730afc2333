"""The gate: what it refuses and why, what it admits unchanged, and what it records."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from localmem.grounding.gate import Gate, is_loop, is_placeholder, normalise
from localmem.prompts import render
from localmem.types import Prompt, RefuseText, Turn
from tests.growth import assert_linear

TIME = datetime(2026, 6, 20, 18, tzinfo=UTC)
TURNS = [Turn("s1.0", "user", "User", "I sail with Bo every Sunday.", TIME)]


def _prompt(name: str = "memory_retrieval/summarize") -> Prompt:
    return render(name, dialogue="User: I sail with Bo every Sunday.", user="User", assistant="Assistant")


def _refused(*texts: str, name: str = "memory_retrieval/summarize") -> dict[str, str]:
    gate = Gate(TURNS, Counter())
    gate.admit(_prompt(name), texts)
    return {refusal.text: refusal.reason for refusal in gate.refusals}


def test_what_the_sources_say_is_admitted_unchanged() -> None:
    gate = Gate(TURNS, Counter())
    assert gate.admit(_prompt(), ["User sails  with Bo.", "It is on Sundays."]) == [
        "User sails with Bo.",
        "It is on Sundays.",
    ]
    assert gate.refusals == []


@pytest.mark.parametrize(
    "text",
    [
        "Ana moved to Porto in May.",
        "User moved to Porto in May.",
        "User's brother Rui helped to carry the piano.",
        "User teaches music at a school.",
        "Each sentence is short and complete, and names User.",
    ],
)
def test_a_near_copy_of_the_examples_is_refused(text: str) -> None:
    assert _refused(text) == {text: "copied from the prompt"}


@pytest.mark.parametrize("text", ["Der Nutzer ist im Mai nach Porto gezogen.", "用户五月搬到了Porto。"])
def test_a_translated_example_is_refused_by_its_names(text: str) -> None:
    assert _refused(text) == {text: "name"}


def test_the_weekday_of_an_example_is_no_name() -> None:
    prompt = render("carecall/summarize", dialogue="User: I climb.", user="User", assistant="Assistant", about="User")
    assert Gate(TURNS, Counter()).admit(prompt, ["User climbs a hill on Sunday."]) == ["User climbs a hill on Sunday."]


def test_what_an_example_says_may_be_true_of_the_user() -> None:
    dialogue = "User: I moved to Porto in May, and I teach music at a school there."
    prompt = render("memory_retrieval/summarize", dialogue=dialogue, user="User", assistant="Assistant")
    sentences = ["User moved to Porto in May.", "User teaches music at a school in Porto."]
    assert Gate(TURNS, Counter()).admit(prompt, sentences) == sentences


@pytest.mark.parametrize(
    "text",
    [
        *[
            "(empty)",
            "None.",
            "N/A",
            "[name]",
            "...",
            "🎉",
            "string",
            "Fact 1",
            "无",
            "没有信息",
            "keine Informationen",
        ],
        *["No information about User is given.", "There are no new facts.", "Aucune information"],
        *["Here is the updated memory", "The dialogue does not say anything."],
    ],
)
def test_placeholders(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.parametrize(
    "text",
    [
        "User has no children.",
        "No dairy.",
        "User's memory is bad.",
        "Nothing scares User.",
        "개가 있어요",
    ],
)
def test_sentences_about_nothing_in_particular_are_no_placeholders(text: str) -> None:
    assert not is_placeholder(text)


def test_what_a_source_says_word_for_word_is_never_refused() -> None:
    texts = ["Fact 1.", "No dairy. There are no new facts.", "Ana moved to Porto in May."]
    turns = [Turn(f"s1.{n}", "user", "User", text, TIME) for n, text in enumerate(texts)]
    statements = ["Fact 1.", "There are no new facts.", "Ana moved to Porto in May."]
    assert Gate(turns, Counter()).admit(_prompt(), statements) == statements
    updating = render("rsum/update", memory="Fact 1.", dialogue="User: Hello.", limit=20)
    assert Gate(TURNS, Counter()).admit(updating, ["Fact 1.", "Fact 2."]) == ["Fact 1."]


def test_loops() -> None:
    assert is_loop("User likes to sail and likes to sail and likes to sail and")
    assert is_loop("no no no no")
    assert is_loop("I'm going to the board today. I'm going to the board today. I'm going to a")
    assert is_loop("The rest is as it was, but the last is different, but the last is different, but the last is")
    assert is_loop("他喜欢船他喜欢船他喜欢船")
    assert is_loop(", ".join(f"User is a friend of the {n}" for n in "abcdefghij"))
    assert not is_loop("User has a cat, a dog, a horse and a very, very old hen.")
    assert not is_loop("User sails on Sunday morning, on Sunday morning above all.")
    assert not is_loop(
        "User plans to visit Bo, then Cy, then Di, and to be home for harvest before the rain comes back."
    )


def test_a_duplicate_of_the_bank_is_refused_and_a_repeat_of_the_answer_recorded_too() -> None:
    gate = Gate(TURNS, Counter(), existing=["User sails with Bo"])
    assert gate.admit(_prompt(), ["user sails with Bo.", "User sails.", "User sails!"]) == ["User sails."]
    assert [(refusal.text, refusal.reason) for refusal in gate.refusals] == [
        ("user sails with Bo.", "duplicate"),
        ("User sails!", "duplicate"),
    ]


def test_a_refusal_names_prompt_sources_time_and_what_is_wrong() -> None:
    gate = Gate(TURNS, Counter())
    gate.admit(_prompt(), ["User sails with Zelda."])
    assert gate.refusals == [
        RefuseText("User sails with Zelda.", "name", "memory_retrieval/summarize", ("s1.0",), TIME, "Zelda")
    ]


def test_a_long_text_loses_its_bad_sentences_only() -> None:
    gate = Gate(TURNS, Counter())
    text = "User sails with Bo. User met Zelda. They sail on Sundays."
    assert gate.admit_text(_prompt(), text) == "User sails with Bo. They sail on Sundays."
    assert gate.admit_text(_prompt(), "(none)") == ""


def test_an_answer_of_which_nothing_is_left_is_a_fallback() -> None:
    fallbacks: Counter[str] = Counter()
    assert Gate(TURNS, fallbacks).admit_sentences(_prompt(), ["(empty)"]) == []
    assert fallbacks == {"memory_retrieval/summarize": 1}


def test_a_huge_loop_is_recorded_in_part() -> None:
    gate = Gate(TURNS, Counter())
    gate.admit(_prompt(), ["on and on " * 500])
    assert [len(refusal.text) for refusal in gate.refusals] == [400]


def test_a_long_text_is_judged_in_linear_time() -> None:
    words = [f"w{number}x" for number in range(4_004)]
    assert not is_loop(" ".join(words))
    assert not is_placeholder("abcdefghij" * 500)
    assert [is_placeholder(text) for text in ("Fact 12", "Fact 123")] == [True, False]
    assert_linear(lambda count: is_loop(" ".join(words[:count])), 1_000)
    assert_linear(lambda count: is_placeholder("abcdefghij" * count), 500)


def test_a_long_session_is_read_once_for_all_answers() -> None:
    def admit_all(count: int) -> None:
        gate = Gate(turns[:count], Counter())
        for number in range(0, count, 2):
            prompt = render("conditionmem/record", dialogue=f"User: I met guest {number}.")
            assert gate.admit(prompt, [f"User met guest {number}.", "I met guest 7."])[0] == f"User met guest {number}."
        assert gate.refusals == []

    turns = [Turn(f"s1.{n}", "user", "User", f"I met guest {n}. We sailed far.", TIME) for n in range(404)]
    assert_linear(admit_all, 100)


def test_texts_that_differ_in_case_and_marks_are_one() -> None:
    assert normalise("User's café, Bo!") == normalise("users cafe bo")
