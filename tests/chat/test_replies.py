"""Replies that are asked for again, come late, or answer a dialogue other than the log; changes from outside."""

from datetime import timedelta

import pytest

from localmem.chat.conversation import Conversation
from localmem.errors import NotFound
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.baselines import exchange_retrieval
from localmem.types import AddUnit, Message, Prompt, Session
from tests.fakes import START, MemoryJournal, WordRetriever, unit


class Words:
    """Answers with the words given it, one list a reply."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.prompts: list[Prompt] = []

    def __call__(self, prompt: Prompt) -> str:
        self.prompts.append(prompt)
        return self.answers.pop(0)


def make(words: Words) -> tuple[Conversation, MemoryJournal]:
    journal = MemoryJournal()
    memory = exchange_retrieval(WordRetriever())
    return Conversation(memory=memory, llm=ScriptedLLM(words), journal=journal), journal


def whole(agent: Conversation, session: Session, *, dialogue: Session | None = None) -> str:
    pieces = agent.reply(session.id, dialogue=dialogue)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return str(end.value.turn.id)


def log(journal: MemoryJournal) -> list[str]:
    return [turn.text for turn in journal.turns["s"]]


def test_turns_of_both_sides_are_written_together() -> None:
    agent, journal = make(Words())
    session = agent.hear([Message("user", "a"), Message("assistant", "b"), Message("user", "c")], START, "s")
    assert [(turn.id, turn.role, turn.text) for turn in journal.turns["s"]] == [
        ("s.0", "user", "a"),
        ("s.1", "assistant", "b"),
        ("s.2", "user", "c"),
    ]
    assert agent.sessions == (session,)


def test_a_reply_given_again_is_written_once_and_a_new_one_behind_it() -> None:
    agent, journal = make(Words("one", "two", "one", "two"))
    session = agent.hear("Say a number.", START, "s")
    ids = [whole(agent, session, dialogue=session) for _ in range(4)]
    assert log(journal) == ["Say a number.", "one", "two"]
    assert ids == ["s.1", "s.2", "s.1", "s.2"]


def test_the_model_sees_the_dialogue_that_is_given_and_the_log_grows_at_its_end() -> None:
    words = Words("one", "two")
    agent, journal = make(words)
    session = agent.hear("First.", START, "s")
    whole(agent, session)
    whole(agent, session, dialogue=session)
    assert [message.content for message in words.prompts[1].messages[1:]] == ["First."]
    assert log(journal) == ["First.", "one", "two"]


def test_a_dialogue_that_goes_on_behind_a_session_not_yet_remembered_is_shown_once() -> None:
    words = Words("one", "two")
    agent, _ = make(words)
    first = agent.hear("First.", START, "s")
    whole(agent, first)
    over = agent.sessions[0]
    agent.close("s")
    second = agent.hear("Second.", START, "s~2")
    whole(agent, second, dialogue=Session("s~2", (*over.turns, *second.turns)))
    assert [message.content for message in words.prompts[1].messages[1:]] == ["First.", "one", "Second."]


def test_a_reply_that_comes_after_the_users_next_words_is_kept_in_order() -> None:
    agent, journal = make(Words("late"))
    session = agent.hear("First.", START, "s")
    pieces = agent.reply("s", dialogue=session)
    next(pieces)
    agent.hear("Second.", START + timedelta(minutes=5), "s")
    pieces.close()
    assert log(journal) == ["First.", "Second.", "late"]
    times = [turn.time for turn in journal.turns["s"]]
    assert times == sorted(times)


def test_a_reply_to_a_session_that_was_closed_meanwhile_starts_no_other_under_its_name() -> None:
    agent, journal = make(Words("late"))
    agent.hear("First.", START, "s")
    pieces = agent.reply("s")
    next(pieces)
    agent.close("s")
    with pytest.raises(NotFound):
        next(pieces)
    assert log(journal) == ["First."]


def test_turns_are_numbered_behind_the_last_one_whatever_was_erased() -> None:
    agent, journal = make(Words())
    session = agent.hear([Message("user", text) for text in "abcd"], START, "s")
    left = Session("s", (session.turns[0], session.turns[3]))
    again = Conversation(memory=agent.memory, llm=ScriptedLLM(Words()), journal=journal, opened=[left])
    assert again.hear("e", START, "s").turns[-1].id == "s.4"


def test_a_change_by_hand_is_committed_and_found() -> None:
    agent, journal = make(Words())
    agent.writer.commit("api:1", [AddUnit(unit("note", "the key is under the pot"), START)])
    assert [cause for cause, _ in journal.commits] == ["api:1"]
    assert [hit.unit.id for hit in agent.memory.search("the key", 3)] == ["note"]


def test_a_change_by_hand_is_made_on_the_bank_as_it_is_elsewhere() -> None:
    agent, journal = make(Words())
    journal.elsewhere([AddUnit(unit("theirs", "their words"), START)])
    agent.writer.commit("api:1", [AddUnit(unit("ours", "our words"), START)])
    assert set(agent.memory.bank.units) == {"theirs", "ours"}


def test_what_another_process_committed_is_taken_over_when_asked() -> None:
    agent, journal = make(Words())
    journal.elsewhere([AddUnit(unit("theirs", "their words"), START)])
    assert agent.memory.search("their words", 3) == []
    agent.writer.refresh()
    assert [hit.unit.id for hit in agent.memory.search("their words", 3)] == ["theirs"]
