"""How dialogues are written out, and how much of them fits a budget."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.text.dialogue import (
    count_fitting,
    dated_lines,
    distinguish_speakers,
    latest_turns,
    pack,
    prompt_names,
    speaker_names,
    split_turns,
    transcript,
)
from tests.fakes import START, turns, unit
from tests.growth import assert_linear


def _words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def test_writing_out() -> None:
    assert transcript(turns("hi", "hello")) == "User: hi\nAssistant: hello"
    assert dated_lines([unit("a", "likes tea", time=START)]) == "2 March 2026: likes tea"


def test_a_long_past_is_packed_in_linear_time() -> None:
    assert list(map(len, pack(range(100), [1] * 100, 99))) == [99, 1]
    assert_linear(lambda count: pack(range(count), [1] * count, count - 1), 10_000)


@given(st.lists(st.integers(1, 30), max_size=30), st.integers(2, 40))
def test_parts_lose_nothing_and_keep_the_budget(lengths: list[int], budget: int) -> None:
    dialogue = turns(*(" ".join("w" * length) for length in lengths))
    runs = split_turns(dialogue, budget, _words)
    assert [turn for run in runs for turn in run] == list(dialogue)
    assert all(len(run) == 1 or sum(_words([transcript([t]) for t in run])) <= budget for run in runs)


@pytest.mark.parametrize(
    ("budget", "fitting"), [(-1, 0), (0, 0), (1, 0), (2, 1), (4, 1), (5, 3), (8, 3), (9, 4), (1000, 4)]
)
def test_the_first_texts_that_fit(budget: int, fitting: int) -> None:
    assert count_fitting(["a b", "c d e", "", "f g h i"], budget, _words) == fitting


def test_no_texts_fit_any_budget() -> None:
    assert count_fitting([], 0, _words) == 0


def test_the_longest_run_of_last_turns_that_fits() -> None:
    dialogue = turns(*(f"remark {n}" for n in range(200)))  # three words a line with its speaker, and the line break
    assert list(latest_turns(dialogue, 4 * 150, _words)) == list(dialogue[50:])
    assert list(latest_turns(dialogue, 4 * 150 + 3, _words)) == list(dialogue[50:])
    assert list(latest_turns(dialogue, 4 * 200, _words)) == list(dialogue)
    assert list(latest_turns((), 10, _words)) == []


def test_the_last_turn_is_there_whatever_it_holds() -> None:
    dialogue = turns("short", "word " * 100)
    assert list(latest_turns(dialogue, 5, _words)) == [dialogue[1]]


def test_a_long_dialogue_is_counted_no_further_than_needed() -> None:
    counted: list[str] = []

    def count(texts: Sequence[str]) -> list[int]:
        counted.extend(texts)
        return _words(texts)

    latest_turns(turns(*(["a"] * 10_000)), 30, count)
    assert len(counted) == 64


def test_names_that_both_sides_bear_are_told_apart() -> None:
    dialogue = turns("a", "b", "c")
    assert distinguish_speakers(dialogue) == list(dialogue)
    assert speaker_names(dialogue) == {"user": "User", "assistant": "Assistant"}
    kims = [replace(turn, speaker="Kim") for turn in dialogue]
    assert speaker_names(distinguish_speakers(kims)) == {"user": "Kim (user)", "assistant": "Kim (assistant)"}
    assert distinguish_speakers([]) == []


def test_names_of_a_dialogue_of_one_side() -> None:
    assert prompt_names(turns("a")) == {"user": "User", "assistant": "the assistant"}
