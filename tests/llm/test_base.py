"""The rules that all LLMs share: valid prompts, trimming, routing to adapters."""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.errors import BadInput, BadReply, PromptTooLong
from localmem.llm.base import ABILITIES, alternate, check, check_json, fit, route
from localmem.types import JsonSchema, Message, Prompt
from tests.llm.prompts import ask

_OVERHEAD = 4

texts = st.text(alphabet="ab ", max_size=400)
dialogues = st.lists(texts, min_size=1, max_size=12).map(
    lambda contents: tuple(Message("user" if n % 2 == 0 else "assistant", text) for n, text in enumerate(contents))
)


def count(messages: Sequence[Message]) -> int:
    """A character is a token, and each message costs a few more."""
    return sum(len(message.content) + _OVERHEAD for message in messages)


def prompt_of(messages: Sequence[Message], max_tokens: int) -> Prompt:
    return Prompt("test/fit", tuple(messages), max_tokens=max_tokens)


@given(dialogues, st.none() | texts, st.integers(1, 60), st.integers(200, 1200))
def test_a_fitted_prompt_fits(contents: tuple[Message, ...], system: str | None, max_tokens: int, context: int) -> None:
    messages = contents if system is None else (Message("system", system), *contents)
    prompt = prompt_of(messages, max_tokens)
    fitted, cut = fit(prompt, context, count)
    assert count(fitted.messages) + max_tokens <= context
    assert cut == count(prompt.messages) - count(fitted.messages)
    assert (cut == 0) == (count(prompt.messages) + max_tokens <= context)
    assert replace(fitted, messages=()) == replace(prompt, messages=())
    _assert_ends_stay(prompt, fitted)


def test_an_open_ended_answer_may_take_what_the_context_leaves() -> None:
    short = replace(prompt_of([Message("user", "a b c")], 20), open_ended=True)
    fitted, cut = fit(short, 200, count)
    assert (fitted.max_tokens, cut) == (200 - count(short.messages), 0)
    long = [Message("user", "a " * 90), Message("assistant", "b " * 90), Message("user", "c " * 90)]
    fitted, cut = fit(replace(prompt_of(long, 20), open_ended=True), 200, count)
    assert fitted.max_tokens == 200 - count(fitted.messages) >= 20
    assert cut > 0


def _assert_ends_stay(prompt: Prompt, fitted: Prompt) -> None:
    """The system message and the last message are there, whole or without their middle; between them, only old go."""
    assert _is_cut_of(fitted.messages[-1], prompt.messages[-1])
    if prompt.messages[0].role == "system":
        assert _is_cut_of(fitted.messages[0], prompt.messages[0])
    middle = fitted.messages[1:] if prompt.messages[0].role == "system" else fitted.messages
    assert all(_is_cut_of(new, old) for new, old in zip(middle, prompt.messages[-len(middle) :], strict=True) if middle)


def _is_cut_of(new: Message, old: Message) -> bool:
    head, gap, tail = new.content.partition("\n[...]\n")
    return new.role == old.role and (
        new == old or (bool(gap) and old.content.startswith(head) and old.content.endswith(tail))
    )


def test_a_prompt_that_fits_is_unchanged() -> None:
    prompt = prompt_of([Message("user", "x" * 50)], 10)
    assert fit(prompt, 64, count) == (prompt, 0)


def test_as_few_of_the_oldest_as_possible_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    contents = [Message("user" if n % 2 == 0 else "assistant", str(n) * 20) for n in range(7)]
    prompt = prompt_of([Message("system", "s" * 20), *contents], 20)
    with caplog.at_level(logging.WARNING):
        fitted, cut = fit(prompt, 20 + 24 * 4 + 8, count)
    assert fitted.messages == (prompt.messages[0], *contents[4:])
    assert cut == 4 * 24
    assert "'test/fit' was cut by 96 of 192 tokens" in caplog.text


def test_a_trimmed_dialogue_does_not_begin_with_the_assistant() -> None:
    contents = [Message("user" if n % 2 == 0 else "assistant", "x" * 20) for n in range(5)]
    fitted, _ = fit(prompt_of(contents, 20), 20 + 24 * 4 + 8, count)
    assert [message.role for message in fitted.messages] == ["user", "assistant", "user"]


