"""Metering and recording see every answered prompt once, also in batches that failed in part."""

from collections.abc import Generator

import pytest

from localmem.errors import BadReply, PartialFailure
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Meter, PromptUsage, Recorder, Wrapper
from localmem.types import Completion, Message, Prompt
from tests.llm.prompts import ask, collect


def script(prompt: Prompt) -> str:
    return "{" if prompt.name == "bad/json" else "one two three"


@pytest.fixture
def inner() -> ScriptedLLM:
    return ScriptedLLM(script, name="inner", context_length=256)


def test_a_wrapper_is_the_llm_it_wraps(inner: ScriptedLLM) -> None:
    wrapped = Wrapper(inner)
    assert (wrapped.name, wrapped.context_length) == ("inner", 256)
    assert wrapped.count_tokens(["a b", "c"]) == [2, 1]
    assert wrapped.generate([ask()]) == inner.generate([ask()])
    assert collect(wrapped.stream(ask())) == collect(inner.stream(ask()))


def test_the_meter_counts_by_name(inner: ScriptedLLM) -> None:
    meter = Meter(inner)
    meter.generate([ask("a b", name="one"), ask("a b", name="two"), ask("a b c", name="one", max_tokens=2)])
    collect(meter.stream(ask("a", name="two")))
    assert meter.usage() == {
        "one": PromptUsage(calls=2, input_tokens=15, output_tokens=5, cut_short=1),
        "two": PromptUsage(calls=2, input_tokens=13, output_tokens=6),
    }


def test_the_meter_counts_prompts_that_were_cut(inner: ScriptedLLM) -> None:
    meter = Meter(inner)
    long = Prompt("long", (Message("user", "a " * 100), Message("assistant", "b " * 100), Message("user", "c " * 90)))
    meter.generate([ask(name="short"), Prompt("long", long.messages, max_tokens=20)])
    assert {name: usage.trimmed for name, usage in meter.usage().items()} == {"short": 0, "long": 1}


def test_a_partial_failure_is_metered_for_its_successes(inner: ScriptedLLM) -> None:
    meter = Meter(inner)
    with pytest.raises(PartialFailure):
        meter.generate([ask(name="good"), ask(name="bad/json", schema={})])
    assert set(meter.usage()) == {"good"}
    with pytest.raises(BadReply):
        meter.generate([ask(name="bad/json", schema={})])


def test_a_closed_stream_is_not_metered(inner: ScriptedLLM) -> None:
    meter = Meter(inner)
    stream: Generator[str, None, Completion] = meter.stream(ask())
    next(stream)
    stream.close()
    assert meter.usage() == {}


def test_the_recorder_hands_on_prompt_and_answer(inner: ScriptedLLM) -> None:
    records: list[tuple[Prompt, Completion, float]] = []
    recorder = Recorder(inner, lambda *record: records.append(record))
    completions = recorder.generate([ask("one"), ask("two")])
    collect(recorder.stream(ask("three")))
    assert [(prompt.messages[-1].content, completion) for prompt, completion, _ in records] == [
        ("one", completions[0]),
        ("two", completions[1]),
        ("three", completions[0]),
    ]
    assert all(time > 1.7e9 for _, _, time in records)
