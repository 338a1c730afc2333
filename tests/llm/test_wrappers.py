"""Metering and recording see every answered prompt once; background prompts are marked and limited."""

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from localmem.errors import BadReply, PartialFailure
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import AnswerCache, Background, Meter, PromptUsage, Recorder, Wrapper, in_background
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


class Crowd(Wrapper):
    """Sees each call, and how many prompts are under way at the worst."""

    def __init__(self) -> None:
        super().__init__(ScriptedLLM(lambda prompt: prompt.messages[-1].content, first_token=0.005))
        self.prompts_seen: list[Prompt] = []
        self.most = 0
        self._now = 0
        self._guard = threading.Lock()

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        with self._guard:
            self.prompts_seen += prompts
            self._now += len(prompts)
            self.most = max(self.most, self._now)
        try:
            return super().generate(prompts)
        finally:
            with self._guard:
                self._now -= len(prompts)

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        self.prompts_seen.append(prompt)
        return super().stream(prompt)


def test_foreground_prompts_pass_unchanged() -> None:
    crowd = Crowd()
    llm = Background(crowd, limit=2)

    answers = llm.generate([ask(f"question {number}") for number in range(6)])
    collect(llm.stream(ask("and this")))

    assert [completion.text for completion in answers] == [f"question {number}" for number in range(6)]
    assert crowd.most == 6
    assert not any(prompt.background for prompt in crowd.prompts_seen)


def test_in_the_background_prompts_are_marked_and_few_at_a_time() -> None:
    crowd = Crowd()
    llm = Background(crowd, limit=3)

    def job(name: int) -> list[str]:
        with in_background():
            return [completion.text for completion in llm.generate([ask(f"{name}/{number}") for number in range(7)])]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(job, range(4)))

    assert answers == [[f"{name}/{number}" for number in range(7)] for name in range(4)]
    assert crowd.most == 3
    assert all(prompt.background for prompt in crowd.prompts_seen)


def test_a_thread_leaves_the_background_with_the_block() -> None:
    crowd = Crowd()
    llm = Background(crowd, limit=1)
    with in_background():
        llm.generate([ask()])
    llm.generate([ask()])
    assert [prompt.background for prompt in crowd.prompts_seen] == [True, False]


@pytest.mark.parametrize("limit", [1, 2, 8])
def test_one_that_fails_takes_no_place_and_no_neighbour_with_it(limit: int) -> None:
    def script(prompt: Prompt) -> str:
        if prompt.messages[-1].content == "bad":
            raise BadReply("no answer to that; ask another")
        return "good"

    llm = Background(ScriptedLLM(script), limit=limit)
    with in_background():
        for _ in range(2):  # twice: what failed gave its place back
            with pytest.raises(PartialFailure) as caught:
                llm.generate([ask("fine"), ask("bad"), ask("fine")])
            assert [isinstance(completion, Completion) for completion in caught.value.results] == [True, False, True]
        with pytest.raises(BadReply, match="ask another"):
            llm.generate([ask("bad")])


def test_what_was_asked_before_is_answered_from_then_unless_it_was_drawn() -> None:
    queries: list[str] = []

    def script(prompt: Prompt) -> str:
        queries.append(prompt.messages[-1].content)
        if "bad" in queries[-1]:
            raise BadReply("cut")
        return f"answer {len(queries)}"

    cache = AnswerCache(ScriptedLLM(script))
    first, drawn, bad = ask("one"), ask("drawn", temperature=1.0), ask("bad")
    assert [each.text for each in cache.generate([first, first, drawn])] == ["answer 1", "answer 1", "answer 2"]
    with pytest.raises(PartialFailure) as failure:
        cache.generate([first, bad, drawn])
    assert [getattr(each, "text", None) for each in failure.value.results] == ["answer 1", None, "answer 4"]
    assert queries == ["one", "drawn", "bad", "drawn"]
