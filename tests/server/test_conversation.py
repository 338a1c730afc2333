"""Which session a client's messages belong to: a table of cases, and a client that does all a chat window allows."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localmem.server.conversation import Fit, best, fit
from localmem.types import Message, Role, Session
from tests.fakes import START, session


def sent(*texts: str) -> list[Message]:
    """User and assistant in turn, as a client resends them; a text that begins with > is the assistant's."""
    return [Message("assistant" if text.startswith(">") else "user", text.removeprefix(">")) for text in texts]


def log(*texts: str, name: str = "s1") -> Session:
    turns = session(*texts, name=name).turns
    roles: list[Role] = ["assistant" if text.startswith(">") else "user" for text in texts]
    fixed = [
        type(turn)(turn.id, role, role.capitalize(), turn.text.removeprefix(">"), turn.time)
        for turn, role in zip(turns, roles, strict=True)
    ]
    return Session(name, tuple(fixed))


def new_of(found: Fit | None, messages: Sequence[Message]) -> list[str] | None:
    return None if found is None else [message.content for message in found.place(messages).new]


LONG = ("u1", ">a1", "u2", ">a2", "u3", ">a3")

CASES = [
    # what the log holds, what is sent, what is new (None: it belongs elsewhere)
    ("goes on", ("u1", ">a1"), ("u1", ">a1", "u2"), ["u2"]),
    ("goes on, longer", LONG, (*LONG, "u4"), ["u4"]),
    ("white space", ("u1 b", ">a  1\n"), (" u1  b", ">a 1", "u2"), ["u2"]),
    ("same letters in another form", ("caf\u00e9", ">a1"), ("cafe\u0301", ">a1", "u2"), ["u2"]),
    ("old messages cut", LONG, ("u3", ">a3", "u4"), ["u4"]),
    ("cut to the last reply", LONG, (">a3", "u4"), ["u4"]),
    ("began in a session that is over", ("u2", ">a2"), ("u1", ">a1", "u2", ">a2", "u3"), ["u3"]),
    ("the same words again", ("yes", ">ok"), ("yes", ">ok", "yes"), ["yes"]),
    ("the same words a third time", ("yes", ">ok", "yes", ">ok"), ("yes", ">ok", "yes", ">ok", "yes"), ["yes"]),
    ("two at once", ("u1", ">a1"), ("u1", ">a1", "u2", "u3"), ["u2", "u3"]),
    ("another model answered in between", ("u1", ">a1"), ("u1", ">a1", "u2", ">x", "u3"), ["u2", "x", "u3"]),
    ("asked again, answered", ("u1", ">a1"), ("u1",), []),
    ("asked again, unanswered", ("u1",), ("u1",), []),
    ("asked again, later", LONG, ("u1", ">a1", "u2", ">a2", "u3"), []),
    ("asked again, in the middle", LONG, ("u1", ">a1", "u2"), []),
    ("asked again, cut", LONG, (">a2", "u3"), []),
    ("asked again, began elsewhere", ("u2", ">a2"), ("u1", ">a1", "u2"), []),
    ("asked again, the same words twice", ("yes", ">ok", "yes", ">ok"), ("yes", ">ok", "yes"), []),
    ("after asking again", ("u1", ">a1", ">b1"), ("u1", ">b1", "u2"), ["u2"]),
    ("after asking again, the first reply chosen", ("u1", ">a1", ">b1"), ("u1", ">a1", "u2"), ["u2"]),
    ("last reply edited", ("u1", ">a1"), ("u1", ">mine", "u2"), ["u2"]),
    ("an earlier reply edited", ("u1", ">a1", "u2", ">a2"), ("u1", ">mine", "u2", ">a2", "u3"), ["u3"]),
    ("every reply changed", LONG, ("u1", ">A", "u2", ">B", "u3", ">C", "u4"), ["u4"]),
    ("an earlier message edited", LONG, ("u1", ">a1", "v2"), ["v2"]),
    ("on behind an edited message", (*LONG, "v2", ">b2"), ("u1", ">a1", "v2", ">b2", "v3"), ["v3"]),
    ("the last message edited, unanswered", ("u1", ">a1", "u2"), ("u1", ">a1", "v2"), ["v2"]),
    ("another dialogue", LONG, ("w1", ">z1", "w2"), None),
    ("a first message", LONG, ("w1",), None),
    ("a first message like the first of a longer one", LONG, ("u1",), None),
    ("a first message like the last of a longer one", LONG, ("u3",), None),
    ("the same first words, another dialogue", ("u1", ">a1"), ("u1", ">z", "w2", ">z2", "w3"), None),
    ("nothing in the log", (), ("u1",), None),
]


