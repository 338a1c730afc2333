"""Segmenters: every exchange in exactly one segment, whatever the backbone answers."""

import json
import re
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localmem.errors import BadInput, BadReply, LLMError
from localmem.llm.scripted import ScriptedLLM
from localmem.segmentation.segmenters import (
    EvenSegmenter,
    Example,
    LLMSegmenter,
    Rubric,
    WholeSegmenter,
    even_segments,
    segments_between,
    segments_json,
)
from localmem.types import JsonSchema, Prompt, Session
from tests.fakes import BatchRecorder, session

NAME = "secom/segment"


def _talk(exchanges: int, name: str = "s1", words: str = "") -> Session:
    return session(*(f"remark {n} {words}" for n in range(2 * exchanges)), name=name)


def _answer(*ends: int) -> str:
    return json.dumps({"ends": " ".join(map(str, ends))})


def _segmenter(answer: str) -> LLMSegmenter:
    return LLMSegmenter(ScriptedLLM(lambda _: answer))


def test_the_papers_example_is_two_segments_of_nine_exchanges() -> None:
    """SeCom, Figure 6: exchanges 0 to 5 and 6 to 8; asked for in one call."""
    talk = session(
        *("Which bread keeps longest?", "Rye, mostly.", "And how do I feed the starter?", "Flour and water, daily."),
        *("Can it stand in the cold?", "For a week.", "Mine smells of apples.", "That is a good sign."),
        *("When is it ripe?", "When it has doubled.", "Thanks, I shall bake tomorrow.", "Good luck."),
        *("My bicycle squeaks, by the way.", "Front or back?", "Back.", "Oil the chain first."),
        *("And if that does not help?", "Then look at the brake."),
    )
    prompts: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        return _answer(5, 8)

    segmenter = LLMSegmenter(ScriptedLLM(script))
    assert segmenter.segment([talk]) == [[range(6), range(6, 9)]]
    (prompt,) = prompts
    assert prompt.name == NAME
    question = prompt.messages[-1].content
    assert "[Exchange 0]\nUser: Which bread keeps longest?\nAssistant: Rye, mostly.\n\n[Exchange 1]" in question
    assert "exchanges 0 to 8" in question
    assert not segmenter.fallbacks


def test_the_format_allows_ascending_ends_and_nothing_else() -> None:
    """Every set of segments of up to six exchanges can be written, in one way; no gap, overlap or other order can."""
    for count in range(2, 7):
        prompts: list[Prompt] = []

        def script(prompt: Prompt, log: list[Prompt] = prompts) -> str:
            log.append(prompt)
            return _answer(0)

        LLMSegmenter(ScriptedLLM(script)).segment([_talk(count)])
        assert isinstance(prompts[0].format, JsonSchema)
        pattern = prompts[0].format.schema["properties"]["ends"]["pattern"]  # type: ignore[index]
        numbers = range(-1, count + 1)
        texts = [" ".join(map(str, ends)) for size in range(4) for ends in product(numbers, repeat=size)]
        allowed = {text for text in texts if re.search(pattern, text)}
        inner = [set(ends) for size in range(3) for ends in combinations(range(count - 1), size)]
        assert allowed == {" ".join(map(str, [*sorted(ends), count - 1])) for ends in inner}


@pytest.mark.parametrize("answer", ["[]", '{"ends": "first"}', '{"ends": 3}', '{"segments": []}'])
def test_an_answer_without_numbers_gives_chunks_of_three(answer: str) -> None:
    segmenter = _segmenter(answer)
    assert segmenter.segment([_talk(10)]) == [[range(3), range(3, 6), range(6, 9), range(9, 10)]]
    assert segmenter.fallbacks == {NAME: 1}


def test_an_answer_that_is_no_json_gives_chunks_of_three() -> None:
    def script(prompt: Prompt) -> str:
        raise BadReply(f"{prompt.name} was cut")

    segmenter = LLMSegmenter(ScriptedLLM(script))
    assert segmenter.segment([_talk(4), _talk(2)]) == [[range(3), range(3, 4)], [range(2)]]
    assert segmenter.fallbacks == {NAME: 2}


