"""Growing text is cut at the first stop string and final once released; probabilities of options as by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.llm.base import AnswerText
from localmem.llm.choice_mass import UNKNOWN, ChoiceMass, steps_to_decide

pieces = st.lists(st.text(alphabet="abc", max_size=4), max_size=20)
stops = st.lists(st.text(alphabet="abc", max_size=4), max_size=3)


@given(pieces, stops)
def test_pieces_make_up_the_text_before_the_first_stop(parts: list[str], stop_strings: list[str]) -> None:
    answer = AnswerText(stop_strings)
    released = ""
    for piece in parts:
        answer.add(piece)
        released += answer.take()
    answer.finish()
    released += answer.take()
    assert released == answer.text
    assert not answer.has_news
    full_text = "".join(parts)
    assert full_text.startswith(answer.text)
    assert not any(stop in answer.text for stop in stop_strings if stop)
    assert answer.stopped == any(stop in full_text for stop in stop_strings if stop)
    assert answer.stopped or answer.text == full_text


def test_only_a_possible_stop_string_is_withheld() -> None:
    answer = AnswerText(["\nUser:"])
    answer.add("Hello\nUs")
    assert answer.take() == "Hello"
    answer.add("ually")
    assert answer.take() == "\nUsually"
    answer.add(" so\nUser: and on")
    assert answer.take() == " so"
    assert answer.stopped
    answer.add("more")
    assert answer.text == "Hello\nUsually so"


def test_the_earliest_of_several_stop_stringscuts() -> None:
    answer = AnswerText(["later", "here"])
    answer.add("not here, later")
    assert answer.text == "not "


def test_the_character_nul_is_replaced() -> None:
    answer = AnswerText(["later"])
    answer.add("be\0fore")
    assert answer.text == "be\ufffdfore"


def tokens(weights: dict[str, float]) -> list[tuple[bytes, float]]:
    """Tokens with log-probabilities, up to the same constant for all."""
    return [(token.encode(), math.log(weight) - 3.0) for token, weight in weights.items()]


def shares(mass: ChoiceMass, answer: str) -> dict[str, float]:
    return {option: math.exp(weight) for option, weight in mass.end(answer).items()}


def decision(mass: ChoiceMass) -> str | None:
    """What is decided by now; a call, for a type checker takes an attribute to stay what it was."""
    return mass.decision


def test_options_that_part_at_once_are_weighed_exactly() -> None:
    mass = ChoiceMass(("yes", "no", "maybe"))
    mass.step(tokens({"yes": 0.2, "y": 0.1, "no": 0.05, "may": 0.1, "m": 0.05}), b"yes")
    assert decision(mass) == "yes"
    mass.step([], b"ignored")
    assert shares(mass, "yes") == pytest.approx({"yes": 0.6, "no": 0.1, "maybe": 0.3})


def test_options_on_the_path_are_decided_later() -> None:
    mass = ChoiceMass(("the cat", "the dog", "a cow"))
    mass.step(tokens({"the": 0.5, "t": 0.3, "a": 0.2}), b"the")
    assert decision(mass) is None
    mass.step(tokens({" cat": 0.25, " d": 0.75}), b" d")
    assert decision(mass) == "the dog"
    assert shares(mass, "the dog") == pytest.approx({"the cat": 0.2, "the dog": 0.6, "a cow": 0.2})


def test_options_that_leave_together_share_evenly() -> None:
    mass = ChoiceMass(("ab", "ac", "b"))
    mass.step(tokens({"a": 0.4, "b": 0.6}), b"b")
    assert shares(mass, "b") == pytest.approx({"ab": 0.2, "ac": 0.2, "b": 0.6})


def test_an_option_may_be_a_prefix_of_another() -> None:
    mass = ChoiceMass(("A", "AB"))
    mass.step(tokens({"A": 0.9, "AB": 0.1}), b"A")
    assert decision(mass) is None
    mass.step(tokens({"<end>": 0.25, "B": 0.75}), b"<end>")
    assert decision(mass) == "A"
    assert shares(mass, "A") == pytest.approx({"A": 0.225, "AB": 0.775})


def test_tokens_that_no_option_allows_count_for_nothing() -> None:
    mass = ChoiceMass(("yes", "no"))
    mass.step(tokens({"perhaps": 0.9, "yes": 0.06, "no": 0.04}), b"yes")
    assert shares(mass, "yes") == pytest.approx({"yes": 0.6, "no": 0.4})


def test_an_answer_that_is_no_option_decides_nothing() -> None:
    mass = ChoiceMass(("yes", "no"))
    mass.step(tokens({"perhaps": 0.9, "maybe": 0.1}), b"perhaps")
    mass.step(tokens({"yes": 1.0}), b"yes")
    assert decision(mass) is None


def test_an_option_below_the_list_is_put_at_its_floor() -> None:
    mass = ChoiceMass(("yes", "no", "maybe"))
    mass.step(tokens({"yes": 0.8, "no": 0.1}), b"yes", floor=math.log(0.1) - 3.0)
    assert shares(mass, "yes") == pytest.approx({"yes": 0.8, "no": 0.1, "maybe": 0.1})


def test_an_unsent_part_of_a_character_is_shared_by_all() -> None:
    mass = ChoiceMass(("안", "아"))
    mass.step([(b"", math.log(0.6)), (UNKNOWN, math.log(0.4))], b"")
    mass.step(tokens({"아": 0.5, "안": 0.5}), "아".encode())
    assert shares(mass, "아") == pytest.approx({"안": 0.5, "아": 0.5})


@given(st.sets(st.text(alphabet="abc", min_size=1, max_size=5), min_size=2, max_size=6), st.data())
def test_any_path_gives_probabilities(options: set[str], data: st.DataObject) -> None:
    """Random decodings, token by token of one or two characters, end within the predicted number of steps."""
    ordered = sorted(options)
    mass, path, steps = ChoiceMass(ordered), "", 0
    while mass.decision is None:
        going_on = {
            option[len(path) : end]
            for option in ordered
            if option.startswith(path)
            for end in (len(path) + 1, len(path) + 2)
            if len(path) < end <= len(option)
        } | ({"<end>"} if path in options else set())
        weights = {token: data.draw(st.floats(0.01, 1.0)) for token in sorted(going_on)}
        chosen = data.draw(st.sampled_from(sorted(going_on)))
        mass.step(tokens(weights), chosen.encode())
        path += "" if chosen == "<end>" else chosen
        steps += 1
    assert mass.decision.startswith(path)
    assert steps <= steps_to_decide(ordered)
    assert sum(shares(mass, mass.decision).values()) == pytest.approx(1)


def test_steps_to_decide() -> None:
    assert steps_to_decide(("yes", "no")) == 1
    assert steps_to_decide(("REPLACE", "RETIRE", "PASS")) == 3
    assert steps_to_decide(("A", "AB")) == 2
    assert steps_to_decide(("안", "아")) == 3
