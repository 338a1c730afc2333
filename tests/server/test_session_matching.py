"""Matching messages to sessions: a table of cases, and a simulated client that does all a chat window allows."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localmem.server.client_tasks import ClientMessage
from localmem.server.session_matching import Match, best_match, find_unlogged, match_session
from localmem.types import Message, Role, Session
from tests.fakes import START, session


def sent(*texts: str) -> list[Message]:
    """User and assistant in turn, as a client resends them; a text that begins with > is the assistant's."""
    return [Message("assistant" if text.startswith(">") else "user", text.removeprefix(">")) for text in texts]


def log(*texts: str, name: str = "s1") -> Session:
    turns = session(*texts, name=name).turns
    roles: list[Role] = ["assistant" if text.startswith(">") else "user" for text in texts]
    with_roles = [
        type(turn)(turn.id, role, role.capitalize(), turn.text.removeprefix(">"), turn.time)
        for turn, role in zip(turns, roles, strict=True)
    ]
    return Session(name, tuple(with_roles))


def new_texts(match: Match | None, messages: Sequence[Message]) -> list[str] | None:
    return None if match is None else [message.content for message in match.continuation(messages).new]


LONG = ("u1", ">a1", "u2", ">a2", "u3", ">a3")

CASES = [
    # log, messages sent, messages that are new (None: no match)
    ("continuation", ("u1", ">a1"), ("u1", ">a1", "u2"), ["u2"]),
    ("longer continuation", LONG, (*LONG, "u4"), ["u4"]),
    ("white space", ("u1 b", ">a  1\n"), (" u1  b", ">a 1", "u2"), ["u2"]),
    ("another Unicode form", ("caf\u00e9", ">a1"), ("cafe\u0301", ">a1", "u2"), ["u2"]),
    ("old messages cut", LONG, ("u3", ">a3", "u4"), ["u4"]),
    ("cut to the last reply", LONG, (">a3", "u4"), ["u4"]),
    ("dialogue began in a closed session", ("u2", ">a2"), ("u1", ">a1", "u2", ">a2", "u3"), ["u3"]),
    ("the same words again", ("yes", ">ok"), ("yes", ">ok", "yes"), ["yes"]),
    ("the same words a third time", ("yes", ">ok", "yes", ">ok"), ("yes", ">ok", "yes", ">ok", "yes"), ["yes"]),
    ("two new messages", ("u1", ">a1"), ("u1", ">a1", "u2", "u3"), ["u2", "u3"]),
    ("a reply of another model in between", ("u1", ">a1"), ("u1", ">a1", "u2", ">x", "u3"), ["u2", "x", "u3"]),
    ("retry, answered", ("u1", ">a1"), ("u1",), []),
    ("retry, unanswered", ("u1",), ("u1",), []),
    ("retry, later", LONG, ("u1", ">a1", "u2", ">a2", "u3"), []),
    ("retry, in the middle", LONG, ("u1", ">a1", "u2"), ["u2"]),
    ("continuation after a retry in the middle", (*LONG, "u2", ">b2"), ("u1", ">a1", "u2", ">b2", "u3"), ["u3"]),
    ("retry, cut", LONG, (">a2", "u3"), []),
    ("retry, dialogue began elsewhere", ("u2", ">a2"), ("u1", ">a1", "u2"), []),
    ("retry, the same words twice", ("yes", ">ok", "yes", ">ok"), ("yes", ">ok", "yes"), []),
    ("after a retry", ("u1", ">a1", ">b1"), ("u1", ">b1", "u2"), ["u2"]),
    ("after a retry, the first reply chosen", ("u1", ">a1", ">b1"), ("u1", ">a1", "u2"), ["u2"]),
    ("last reply edited", ("u1", ">a1"), ("u1", ">mine", "u2"), ["u2"]),
    ("an earlier reply edited", ("u1", ">a1", "u2", ">a2"), ("u1", ">mine", "u2", ">a2", "u3"), ["u3"]),
    ("every reply changed", LONG, ("u1", ">A", "u2", ">B", "u3", ">C", "u4"), ["u4"]),
    ("an earlier message edited", LONG, ("u1", ">a1", "v2"), ["v2"]),
    ("continuation after an edited message", (*LONG, "v2", ">b2"), ("u1", ">a1", "v2", ">b2", "v3"), ["v3"]),
    ("the last message edited, unanswered", ("u1", ">a1", "u2"), ("u1", ">a1", "v2"), ["v2"]),
    ("another dialogue", LONG, ("w1", ">z1", "w2"), None),
    ("a first message", LONG, ("w1",), None),
    ("a first message like the first of a longer one", LONG, ("u1",), None),
    ("a first message like the last of a longer one", LONG, ("u3",), None),
    ("another dialogue with the same first words", ("u1", ">a1"), ("u1", ">z", "w2", ">z2", "w3"), None),
    ("empty log", (), ("u1",), None),
]


