"""Growing text: cut at the first stop string, and never changed once it is released."""

from hypothesis import given
from hypothesis import strategies as st

from localmem.llm.answer_text import AnswerText

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
