"""The scripted LLM follows the rules of the real ones, so that tests with it are meaningful."""

import math

import pytest

from localmem.errors import BadReply, PartialFailure
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Completion
from tests.llm.prompts import ask, collect


def test_formats_are_checked() -> None:
    llm = ScriptedLLM(lambda prompt: "maybe")
    with pytest.raises(BadReply, match="must be one of"):
        llm.generate([ask(choice=["yes", "no"])])
    with pytest.raises(BadReply, match="not JSON"):
        llm.generate([ask(schema={})])
    completion = llm.generate([ask(choice=["yes", "maybe"])])[0]
    assert completion.choices == {"yes": -math.inf, "maybe": 0.0}


def test_a_choice_is_never_cut() -> None:
    completion = ScriptedLLM(lambda prompt: "the second").generate(
        [ask(choice=["the first", "the second"], max_tokens=1)]
    )
    assert (completion[0].text, completion[0].finish) == ("the second", "stop")


def test_a_limit_cuts_and_sets_the_finish_reason() -> None:
    llm = ScriptedLLM(lambda prompt: "one two three")
    assert [llm.generate([ask(max_tokens=n)])[0].finish for n in (2, 3)] == ["length", "stop"]
    assert collect(llm.stream(ask(max_tokens=2)))[0] == ["one", " two"]


def test_failures_do_not_affect_other_prompts() -> None:
    llm = ScriptedLLM(lambda prompt: prompt.messages[-1].content)
    with pytest.raises(PartialFailure) as caught:
        llm.generate([ask("{}", schema={}), ask("{", schema={})])
    assert [type(result) for result in caught.value.results] == [Completion, BadReply]
