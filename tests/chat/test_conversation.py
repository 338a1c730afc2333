"""Conversation: the log, the end of sessions, and searching memory while a turn is written."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest

from localmem.bank import Bank
from localmem.chat.conversation import Conversation, log_and_prepare
from localmem.errors import BadInput, LLMError, OutOfOrder, StoreError
from localmem.llm.base import drain
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.retrieval.base import Retriever
from localmem.systems.baselines import RetrievalBaseline, exchange_retrieval
from localmem.text.dialogue import exchange_units
from localmem.types import AddUnit, Change, Exchange, Hit, MarkUnit, Message, Prompt, Recall, Session, Turn
from tests.fakes import START, MemoryJournal, WordRetriever, session, unit


def _agent(
    answer: str = "Nice to hear.", *, journal: MemoryJournal | None = None, memory: Memory | None = None, **more: object
) -> tuple[Conversation, MemoryJournal, list[Prompt]]:
    prompts: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        return answer

    journal = journal or MemoryJournal()
    memory = memory or exchange_retrieval(WordRetriever(), k=1)
    return Conversation(memory=memory, llm=ScriptedLLM(script), journal=journal, **more), journal, prompts  # type: ignore[arg-type]


def test_the_user_turn_is_written_before_the_reply_is_made() -> None:
    journal = MemoryJournal()
    written: list[int] = []

    def script(prompt: Prompt) -> str:
        written.append(sum(len(turns) for turns in journal.turns.values()))
        return "hello"

    agent = Conversation(memory=exchange_retrieval(WordRetriever()), llm=ScriptedLLM(script), journal=journal)
    reply = agent.chat("hi", START)
    assert written == [1]
    assert [turn.text for turn in journal.turns[agent.sessions[0].id]] == ["hi", "hello"]
    assert reply.turn.text == "hello"


def test_what_was_said_is_recalled_after_the_session_ended() -> None:
    agent, journal, prompts = _agent()
    agent.chat("my dog is called Bruno", START)
    session_id = agent.end_session()
    assert journal.closed == [session_id]
    agent.chat("what is my dog called", START + timedelta(days=1))
    assert "Bruno" in prompts[-1].messages[-1].content
    assert "Bruno" not in prompts[0].messages[-1].content.replace("my dog is called Bruno", "")


@pytest.mark.parametrize("time", [START.replace(tzinfo=None), None, "2026-03-02"])
def test_a_time_without_an_offset_is_refused_in_a_session_that_goes_on(time: datetime) -> None:
    agent, journal, _ = _agent()
    agent.chat("hi", START)
    with pytest.raises(BadInput, match="give a datetime with a UTC offset"):
        agent.chat("hello", time)
    assert sum(map(len, journal.turns.values())) == 2


class OneUnitATurn(RetrievalBaseline):
    """Remembers each turn as soon as it is logged."""

    def observe_turn(self, session: Session, recall: Recall | None = None) -> list[Change]:
        last = session.turns[-1]
        return [AddUnit(unit(last.id, last.text, time=last.time), last.time)]


def test_turns_that_are_sent_together_are_each_searchable_at_once() -> None:
    memory = OneUnitATurn("turns", exchange_units, WordRetriever(), k=3)
    agent, journal, _ = _agent(memory=memory)
    agent.log_turns(
        [Message("user", "my cat is Minka"), Message("assistant", "A fine name"), Message("user", "hi")], START
    )
    assert [each.text for each in memory.bank.live()] == ["my cat is Minka", "A fine name", "hi"]
    assert journal.derived == [turn.id for turn in agent.sessions[0].turns]  # the disk is waited for once


def test_memory_stands_where_the_model_reads_it_best() -> None:
    for position, place in (("system", 0), ("last", -1)):
        agent, _, prompts = _agent(memory_position=position)
        agent.writer.read([session("my dog is called Bruno", "a fine name")])
        agent.chat("what is my dog called", START + timedelta(days=1))
        messages = prompts[-1].messages
        assert "Bruno" in messages[place].content
        assert "Bruno" not in messages[-1 - place].content
        assert messages[-1].content.endswith("what is my dog called")


def test_sessions_not_yet_remembered_stay_in_sight() -> None:
    agent, _, prompts = _agent(carry=2)
    agent.chat("one", START)
    agent.chat("my cat is Tom", START)
    agent.close()
    agent.chat("hello again", START + timedelta(days=1))
    prompt_text = "\n".join(message.content for message in prompts[-1].messages)
    assert "my cat is Tom" in prompt_text
    assert "one" not in prompt_text.split()


def test_a_paste_of_a_session_not_yet_remembered_stays_short() -> None:
    agent, _, prompts = _agent(carry=2)
    agent.chat("What does this log mean? " + "ERROR worker failed\n" * 500, START)
    agent.close()
    agent.chat("hello again", START + timedelta(days=1))
    prompt_text = "\n".join(message.content for message in prompts[-1].messages)
    assert "What does this log mean? ERROR worker failed" in prompt_text
    assert len(prompt_text) < 1500


class Meanwhile(RetrievalBaseline):
    """Its recall is over just before another thread has remembered what waited."""

    def __init__(self) -> None:
        super().__init__("exchange_retrieval", exchange_units, WordRetriever(), k=3)
        self.then: Callable[[], object] = lambda: None

    def recall(self, session: Session) -> Recall:
        recall = super().recall(session)
        self.then()
        return recall


def test_a_session_remembered_during_a_reply_is_never_out_of_sight() -> None:
    memory = Meanwhile()
    agent, _, prompts = _agent(memory=memory)
    agent.chat("my cat is Tom", START)
    closed = agent.close()
    assert closed is not None
    memory.then = lambda: closed in agent._waiting and agent.end_session(closed)
    agent.chat("what is my cat called", START + timedelta(days=1))
    assert list(agent._waiting) == []
    assert "my cat is Tom" in "\n".join(message.content for message in prompts[-1].messages)


def test_a_reply_that_is_broken_off_is_kept_as_far_as_it_was_given() -> None:
    agent, journal, _ = _agent("one two three four")
    pieces = agent.stream("count", START)
    assert next(pieces) + next(pieces) == "one two"
    pieces.close()
    name = agent.sessions[0].id
    assert [turn.text for turn in journal.turns[name]] == ["count", "one two"]
    assert [turn.is_cut for turn in journal.turns[name]] == [False, True]
    agent.chat("again", START + timedelta(minutes=1))
    assert [turn.id for turn in journal.turns[name]] == [f"{name}.0", f"{name}.1-cut", f"{name}.2", f"{name}.3"]


def test_a_failing_backbone_loses_no_word_of_the_user() -> None:
    def script(prompt: Prompt) -> str:
        raise LLMError("the server is gone")

    journal = MemoryJournal()
    agent = Conversation(memory=exchange_retrieval(WordRetriever()), llm=ScriptedLLM(script), journal=journal)
    with pytest.raises(LLMError):
        agent.chat("remember me", START)
    assert [turn.text for turns in journal.turns.values() for turn in turns] == ["remember me"]


def test_a_session_is_remembered_though_another_process_commits_several_times_meanwhile() -> None:
    class Contested(MemoryJournal):
        others = 4

        def bank(self) -> Bank:
            bank = super().bank()
            if self.others:
                self.others -= 1
                self.elsewhere([AddUnit(unit(f"other{self.others}"), START)])
            return bank

    agent, journal, _ = _agent(journal=(contested := Contested()))
    contested.elsewhere([])
    agent.writer.read([session("my dog is called Bruno", "Nice.", name="s1")])
    assert contested.others == 0
    assert "s1" in journal.finished


def test_what_is_recalled_is_looked_up_while_the_turn_is_written() -> None:
    recalling = threading.Event()

    class Slow(MemoryJournal):
        def add_turns(self, session_id: str, turns: Sequence[Turn], after: str = "") -> None:
            assert recalling.wait(30)
            super().add_turns(session_id, turns, after)

    class Seen(RetrievalBaseline):
        def recall(self, session: Session) -> Recall:
            recalling.set()
            return super().recall(session)

    memory = Seen("exchange_retrieval", exchange_units, WordRetriever(), k=3)
    agent, journal, prompts = _agent(journal=Slow(), memory=memory)
    agent.chat("hi", START)
    assert len(prompts) == 1
    assert [turn.text for turn in journal.turns[agent.sessions[0].id]] == ["hi", "Nice to hear."]


def test_a_reply_that_repeats_what_is_unlogged_is_not_logged() -> None:
    agent, journal, _ = _agent("Your PIN is 4711.")
    log = agent.log_turns("What is my PIN?", START, "s")
    prepared = agent.responder.prepare(log)._replace(unlogged=frozenset({"4711"}))
    assert drain(agent.reply("s", dialogue=log, prepared=prepared)).turn.text == "Your PIN is 4711."
    forgetting = agent.responder.prepare(log, recall=Recall(reply="Hidden: your PIN, 4711."))
    assert forgetting._replace(unlogged=frozenset({"4711"})).may_be_logged("Hidden: your PIN, 4711.")
    assert [[turn.text for turn in turns] for turns in journal.turns.values()] == [["What is my PIN?"]]


def test_nothing_is_answered_that_could_not_be_written() -> None:
    class Full(MemoryJournal):
        def add_turns(self, session_id: str, turns: Sequence[Turn], after: str = "") -> None:
            raise StoreError("the disk is full")

    agent, _, prompts = _agent(journal=Full())
    with pytest.raises(StoreError, match="full"):
        agent.chat("hi", START)
    assert (prompts, agent.sessions) == ([], ())


def test_turns_out_of_order_are_refused_and_nothing_is_written() -> None:
    agent, journal, _ = _agent()
    agent.chat("now", START)
    with pytest.raises(OutOfOrder, match="order"):
        agent.chat("yesterday", START - timedelta(days=1))
    assert sum(len(turns) for turns in journal.turns.values()) == 2


def test_answer_changes_nothing() -> None:
    agent, journal, _ = _agent()
    agent.writer.read([session("my dog is called Bruno", "a fine name")])
    before, commits = agent.memory.bank, len(journal.commits)
    reply = agent.responder.answer(Session("probe", session("what is my dog called", name="probe").turns))
    assert "Bruno" in reply.recall.text
    assert agent.memory.bank is before
    assert len(journal.commits) == commits
    assert agent.sessions == ()


def test_a_session_is_remembered_once() -> None:
    agent, journal, _ = _agent()
    agent.chat("my dog is called Bruno", START)
    closed = agent.close()
    assert closed is not None
    assert agent.end_session(closed) == closed
    assert len(agent.memory.bank.units) == 1
    assert agent.end_session(closed) is None
    assert len(journal.commits) == 1


def test_a_bank_changed_elsewhere_is_read_again_before_the_commit() -> None:
    agent, journal, _ = _agent()
    agent.chat("my dog is called Bruno", START)
    journal.elsewhere([AddUnit(unit("other", "my parrot is called Kiwi"), START)])
    agent.end_session()
    assert {u.text for u in agent.memory.bank.live()} >= {"my parrot is called Kiwi"}
    assert len(agent.memory.bank.units) == 2
    assert agent.memory.recall(session("parrot called Kiwi")).hits[0].unit.id == "other"


class Counting(Memory):
    """Marks what each reply recalled: a system that works each turn."""

    name = "counting"

    def __init__(self, *, retriever: Retriever | None = None) -> None:
        super().__init__(bank=Bank().apply([AddUnit(unit("u"), START)]), retriever=retriever)
        self.seen: list[int] = []

    def recall(self, session: Session) -> Recall:
        self.seen.append(len(session.turns))
        return Recall("something", tuple(Hit(u, 1.0) for u in self.bank.live()))

    def observe(self, exchange: Exchange) -> list[Change]:
        assert exchange.recall is not None
        assert exchange.reply is not None
        count = self.bank.marks.get(("u", "recalled"), 0.0)
        return [MarkUnit(hit.unit.id, "recalled", count + 1, exchange.reply.time) for hit in exchange.recall.hits]

    def end_session(self, session: Session) -> Sequence[Change]:  # type: ignore[override]
        return []


def test_observe_is_committed_after_each_reply_and_when_a_past_session_is_read() -> None:
    memory = Counting()
    agent, journal, _ = _agent(memory=memory)
    agent.chat("hi", START)
    assert memory.bank.marks == {("u", "recalled"): 1.0}
    agent.writer.read([session("a", "b", "c", "d", name="past")])
    assert memory.bank.marks == {("u", "recalled"): 3.0}
    assert memory.seen == [1, 1, 3]
    assert [cause for cause, _ in journal.commits if cause.startswith("past.")] == ["past.1", "past.3"]


Announce = Callable[[str], None]


def test_both_go_on_at_once() -> None:
    """Each waits for the other to have begun."""
    writing, recalling = threading.Event(), threading.Event()

    def log_turns(announce: Announce) -> str:
        announce("said")
        writing.set()
        assert recalling.wait(30)
        return "said"

    def prepare(text: str) -> str:
        assert writing.wait(30)
        recalling.set()
        return f"recalled for {text}"

    assert log_and_prepare(log_turns, prepare) == ("said", "recalled for said")


def test_what_was_recalled_for_something_else_is_dropped() -> None:
    def log_turns(announce: Announce) -> str:
        announce("expected")
        return "said"

    assert log_and_prepare(log_turns, str.upper) == ("said", None)


def test_without_an_announcement_nothing_is_recalled() -> None:
    assert log_and_prepare(lambda _: "said", lambda _: pytest.fail("nothing was announced")) == ("said", None)


@pytest.mark.parametrize("announced", [True, False])
def test_a_refusal_comes_before_any_other_error(*, announced: bool) -> None:
    def log_turns(announce: Announce) -> str:
        if announced:
            announce("said")
        raise ValueError("refused")

    def prepare(_: str) -> str:
        raise KeyError("recall failed")

    with pytest.raises(ValueError, match="refused"):
        log_and_prepare(log_turns, prepare)


def test_a_recall_that_fails_is_told_when_the_words_are_written() -> None:
    written: list[str] = []

    def log_turns(announce: Announce) -> str:
        announce("said")
        written.append("said")
        return "said"

    def prepare(_: str) -> str:
        raise KeyError("recall failed")

    with pytest.raises(KeyError):
        log_and_prepare(log_turns, prepare)
    assert written == ["said"]
