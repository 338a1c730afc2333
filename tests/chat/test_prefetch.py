"""Recall goes on while a turn is written; what was recalled for something else is dropped; no error is lost."""

import threading
from collections.abc import Callable

import pytest

from localmem.chat.conversation import hear_and_prepare

Announce = Callable[[str], None]


def test_both_go_on_at_once() -> None:
    """Each waits for the other to have begun."""
    writing, recalling = threading.Event(), threading.Event()

    def hear(announce: Announce) -> str:
        announce("said")
        writing.set()
        assert recalling.wait(30)
        return "said"

    def prepare(heard: str) -> str:
        assert writing.wait(30)
        recalling.set()
        return f"recalled for {heard}"

    assert hear_and_prepare(hear, prepare) == ("said", "recalled for said")


def test_what_was_recalled_for_something_else_is_dropped() -> None:
    def hear(announce: Announce) -> str:
        announce("expected")
        return "said"

    assert hear_and_prepare(hear, str.upper) == ("said", None)


def test_without_an_announcement_nothing_is_recalled() -> None:
    assert hear_and_prepare(lambda _: "said", lambda _: pytest.fail("nothing was announced")) == ("said", None)


@pytest.mark.parametrize("announced", [True, False])
def test_a_refusal_comes_before_any_other_error(*, announced: bool) -> None:
    def hear(announce: Announce) -> str:
        if announced:
            announce("said")
        raise ValueError("refused")

    def prepare(_: str) -> str:
        raise KeyError("recall failed")

    with pytest.raises(ValueError, match="refused"):
        hear_and_prepare(hear, prepare)


def test_a_recall_that_fails_is_told_when_the_words_are_written() -> None:
    written: list[str] = []

    def hear(announce: Announce) -> str:
        announce("said")
        written.append("said")
        return "said"

    def prepare(_: str) -> str:
        raise KeyError("recall failed")

    with pytest.raises(KeyError):
        hear_and_prepare(hear, prepare)
    assert written == ["said"]