def test_long_messages_are_cut_to_one_length() -> None:
    prompt = prompt_of([Message("system", "s" * 1000), Message("user", "u" * 3000)], 20)
    fitted, _ = fit(prompt, 520, count)
    system, user = (message.content for message in fitted.messages)
    assert len(system) == len(user)
    assert system.startswith("sss")
    assert system.endswith("sss")
    assert 480 < count(fitted.messages) <= 500


def test_an_answer_that_leaves_no_room_raises() -> None:
    with pytest.raises(PromptTooLong, match="asks for 500 tokens of a context of 520; lower max_tokens"):
        fit(prompt_of([Message("user", "x" * 50)], 500), 520, count)


def test_messages_that_cannot_be_cut_raise() -> None:
    many = [Message("system", ""), Message("user", "x" * 100)]
    with pytest.raises(PromptTooLong, match="cannot be cut to 40"):
        fit(prompt_of(many, 60), 100, lambda messages: 100 + len(messages))


@given(dialogues)
def test_alternating_keeps_all_text(contents: tuple[Message, ...]) -> None:
    doubled = tuple(message for message in contents for _ in range(2))
    joined = alternate(doubled)
    assert all(first.role != second.role for first, second in itertools.pairwise(joined))
    assert "\n\n".join(message.content for message in joined) == "\n\n".join(message.content for message in doubled)


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        (replace(ask(), messages=()), "no messages"),
        (ask(max_tokens=0), "max_tokens=0"),
        (ask(temperature=2.5), "temperature=2.5"),
        (ask(temperature=-1), "temperature=-1"),
        (ask(choice=["only"]), "two or more"),
        (ask(choice=["twice", "twice"]), "all different"),
        (ask(choice=["", "b"]), "all different"),
    ],
)
def test_invalid_prompts_raise(prompt: Prompt, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        check(prompt)


def test_json_is_checked_for_json_formats() -> None:
    check_json(ask(), "{")
    check_json(ask(schema={}), "{}")
    with pytest.raises(BadReply, match=r"'test/ask' was answered '\{', which is not JSON"):
        check_json(ask(schema={}), "{")
    with pytest.raises(BadReply, match=r"\[\.\.\.\]") as caught:
        check_json(ask(schema={}), "[" * 10_000)
    assert len(str(caught.value)) < 500


def test_cut_json_is_as_it_is_where_the_format_allows_it() -> None:
    prompt = replace(ask(), format=JsonSchema({}, may_be_cut=True))
    check_json(prompt, "{", is_cut=True)
    with pytest.raises(BadReply):
        check_json(prompt, "{")


def test_an_exact_name_has_precedence_over_its_first_part() -> None:
    adapters = {"rsum": "one", "rsum/update": "two"}
    assert route(adapters, "rsum/update") == "two"
    assert route(adapters, "rsum/respond") == "one"
    assert route(adapters, "rsumx/respond") is None


def test_what_a_backbone_cannot_do_is_refused_by_name() -> None:
    call = Message("assistant", "", {"tool_calls": [{}]})
    prompt = replace(prompt_of([Message("user", "hi"), call], 9), extra={"logprobs": True}, prefill="Well")
    with pytest.raises(BadInput, match="cannot do logprobs, prefill, tools"):
        check(prompt)
    check(prompt, ABILITIES)


def test_a_trimmed_dialogue_keeps_the_results_of_tools_with_their_question() -> None:
    question = Message("user", "q" * 20)
    calls = [Message("assistant", "", {"tool_calls": [{}]}), Message("tool", "r" * 30, {"tool_call_id": "1"})]
    messages = [Message("user", "a" * 90), calls[0], calls[1], Message("assistant", "b" * 90), question, *calls]
    fitted, _ = fit(prompt_of(messages, 20), 130, count)
    assert fitted.messages == (question, *calls)
    assert alternate([*calls, calls[1]]) == (*calls, calls[1])
