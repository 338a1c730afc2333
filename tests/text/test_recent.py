"""The last turns that fit, and speakers told apart."""

from collections.abc import Sequence
from dataclasses import replace

from localmem.text.recent import recent
from localmem.text.speakers import named_apart, names
from tests.fakes import turns


def _count(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def test_the_longest_run_of_last_turns_that_fits() -> None:
    said = turns(*(f"remark {n}" for n in range(200)))  # three words a line with its speaker, and the line break
    assert list(recent(said, 4 * 150, _count)) == list(said[50:])
    assert list(recent(said, 4 * 150 + 3, _count)) == list(said[50:])
    assert list(recent(said, 4 * 200, _count)) == list(said)
    assert list(recent((), 10, _count)) == []


def test_the_last_turn_is_there_whatever_it_holds() -> None:
    said = turns("short", "word " * 100)
    assert list(recent(said, 5, _count)) == [said[1]]


def test_a_long_dialogue_is_counted_no_further_than_needed() -> None:
    counted: list[str] = []

    def count(texts: Sequence[str]) -> list[int]:
        counted.extend(texts)
        return _count(texts)

    recent(turns(*(["a"] * 10_000)), 30, count)
    assert len(counted) == 64


def test_names_that_both_sides_bear_are_told_apart() -> None:
    said = turns("a", "b", "c")
    assert named_apart(said) == list(said)
    assert names(said) == {"user": "User", "assistant": "Assistant"}
    kims = [replace(turn, speaker="Kim") for turn in said]
    assert names(named_apart(kims)) == {"user": "Kim (user)", "assistant": "Kim (assistant)"}
    assert named_apart([]) == []
