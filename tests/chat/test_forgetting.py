"""Forgetting at a request on a real store: gone from every recall at once and for good, and brought back when asked."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from localmem.chat import forgetting_replies
from localmem.chat.conversation import Conversation
from localmem.chat.forgetting_replies import language_of_request, replies_to
from localmem.config import load_settings
from localmem.errors import NotFound
from localmem.files import read_yaml
from localmem.llm.base import drain
from localmem.llm.scripted import ScriptedLLM
from localmem.runtime import Runtime
from localmem.turns.forget_requests import request_about
from localmem.turns.restore_requests import is_undo_request
from localmem.types import Hide, Message, Prompt, Recall, Session, Turn
from tests.fakes import START, WordEncoder, session, turns

SECRET = "My friend Marek lent me 4300 euros for the boat."
QUESTION = "How much money did my friend lend me for the boat?"
REQUEST = "Please forget what I told you about my friend and the boat"


def _answer(prompt: Prompt) -> str:
    """A summary that holds each fact it was shown, else a reply that repeats nothing."""
    text = " ".join(message.content for message in prompt.messages)
    facts = [fact for fact in ("Marek lent 4300 euros.", "Ana has a cat.") if fact.split()[0] in text]
    return " ".join(facts) if prompt.name == "rsum/update" else "I see."


Open = Callable[[str], Runtime]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Open]:
    """Opens the same data with any system; one at a time."""
    opened: list[Runtime] = []

    def open_(system: str) -> Runtime:
        for runtime in opened:
            runtime.close()
        settings = load_settings(flags={"data": tmp_path, "system": system, "user": "ana"})
        opened[:] = [Runtime(settings, llm=ScriptedLLM(_answer), encoder=WordEncoder())]
        return opened[0]

    yield open_
    for runtime in opened:
        runtime.close()


def _recall(runtime: Runtime, text: str = QUESTION) -> Recall:
    turn = Turn("probe.0", "user", "User", text, START + timedelta(days=9))
    return runtime.agent("ana").memory.recall(Session("probe", (turn,)))


def _tell(agent: Conversation, *texts: str, day: int = 0) -> str:
    """One session, which ends; returns the last reply."""
    reply = ""
    for minute, text in enumerate(texts):
        reply = agent.chat(text, START + timedelta(days=day, minutes=minute)).turn.text
    agent.end_session()
    return reply


def _rebuild(runtime: Runtime) -> None:
    runtime.store.clear("ana", runtime.settings.system)
    runtime.forget_agent("ana")
    for job in runtime.waiting_jobs("ana"):
        assert runtime.remember(job, replay=True)


@pytest.mark.parametrize("system", ["evidence", "full_history"])
def test_what_was_told_in_an_earlier_session_is_gone(start: Open, system: str) -> None:
    runtime = start(system)
    _tell(runtime.agent("ana"), SECRET, "My cat is called Ponto.")
    assert "4300" in _recall(runtime).text
    reply = _tell(runtime.agent("ana"), REQUEST, day=1)
    assert "Hidden" in reply
    assert "4300" not in reply
    assert "4300" not in _recall(runtime).text
    assert "Ponto" in _recall(runtime, "What is my cat called?").text
    _rebuild(runtime)
    assert "4300" not in _recall(runtime).text
    assert "4300" not in _recall(start(system)).text


def test_a_memory_of_the_whole_session_is_made_again_without_it(start: Open) -> None:
    runtime = start("secom")  # the script segments nothing, so a session is one unit
    _tell(runtime.agent("ana"), SECRET, "My cat is called Ponto.")
    assert "localmem rebuild" in _tell(runtime.agent("ana"), REQUEST, day=1)
    assert _recall(runtime).text == ""
    _rebuild(runtime)
    assert "Ponto" in _recall(runtime, "What is my cat called?").text
    assert "4300" not in _recall(runtime).text


def test_another_system_does_not_learn_it_from_the_log(start: Open) -> None:
    _tell(start("evidence").agent("ana"), SECRET, "My cat is called Ponto.", REQUEST)
    runtime = start("full_history")
    _rebuild(runtime)
    assert "Ponto" in _recall(runtime).text
    assert "4300" not in _recall(runtime).text


def test_what_was_just_said_is_gone_before_its_session_ends(start: Open) -> None:
    runtime = start("full_history")
    agent = runtime.agent("ana")
    agent.chat("The lock of the shed is 7316.", START)
    agent.chat("forget what i just told you", START)
    answer = agent.chat("What is the lock of the shed?", START)
    assert not any("7316" in message.content for message in answer.prompt.messages)
    agent.end_session()
    assert "7316" not in _recall(runtime, "the lock of the shed").text


def test_it_understands_that_in_chinese(start: Open) -> None:
    runtime = start("full_history")
    _tell(runtime.agent("ana"), "我家猫的名字叫根号", "门锁我设成了861024", "你把这串数字忘掉吧")
    assert "861024" not in _recall(runtime).text
    assert "根号" in _recall(runtime).text


def test_a_reply_that_repeats_it_goes_too(start: Open) -> None:
    runtime = start("full_history")
    past = session(SECRET, "4300 euros is a lot.", "My cat is called Ponto.", "A fine name.")
    runtime.agent("ana").writer.read([past])
    _tell(runtime.agent("ana"), REQUEST, day=1)
    assert [turn in runtime.agent("ana").memory.bank.hidden for turn in ("s1.0", "s1.1", "s1.2")] == [True, True, False]


def test_every_reply_that_repeats_it_goes_too(start: Open) -> None:
    runtime = start("full_history")
    past = session(SECRET, "I see.", "My cat is called Ponto.", "A fine name.")
    again = replace(past.turns[1], id="s1.1b", text="Marek is generous.")
    repeated = replace(past, turns=(*past.turns[:2], again, *past.turns[2:]))
    runtime.agent("ana").writer.read([repeated])
    _tell(runtime.agent("ana"), REQUEST, day=1)
    hidden = runtime.agent("ana").memory.bank.hidden
    assert [turn.id in hidden for turn in repeated.turns] == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("My boat is called Petrel.", "Forget the name of my boat."),
        ("My car is red.", "Forget the colour of my car"),
        ("I live in Belem.", "Forget where I live."),
        ("Clara was ill in May.", "Forget Clara."),
    ],
)
def test_a_plain_request_is_enough(start: Open, text: str, request_: str) -> None:
    runtime = start("evidence")
    _tell(runtime.agent("ana"), text, "I had soup for lunch.")
    reply = _tell(runtime.agent("ana"), "Good morning.", request_, day=1)
    assert text in reply
    assert [unit.text for unit in runtime.agent("ana").memory.bank.live() if text in unit.text] == []


@pytest.mark.parametrize("system", ["evidence", "full_history", "exchange_retrieval"])
def test_a_reply_to_what_is_hidden_is_neither_shown_nor_remembered(start: Open, system: str) -> None:
    runtime = start(system)
    agent = runtime.agent("ana")
    messages = [
        Message("user", "I see Dr Marlow, my therapist."),
        Message("assistant", "So your therapist is Dr Marlow."),
    ]
    agent.log_turns(messages, START)
    agent.writer.commit("hide:1", [Hide(agent.sessions[0].turns[0].id, "hide-1", START)])
    reply = agent.chat("Good morning.", START)
    assert not any("Marlow" in message.content for message in reply.prompt.messages)
    agent.end_session()
    assert "Marlow" not in _recall(runtime, "Who is my therapist?").text
    _rebuild(runtime)
    assert "Marlow" not in _recall(runtime, "Who is my therapist?").text


def test_the_reply_to_a_request_is_hidden_though_it_was_broken_off(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, SECRET)
    request = agent.log_turns(REQUEST, START + timedelta(days=1)).turns[-1]
    pieces = agent.reply(request.id.rpartition(".")[0])
    next(pieces)
    pieces.close()
    assert agent.sessions[0].turns[-1].id in agent.memory.bank.hidden
    agent.end_session()
    assert list(agent.memory.bank.live()) == []


@pytest.mark.parametrize("broken_off", [False, True])
def test_a_request_that_is_sent_again_hides_nothing_more(start: Open, *, broken_off: bool) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, "My dentist is Dr Okafor on Elm Street.", "My dentist appointment is at nine.")
    dialogue = agent.log_turns("Forget what I told you about the dentist appointment.", START + timedelta(days=1))
    pieces = agent.reply(dialogue.id, dialogue=dialogue)
    next(pieces)
    pieces.close() if broken_off else drain(pieces)
    hidden = {item for item in agent.memory.bank.hidden if item != agent.sessions[0].turns[-1].id}
    again = drain(agent.reply(dialogue.id, dialogue=dialogue))
    assert "appointment" in again.turn.text
    assert "Okafor" not in again.turn.text
    replies = {turn.id for turn in agent.sessions[0].turns if turn.role == "assistant"}
    assert agent.memory.bank.hidden.keys() - replies == hidden
    assert agent.memory.bank.hidden.keys() == runtime.store.bank("ana", "evidence").hidden.keys()


def test_it_is_brought_back(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, SECRET)
    agent.chat(REQUEST, START + timedelta(days=1))
    assert "4300" not in _recall(runtime).text
    agent.chat("undo that", START + timedelta(days=1))
    assert "4300" in _recall(runtime).text
    agent.end_session()
    _rebuild(runtime)
    assert "4300" in _recall(runtime).text
    assert "Hidden" not in _recall(runtime, REQUEST).text


@pytest.mark.parametrize(
    "text",
    [
        "Don't store this, my salary is 80k.",
        "Please don't remember this, but I think my boss is cheating on his wife.",
        "My PIN is 4471. Don't remember this.",
        "my locker code is 4471 dont remember this",
    ],
)
def test_only_the_message_that_is_not_to_be_kept_is_hidden(start: Open, text: str) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    reply = _tell(agent, "I am allergic to walnuts.", text)
    assert "walnuts" not in reply
    assert "Hidden" in reply
    assert ["walnuts" in unit.text for unit in agent.memory.bank.live()] == [True]


@pytest.mark.parametrize("request_", ["Forget the last thing I said.", "forget my last message"])
def test_the_last_words_are_hidden_and_not_what_holds_such_a_word(start: Open, request_: str) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, "My last job was at Boeing, they sent a message.")
    assert "What should I forget?" in _tell(agent, request_, day=1)
    assert "crush" in _tell(agent, "I have a crush on Anna.", request_, day=2)
    assert ["Boeing" in unit.text for unit in agent.memory.bank.live()] == [True]


def test_all_about_somebody_is_hidden_whenever_it_was_said(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, "Colin is a plumber.", "I have a dog.")
    _tell(agent, "Colin rang me.", "Forget everything you know about Colin.", day=1)
    assert ["dog" in unit.text for unit in agent.memory.bank.live()] == [True]


@pytest.mark.parametrize("request_", ["forget about callum", "pls forget callum"])
def test_a_name_in_lower_case_is_forgotten_if_something_introduces_it(start: Open, request_: str) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    assert _tell(agent, "had dinner with priya", request_, "forget about dinner") == "I see."
    assert "Hidden" in _tell(agent, "got a date with a guy called callum", request_, day=1)
    assert not any("callum" in unit.text for unit in agent.memory.bank.live())


@pytest.mark.parametrize(
    "request_", ["Forget what I said about Agnes's age.", "Please do not keep what I said of Agnes's age"]
)
def test_an_age_is_looked_for_where_there_is_a_number(start: Open, request_: str) -> None:
    agent = start("evidence").agent("ana")
    _tell(agent, "My sister Agnes is eighty-one.", "Agnes says that I am becoming bearable.")
    assert "eighty" in _tell(agent, request_, day=1)
    assert ["bearable" in unit.text for unit in agent.memory.bank.live()] == [True]


def _forget_by_command(agent: Conversation, text: str, minute: int) -> None:
    turn = Turn(f"forget-{minute}", "user", "User", text, START + timedelta(minutes=minute))
    agent.writer.forget(agent.writer.forgetting.forget(request_about(text), turn, Session(turn.id, (turn,))))


@pytest.mark.parametrize("before", [[], ["Good morning."], [REQUEST]])
def test_what_a_command_hid_is_brought_back(start: Open, before: Sequence[str]) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, SECRET, "My dog is called Bramble.")
    for text in before:
        agent.chat(text, START + timedelta(minutes=5))
    _forget_by_command(agent, "Bramble", 6)
    assert "Bramble" not in _recall(runtime, "What is my dog called?").text
    assert "It is back" in agent.chat("undo that", START + timedelta(minutes=7)).turn.text
    assert "Bramble" in _recall(runtime, "What is my dog called?").text
    assert ("4300" in _recall(runtime).text) is (REQUEST not in before)
    assert "nothing to undo" in agent.chat("undo that", START + timedelta(minutes=8)).turn.text


@pytest.mark.parametrize(
    ("between", "request_", "is_back"),
    [
        (["What is my PIN?"], "undo that", True),
        (["What is my PIN?", "do you know it"], "bring that back please", True),
        (["What is the capital of France?"], "remember that", False),
        (["My dog is called Bramble."], "undo that", False),
    ],
)
def test_a_forgetting_is_taken_back_after_questions(
    start: Open, between: Sequence[str], request_: str, *, is_back: bool
) -> None:
    agent = start("evidence").agent("ana")
    reply = _tell(agent, "My PIN is 4471.", "Forget my PIN.", *between, request_)
    assert ("It is back" in reply) is is_back
    assert any("4471" in unit.text for unit in agent.memory.bank.live()) is is_back


def test_the_last_words_are_brought_back_though_they_were_hidden_on_the_page(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    words = agent.chat(SECRET, START)
    agent.writer.commit("hide:1", [Hide(agent.sessions[0].turns[0].id, "hide-1", words.turn.time)])
    assert "It is back" in agent.chat("undo that", START + timedelta(minutes=1)).turn.text
    assert "4300" in _recall(runtime).text


def test_what_was_hidden_before_something_else_was_said_stays_away(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, SECRET)
    _forget_by_command(agent, "the boat", 6)
    agent.chat("Good morning.", START + timedelta(minutes=7))
    assert "nothing to undo" in agent.chat("undo that", START + timedelta(minutes=8)).turn.text
    assert "4300" not in _recall(runtime).text


def test_what_was_said_with_the_request_is_brought_back(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    agent.chat("The lock of the shed is 7316. Forget that please.", START)
    assert "7316" not in _recall(runtime, "What is the lock of the shed?").text
    assert "It is back" in agent.chat("undo that", START + timedelta(minutes=1)).turn.text
    agent.end_session()
    assert "7316" in _recall(runtime, "What is the lock of the shed?").text
    _rebuild(runtime)
    assert "7316" in _recall(runtime, "What is the lock of the shed?").text


@pytest.mark.parametrize("text", ["undo that", "Undo it please", "annule ça"])
def test_nothing_to_undo_is_said_without_a_backbone_and_not_remembered(start: Open, text: str) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    agent.chat(SECRET, START)
    reply = agent.chat(text, START)
    assert reply.turn.text == replies_to(text).not_hidden
    assert "4300" in _recall(runtime).text
    agent.end_session()
    assert {unit.text for unit in agent.memory.bank.live() if "ndo" in unit.text or "annule" in unit.text} == set()


@pytest.mark.parametrize(
    ("statement", "request_", "hidden", "undo"),
    [
        ("Meine PIN ist 4471.", "Lösch bitte meine PIN.", "was du am 2. März 2026", "nein mach das doch rückgängig"),
        ("Мой пин-код 4471.", "Забудь мой код", "Скрыто: твои слова от 2 марта 2026", "верни, пожалуйста"),
        ("房租是4471。", "忘掉我说的房租", "已隐藏：你在2026年3月2日说的", "还是撤销吧"),
        ("رقمي السري 4471.", "انس ما قلته عن رقمي السري", "أخفيت ما قلته في 2 مارس 2026", "تراجع عن ذلك"),
    ],
)
def test_the_replies_are_in_the_language_of_the_request(
    start: Open, statement: str, request_: str, hidden: str, undo: str
) -> None:
    agent = start("evidence").agent("ana")
    agent.chat(statement, START)
    reply = agent.chat(request_, START).turn.text
    before, after = replies_to(request_).how_to_go_on.split("{commands}")
    assert hidden in reply
    assert f"{before}`localmem forget --unit " in reply
    assert reply.endswith(f" (page: Memory, Filters, Hidden or replaced){after}")
    assert not any("4471" in unit.text for unit in agent.memory.bank.live())
    assert agent.chat(undo, START).turn.text == replies_to(request_).restored
    assert any("4471" in unit.text for unit in agent.memory.bank.live())


def test_every_language_says_how_to_take_a_forgetting_back() -> None:
    table: dict[str, Any] = read_yaml(Path(forgetting_replies.__file__).with_suffix(".yaml"))
    for language, phrases in table.items():
        undo = re.search(r"[\"“「](.+?)[\"”」]", phrases["how_to_go_on"])
        assert undo
        assert is_undo_request(undo[1])
        assert language_of_request(undo[1]) == language
    requests: dict[str, Any] = read_yaml(Path("tests/turns/foreign_forget_requests.yaml"))
    for language, lines in requests.items():
        texts = lines["request"] if isinstance(lines, dict) else []
        assert {language_of_request(text) for text in texts} <= {language}


def test_to_remember_something_undoes_nothing(start: Open) -> None:
    agent = start("evidence").agent("ana")
    agent.chat(SECRET, START)
    assert "undo" not in agent.chat("remember that", START).turn.text


def test_what_is_said_after_a_request_in_an_added_session_stays(start: Open) -> None:
    runtime = start("full_history")
    texts = (SECRET, "I see.", REQUEST, "Done.", "My friend Marek painted the boat.", "Nice.")
    runtime.agent("ana").writer.read([Session("s1", tuple(replace(turn, time=START) for turn in turns(*texts)))])
    recall = _recall(runtime).text
    assert "painted the boat" in recall
    assert "4300" not in recall


def test_one_batch_is_undone_and_not_carried_out_again(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, SECRET)
    request = agent.log_turns(REQUEST, START + timedelta(days=1)).turns[-1]
    for _ in agent.reply(request.id.rpartition(".")[0]):
        pass
    agent.end_session()
    runtime.store.undo_batch("ana", "evidence", f"forget:{request.id}")
    runtime.forget_agent("ana")
    assert "4300" in _recall(runtime).text
    _rebuild(runtime)
    assert "4300" in _recall(runtime).text
    with pytest.raises(NotFound, match="no batch 'forget:nothing'"):
        runtime.store.undo_batch("ana", "evidence", "forget:nothing")


def test_what_was_hidden_is_erased(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, SECRET, "My cat is called Ponto.")
    request = agent.log_turns(REQUEST, START + timedelta(days=1)).turns[-1]
    for _ in agent.reply(request.id.rpartition(".")[0]):
        pass
    receipt = runtime.store.delete_units("ana", "evidence", request.id)
    assert receipt.remaining == 0
    assert not any("4300" in line for line in runtime.store.export("ana"))
    assert any("Ponto" in line for line in runtime.store.export("ana"))


def test_a_request_that_follows_an_erased_one_is_stored(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    agent.chat("My locker code at the gym is 48213.", START)
    agent.chat(SECRET, START)
    agent.chat("Please forget what I told you about the locker code.", START)
    request = agent.sessions[-1].turns[-2].id
    runtime.store.delete_units("ana", "evidence", request)
    runtime.forget_agent("ana")
    agent = runtime.agent("ana")
    agent.chat(REQUEST, START)
    assert agent.sessions[-1].turns[-2].id == request
    assert request in runtime.store.bank("ana", "evidence").hidden


def test_words_beside_the_request_say_what_is_meant(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, "Everything with Marek fell apart in May.", "My cat is called Ponto.")
    reply = _tell(agent, "I never want to hear of Marek again. Please forget everything about that friendship.", day=1)
    assert "Hidden" in reply
    assert "May" not in _recall(runtime, "What happened with Marek in May?").text
    assert "Ponto" in _recall(runtime, "What is my cat called?").text


def test_other_words_for_it_are_asked_about(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, "My cat is called Ponto and needs 20 pills.")
    request = "Please forget my rusty wicker travel basket with a broken lid for a cat."
    reply = _tell(agent, request, day=1)
    assert "which did you mean?" in reply
    assert "Ponto and needs # pills" in reply
    assert "Ponto" in _recall(runtime, "What is my cat called?").text


@pytest.mark.parametrize("request_", ["Forget what I said about the boat.", "oublie ce que je t'ai dit sur le boat"])
def test_a_topic_of_one_word_is_what_is_forgotten_not_what_was_said_last(start: Open, request_: str) -> None:
    runtime = start("evidence")
    _tell(runtime.agent("ana"), SECRET)
    _tell(runtime.agent("ana"), "I had soup for lunch today.", request_, day=1)
    assert "4300" not in _recall(runtime).text
    assert "soup" in _recall(runtime, "What did I have for lunch?").text


def test_a_topic_that_nobody_spoke_of_hides_nothing(start: Open) -> None:
    runtime = start("evidence")
    reply = _tell(runtime.agent("ana"), SECRET, "Thank you!", "Forget what I said about Porto.")
    assert "I remember nothing like that" in reply
    reply = _tell(runtime.agent("ana"), "The lock is 7316.", "Forget what I just told you, it was stupid.", day=1)
    assert "The lock is #" in reply


def test_a_summary_loses_the_sentence(start: Open) -> None:
    runtime = start("rsum")
    agent = runtime.agent("ana")
    _tell(agent, SECRET, "Ana has a cat.")
    assert _recall(runtime).text == "Marek lent 4300 euros.\nAna has a cat."
    assert "summary" in _tell(agent, REQUEST, day=1)
    assert _recall(runtime).text == "Ana has a cat."
    _rebuild(runtime)
    assert _recall(runtime).text == "Ana has a cat."


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("forget it", "What should I forget?"),
        ("forget what i said", "What should I forget?"),
        ("please forget what I told you about the lighthouse", "I remember nothing like that"),
        ("erase everything you know about me", "localmem forget --all"),
    ],
)
def test_it_asks_back(start: Open, text: str, reply: str) -> None:
    runtime = start("evidence")
    _tell(runtime.agent("ana"), SECRET)
    assert reply in _tell(runtime.agent("ana"), text, day=1)
    assert "4300" in _recall(runtime).text


def test_many_matches_are_listed(start: Open) -> None:
    runtime = start("evidence")
    rooms = [f"My boss moved us to room {number}." for number in range(11, 17)]
    _tell(runtime.agent("ana"), *rooms)
    reply = _tell(runtime.agent("ana"), "please forget what I told you about my boss", day=1)
    assert "Several things match" in reply
    assert reply.count("My boss moved us") == len(rooms)
    assert len(runtime.agent("ana").memory.bank.hidden) == 2, "the request and this reply"


def test_a_reply_that_is_logged_nowhere_changes_nothing(start: Open) -> None:
    runtime = start("evidence")
    agent = runtime.agent("ana")
    _tell(agent, SECRET)
    request = Session("aside", (Turn("aside.0", "user", "User", REQUEST, START + timedelta(days=1)),))
    assert "Nothing was hidden" in agent.responder.answer(request).turn.text
    assert "4300" in _recall(runtime).text


def test_words_that_begin_alike_are_not_the_topic(start: Open) -> None:
    runtime = start("full_history")
    texts = ["I started therapy with Dr Bell.", "My sister lives in Lyon, I go there in June."]
    texts += ["There is a nice bakery near my flat.", "I have a dog."]
    _tell(runtime.agent("ana"), *texts, "forget what I said about my therapy")
    recalled = _recall(runtime, "What is new?").text
    assert [text for text in texts if text in recalled] == texts[1:]


@pytest.mark.parametrize("earlier", [0, 3])
def test_a_word_as_it_stands_beats_a_form_of_it(start: Open, earlier: int) -> None:
    runtime = start("evidence")
    texts = ["The plane is delayed.", *["I had soup for lunch."] * earlier, "We planned a trip to Leeds."]
    reply = _tell(runtime.agent("ana"), *texts, "forget what I said about the plane")
    assert "plane is delayed" in reply
    assert "Leeds" not in reply


@pytest.mark.parametrize("last", ["J'oublie mes clés tout le temps.", "Oublie mon adresse."])
def test_what_was_said_last_stays_where_nothing_asks_for_it(start: Open, last: str) -> None:
    runtime = start("full_history")
    _tell(runtime.agent("ana"), "Ma sœur Marie habite à Lyon.", last)
    assert "Marie" in _recall(runtime).text


@pytest.mark.parametrize(
    ("secret", "other", "request_"),
    [
        ("My biopsy is on Tuesday at 10:30.", "The train to Leeds leaves at 10:30 on Friday.", "the biopsy"),
        ("My biopsy is on Tuesday at 10:30.", "The train to Leeds leaves on Tuesday at 10:30.", "the biopsy"),
        ("I owe my brother 500 euros.", "The recipe for bread takes 500 g of flour.", "my brother"),
        ("I owe my brother 12500 euros.", "The van costs 12500 euros.", "my brother"),
    ],
)
def test_an_ordinary_number_alone_is_no_repetition(start: Open, secret: str, other: str, request_: str) -> None:
    runtime = start("full_history")
    _tell(runtime.agent("ana"), secret, other, "I have a dog.", f"Forget what I said about {request_}.")
    recalled = _recall(runtime, "What is new?").text
    assert secret not in recalled
    assert other in recalled


@pytest.mark.parametrize(
    ("secret", "later"),
    [
        ("The door of the shed opens with 7316.", "Is 7316 wise for a door?"),
        ("The door of the shed opens with 731624.", "731624, is that wise?"),
    ],
)
def test_a_number_beside_a_word_or_a_code_alone_is_a_repetition(start: Open, secret: str, later: str) -> None:
    runtime = start("full_history")
    _tell(runtime.agent("ana"), secret, "I have a dog.", later, "Forget what I said about the shed door.")
    recalled = _recall(runtime, "What is new?").text
    assert "7316" not in recalled
    assert "dog" in recalled