def test_a_backbone_that_is_gone_is_no_fallback() -> None:
    def script(prompt: Prompt) -> str:
        raise LLMError("gone")

    with pytest.raises(LLMError):
        LLMSegmenter(ScriptedLLM(script)).segment([_talk(4)])


@settings(deadline=None)  # prompts are read from files the first time
@given(st.integers(1, 30), st.lists(st.integers(-2, 40), max_size=40))
def test_any_answer_gives_every_exchange_once_in_order(exchanges: int, ends: list[int]) -> None:
    segments = _segmenter(_answer(*ends)).segment([_talk(exchanges)])[0]
    assert [number for run in segments for number in run] == list(range(exchanges))


def test_long_sessions_go_out_in_parts_that_fit_all_at_once() -> None:
    sizes: list[int] = []

    def script(prompt: Prompt) -> str:
        assert isinstance(prompt.format, JsonSchema)
        last = int(prompt.messages[-1].content.rpartition("exchanges 0 to ")[2].split()[0])
        sizes.append(sum(len(message.content.split()) for message in prompt.messages) + prompt.max_tokens)
        return _answer(last)

    llm = BatchRecorder(script, context_length=2000)
    segments = LLMSegmenter(llm).segment([_talk(250, words="and so on " * 10), _talk(3)])
    (calls,) = llm.sizes
    assert calls > 5
    assert max(sizes) <= 2000
    assert [number for run in segments[0] for number in run] == list(range(250))
    assert segments[1] == [range(3)]
    assert len(segments[0]) == calls - 1


def test_nothing_and_one_exchange_are_not_asked_about() -> None:
    segmenter = LLMSegmenter(ScriptedLLM(lambda _: pytest.fail("asked")))
    assert segmenter.segment([]) == []
    assert segmenter.segment([Session("empty"), _talk(1)]) == [[], [range(1)]]


def test_even_and_whole_segments() -> None:
    assert EvenSegmenter(2).segment([_talk(5), Session("empty")]) == [[range(2), range(2, 4), range(4, 5)], []]
    assert WholeSegmenter().segment([_talk(5), Session("empty")]) == [[range(5)], []]
    assert even_segments(3, 1) == [range(1), range(1, 2), range(2, 3)]


def test_starts_outside_the_session_begin_nothing() -> None:
    assert segments_between({3, 9, -1}, 5) == [range(3), range(3, 5)]
    assert segments_between(set(), 0) == []


def test_segments_are_written_as_they_are_asked_for() -> None:
    segments = [range(2), range(2, 5)]
    assert _segmenter(segments_json(segments)).segment([_talk(5)]) == [segments]


def test_a_rubric_is_read_back_as_it_was_saved_and_joins_the_prompt(tmp_path: Path) -> None:
    rubric = Rubric(
        ("A thank-you stays with its topic.",), (Example("[Exchange 0]\nhi", "0", "1", "고마워요 ends it."),)
    )
    rubric.save(tmp_path / "rubric.yaml")
    assert Rubric.load(tmp_path / "rubric.yaml") == rubric
    prompts: list[str] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt.messages[0].content)
        return _answer(1)

    LLMSegmenter(ScriptedLLM(script), rubric=rubric).segment([_talk(2)])
    assert "- A thank-you stays with its topic." in prompts[0]
    assert "고마워요 ends it." in prompts[0]


@pytest.mark.parametrize("text", ["items: 3", "- a\n- b", "items: [", "item: [a]\n"])
def test_a_file_that_is_no_rubric_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text(text, encoding="utf-8")
    if text == "item: [a]\n":
        assert Rubric.load(path) == Rubric()  # keys of others are left alone
        return
    with pytest.raises(BadInput, match="a rubric is YAML with items and examples"):
        Rubric.load(path)