@pytest.mark.parametrize(("held", "said", "new"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_is_new(held: tuple[str, ...], said: tuple[str, ...], new: list[str] | None) -> None:
    messages = sent(*said)
    assert new_of(fit(log(*held), messages), messages) == new


NAMED = [
    ("only the last message", LONG, ("u4",), ["u4"]),
    ("all of it", LONG, (*LONG, "u4"), ["u4"]),
    ("the same words again", (*LONG, "yes", ">ok"), ("yes",), ["yes"]),
    ("sent again after a failure", (*LONG, "u4"), ("u4",), []),
    ("another dialogue under the same name", LONG, ("w1",), ["w1"]),
    ("edited, with a beginning that is elsewhere", ("u2", ">a2"), ("u1", ">a1", "u2", ">x", "u3"), ["u3"]),
]


@pytest.mark.parametrize(("held", "said", "new"), [case[1:] for case in NAMED], ids=[case[0] for case in NAMED])
def test_what_is_new_in_a_session_that_the_client_names(
    held: tuple[str, ...], said: tuple[str, ...], new: list[str]
) -> None:
    messages = sent(*said)
    assert new_of(fit(log(*held), messages, named=True), messages) == new


def shown(found: Fit | None, messages: Sequence[Message]) -> list[str]:
    assert found is not None
    return [turn.text for turn in found.place(messages).shown]


def test_the_model_sees_the_log_before_the_messages_that_the_client_cut() -> None:
    messages = sent("u3", ">a3", "u4")
    assert shown(fit(log(*LONG), messages), messages) == ["u1", "a1", "u2", "a2", "u3", "a3"]


def test_the_model_does_not_see_the_reply_that_is_asked_for_again() -> None:
    messages = sent("u1", ">a1", "u2")
    found = fit(log("u1", ">a1", "u2", ">a2"), messages)
    assert shown(found, messages) == ["u1", "a1", "u2"]
    assert found is not None
    assert found.place(messages).shown[-1].id == "s1.2"


def test_the_model_sees_the_clients_edit_and_the_log_keeps_what_was_said() -> None:
    messages = sent("u1", ">mine", "u2")
    assert shown(fit(log("u1", ">a1"), messages), messages) == ["u1", "mine"]


def test_of_replies_to_one_turn_the_model_sees_the_last_where_the_client_says_nothing() -> None:
    messages = sent("u2")
    assert shown(fit(log("u1", ">a1", ">b1"), messages, named=True), messages) == ["u1", "b1"]


def test_behind_a_session_that_is_over_only_what_is_new_is_written() -> None:
    messages = sent("u1", ">a1", "u2")
    found = fit(log("u1", ">a1"), messages)
    assert found is not None
    place = found.place_behind(messages, "s2")
    assert (place.session_id, [message.content for message in place.new]) == ("s2", ["u2"])
    assert [turn.text for turn in place.shown] == ["u1", "a1"]


def test_a_reply_asked_for_again_behind_a_session_that_is_over_takes_its_user_turn_along() -> None:
    messages = sent("u1", ">a1", "u2")
    found = fit(log("u1", ">a1", "u2", ">a2"), messages)
    assert found is not None
    place = found.place_behind(messages, "s2")
    assert [message.content for message in place.new] == ["u2"]
    assert [turn.text for turn in place.shown] == ["u1", "a1"]


def test_the_session_that_shares_most_wins_then_the_latest() -> None:
    messages = sent("u1", ">b1", "u2")
    other, same = log("u1", ">a1", name="other"), log("u1", ">b1", name="same")
    found = best([same, other], messages)
    assert found is not None
    assert found.session.id == "same"
    twins = [session("u1", "b1", name="early"), session("u1", "b1", name="late", start=START.replace(hour=20))]
    found = best(reversed(twins), messages)
    assert found is not None
    assert found.session.id == "late"


class Window:
    """A chat window and the log behind it, which grows by what is found new in the dialogue that the window shows."""

    def __init__(self) -> None:
        self.shown: list[Message] = []
        self.log: list[Message] = []
        self.count = 0

    def word(self) -> str:
        self.count += 1
        return f"w{self.count}"

    def say(self, text: str, cut: int = 0) -> None:
        self.shown.append(Message("user", text))
        self.send(cut)

    def again(self) -> None:
        if self.shown and self.shown[-1].role == "assistant":
            self.shown.pop()
            self.send()

    def edit(self, index: int) -> None:
        users = [at for at, message in enumerate(self.shown) if message.role == "user"]
        if len(users) > 1:
            del self.shown[users[1 + index % (len(users) - 1)] :]
            self.say(self.word())

    def edit_reply(self) -> None:
        if self.shown and self.shown[-1].role == "assistant":
            self.shown[-1] = Message("assistant", self.word())
            self.say(self.word())

    def send(self, cut: int = 0) -> None:
        kept = self.shown[cut:] if cut < len(self.shown) - 2 else self.shown
        turns = log(*(f"{'>' * (m.role == 'assistant')}{m.content}" for m in self.log)) if self.log else None
        found = fit(turns, kept) if turns else None
        assert (found is None) == (turns is None)
        self.log += found.place(kept).new if found else kept
        reply = Message("assistant", self.word())
        self.log.append(reply)
        self.shown.append(reply)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 4)),
        st.tuples(st.just("again"), st.just(0)),
        st.tuples(st.just("edit"), st.integers(0, 9)),
        st.tuples(st.just("edit_reply"), st.just(0)),
    ),
    max_size=12,
)


@given(steps)
@settings(max_examples=300, deadline=None)
def test_whatever_a_window_does_each_thing_said_is_in_the_log_once_and_in_order(done: list[tuple[str, int]]) -> None:
    window = Window()
    window.say(window.word())
    for step, number in done:
        match step:
            case "say":
                window.say(window.word(), number)
            case "again":
                window.again()
            case "edit":
                window.edit(number)
            case _:
                window.edit_reply()
    said = [message.content for message in window.log]
    assert len(said) == len(set(said))
    assert said == sorted(said, key=lambda text: int(text[1:]))