@pytest.mark.parametrize(("logged", "texts", "new"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_new_messages(logged: tuple[str, ...], texts: tuple[str, ...], new: list[str] | None) -> None:
    messages = sent(*texts)
    assert new_texts(match_session(log(*logged), messages), messages) == new


NAMED = [
    ("only the last message", LONG, ("u4",), ["u4"]),
    ("the whole dialogue", LONG, (*LONG, "u4"), ["u4"]),
    ("the same words again", (*LONG, "yes", ">ok"), ("yes",), ["yes"]),
    ("sent again after a failure", (*LONG, "u4"), ("u4",), []),
    ("another dialogue under the same name", LONG, ("w1",), ["w1"]),
    ("retry, in the middle", LONG, ("u1", ">a1", "u2"), ["u2"]),
    ("retry, of the first", LONG, ("u1",), ["u1"]),
    ("edited, dialogue began elsewhere", ("u2", ">a2"), ("u1", ">a1", "u2", ">x", "u3"), ["u3"]),
]


@pytest.mark.parametrize(("logged", "texts", "new"), [case[1:] for case in NAMED], ids=[case[0] for case in NAMED])
def test_new_messages_of_a_named_session(logged: tuple[str, ...], texts: tuple[str, ...], new: list[str]) -> None:
    messages = sent(*texts)
    assert new_texts(match_session(log(*logged), messages, is_named=True), messages) == new


def context_texts(match: Match | None, messages: Sequence[Message]) -> list[str]:
    assert match is not None
    return [turn.text for turn in match.continuation(messages).context]


def test_the_model_sees_the_log_before_the_clients_cut() -> None:
    messages = sent("u3", ">a3", "u4")
    assert context_texts(match_session(log(*LONG), messages), messages) == ["u1", "a1", "u2", "a2", "u3", "a3"]


def test_a_retried_reply_is_not_shown() -> None:
    messages = sent("u1", ">a1", "u2")
    match = match_session(log("u1", ">a1", "u2", ">a2"), messages)
    assert context_texts(match, messages) == ["u1", "a1", "u2"]
    assert match is not None
    assert match.continuation(messages).context[-1].id == "s1.2"


def test_an_earlier_reply_that_is_retried_gets_its_question_again() -> None:
    messages = sent("u1", ">a1", "u2")
    match = match_session(log(*LONG), messages, is_named=True)
    assert context_texts(match, messages) == ["u1", "a1"]
    assert match is not None
    assert match.continuation(messages).session_id == "s1"


def test_the_model_sees_the_clients_edit() -> None:
    messages = sent("u1", ">mine", "u2")
    assert context_texts(match_session(log("u1", ">a1"), messages), messages) == ["u1", "mine"]


def test_the_last_reply_to_a_turn_is_shown_by_default() -> None:
    messages = sent("u2")
    assert context_texts(match_session(log("u1", ">a1", ">b1"), messages, is_named=True), messages) == ["u1", "b1"]


def test_only_new_messages_go_into_the_session_after_a_closed_one() -> None:
    messages = sent("u1", ">a1", "u2")
    match = match_session(log("u1", ">a1"), messages)
    assert match is not None
    continuation = match.continuation_in("s2", messages)
    assert (continuation.session_id, [message.content for message in continuation.new]) == ("s2", ["u2"])
    assert [turn.text for turn in continuation.context] == ["u1", "a1"]


def test_a_retry_after_a_closed_session_repeats_the_user_turn() -> None:
    messages = sent("u1", ">a1", "u2")
    match = match_session(log("u1", ">a1", "u2", ">a2"), messages)
    assert match is not None
    continuation = match.continuation_in("s2", messages)
    assert [message.content for message in continuation.new] == ["u2"]
    assert [turn.text for turn in continuation.context] == ["u1", "a1"]


def test_the_session_that_shares_most_messages_wins_then_the_latest() -> None:
    messages = sent("u1", ">b1", "u2")
    other, same = log("u1", ">a1", name="other"), log("u1", ">b1", name="same")
    match = best_match([same, other], messages)
    assert match is not None
    assert match.session.id == "same"
    twins = [session("u1", "b1", name="early"), session("u1", "b1", name="late", start=START.replace(hour=20))]
    match = best_match(reversed(twins), messages)
    assert match is not None
    assert match.session.id == "late"


def test_of_the_sessions_of_a_resumed_dialogue_the_last_one_wins() -> None:
    messages = sent(*LONG, "u4", ">a4", "u5")
    match = best_match([log("u4", ">a4", name="resumed"), log(*LONG, name="first")], messages)
    assert new_texts(match, messages) == ["u5"]


PRIVATE = [
    # sent, where * marks a private message and - one without words; what is not logged, and by what it is known
    (("u1", ">a1", "u2"), [], set()),
    (("*my pin is 4711", ">noted", "u2"), [0, 1], {"pin", "4711", "noted"}),
    (("my pin", "*my pin is 4711", ">noted", "u2", ">4711!", "u3"), [1, 2, 4], {"4711", "noted"}),
    (("*my pin is 4711", ">noted", "what is 4711", ">4711!", "u3"), [0, 1], {"pin", "noted"}),
    (("*my pin is 4711", ">noted", "*my pin is 4711"), [0, 1], {"noted"}),
    (("-a file about bees", ">read", "u2", ">bees", "u3"), [0, 1], set()),
    (("*logged anyway", ">logged reply", "u2"), [], set()),
]


@pytest.mark.parametrize(("texts", "unlogged", "words"), PRIVATE)
def test_what_is_not_logged(texts: tuple[str, ...], unlogged: list[int], words: set[str]) -> None:
    messages = sent(*(text.lstrip("*-") for text in texts))
    private = {
        Message(message.role, message.content)
        for message, text in zip(messages, texts, strict=True)
        if text.startswith("*")
    }
    client = [
        ClientMessage(message, None if text.startswith("-") else message.content)
        for message, text in zip(messages, texts, strict=True)
    ]
    if client[0].words is None:
        client[1] = client[1]._replace(words=None)  # so is the reply to it
    opened = [log("logged anyway", ">logged reply")]
    result = find_unlogged(client, private, opened)
    assert [index for index, flag in enumerate(result.flags) if flag] == unlogged
    assert result.words == words


class Window:
    """A chat window, and the log, which grows by the messages that match as new."""

    def __init__(self) -> None:
        self.dialogue: list[Message] = []
        self.log: list[Message] = []
        self.count = 0

    def word(self) -> str:
        self.count += 1
        return f"w{self.count}"

    def say(self, text: str, cut: int = 0) -> None:
        self.dialogue.append(Message("user", text))
        self.send(cut)

    def retry(self) -> None:
        if self.dialogue and self.dialogue[-1].role == "assistant":
            self.dialogue.pop()
            self.send()

    def edit(self, index: int) -> None:
        users = [at for at, message in enumerate(self.dialogue) if message.role == "user"]
        if len(users) > 1:
            del self.dialogue[users[1 + index % (len(users) - 1)] :]
            self.say(self.word())

    def edit_reply(self) -> None:
        if self.dialogue and self.dialogue[-1].role == "assistant":
            self.dialogue[-1] = Message("assistant", self.word())
            self.say(self.word())

    def send(self, cut: int = 0) -> None:
        messages = self.dialogue[cut:] if cut < len(self.dialogue) - 2 else self.dialogue
        turns = log(*(f"{'>' * (m.role == 'assistant')}{m.content}" for m in self.log)) if self.log else None
        match = match_session(turns, messages) if turns else None
        assert (match is None) == (turns is None)
        self.log += match.continuation(messages).new if match else messages
        reply = Message("assistant", self.word())
        self.log.append(reply)
        self.dialogue.append(reply)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 4)),
        st.tuples(st.just("retry"), st.just(0)),
        st.tuples(st.just("edit"), st.integers(0, 9)),
        st.tuples(st.just("edit_reply"), st.just(0)),
    ),
    max_size=12,
)


@given(steps)
@settings(max_examples=300, deadline=None)
def test_the_log_holds_each_message_once_and_in_order(actions: list[tuple[str, int]]) -> None:
    window = Window()
    window.say(window.word())
    for action, number in actions:
        match action:
            case "say":
                window.say(window.word(), number)
            case "retry":
                window.retry()
            case "edit":
                window.edit(number)
            case _:
                window.edit_reply()
    texts = [message.content for message in window.log]
    assert len(texts) == len(set(texts))
    assert texts == sorted(texts, key=lambda text: int(text[1:]))
