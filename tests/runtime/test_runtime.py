"""The runtime on a real store: users kept apart, jobs done in the background, again after a failure, in order."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from weakref import ref

import pytest

from localmem.chat.conversation import Conversation
from localmem.config import Settings, load_settings
from localmem.errors import LLMError, LLMUnavailable, NotFound, StoreError
from localmem.llm.base import drain
from localmem.llm.scripted import ScriptedLLM
from localmem.runtime import Runtime, worker
from localmem.runtime.agent_cache import AgentCache
from localmem.store.sql import StoreJournal
from localmem.types import Prompt, Session
from tests.fakes import START, WordEncoder, session, turns
from tests.waiting import wait_until


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(flags={"data": tmp_path / "data", "system": "rsum"})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_POLL_SECONDS", 0.01)
    return


def _rsum(prompt: Prompt) -> str:
    """A memory that lists what was said, so that the order of sessions shows."""
    if prompt.name != "rsum/update":
        return "I see."
    lines = [line for message in prompt.messages for line in message.content.splitlines()]
    return " ".join(f"{line.removeprefix('User: ')}" for line in lines if line.startswith(("User: Fact", "Fact")))


def _open(settings: Settings, script: Callable[[Prompt], str] = _rsum) -> Runtime:
    return Runtime(settings, llm=ScriptedLLM(script), encoder=WordEncoder())


def test_closed_sessions_are_remembered_in_the_background(settings: Settings, quick: None) -> None:
    with _open(settings) as runtime:
        runtime.remember_in_background()
        agent = runtime.agent("ana")
        agent.chat("Fact one.", START)
        agent.close()
        runtime.nudge()
        wait_until(lambda: not list(agent._waiting))
        assert agent.memory.bank.notes == {"summary": "Fact one."}
        assert runtime.store.bank("ana", "rsum").notes == {"summary": "Fact one."}


def test_a_memory_without_llm_takes_over_what_another_system_remembered(settings: Settings, quick: None) -> None:
    with _open(settings) as runtime:
        agent = runtime.agent("ana")
        agent.chat("My bicycle is red.", START)
        agent.end_session()
    with _open(settings.model_copy(update={"system": "exchange_retrieval", "options": {}})) as runtime:
        runtime.remember_in_background()
        wait_until(lambda: not runtime.store.backlog("ana", "exchange_retrieval").sessions)
        (unit,) = runtime.store.bank("ana", "exchange_retrieval").live()
        assert [unit.session] == [info.id for info in runtime.store.sessions("ana")]
        assert runtime.store.queue_unread("exchange_retrieval") == 0


def test_a_large_import_of_one_user_does_not_keep_another_waiting(settings: Settings) -> None:
    with _open(settings) as runtime:
        with ThreadPoolExecutor(101) as pool:  # they share transactions
            list(pool.map(lambda n: runtime.read_later("ana", [session("Fact.", name=f"s{n}")]), range(101)))
        runtime.read_later("ben", [session("Fact of ben.")])
        assert {job.user for job in runtime.waiting_jobs()} == {"ana", "ben"}


def test_users_share_nothing(settings: Settings) -> None:
    with _open(settings) as runtime:
        for user in ("ana", "ben"):
            runtime.agent(user).chat(f"Fact of {user}.", START)
            runtime.agent(user).end_session()
        for user, other in (("ana", "ben"), ("ben", "ana")):
            assert runtime.store.bank(user, "rsum").notes == {"summary": f"Fact of {user}."}
            assert other not in "".join(runtime.store.export(user))


def test_a_failing_job_is_done_again_and_never_overtaken(settings: Settings, quick: None) -> None:
    failures = 2

    def script(prompt: Prompt) -> str:
        nonlocal failures
        if prompt.name == "rsum/update" and failures:
            failures -= 1
            raise LLMError("the backbone is gone")
        return _rsum(prompt)

    with _open(settings, script) as runtime:
        agent = runtime.agent("ana")
        for day in range(3):
            agent.chat(f"Fact {day}.", START + timedelta(days=day))
            agent.close()
        runtime.remember_in_background()
        wait_until(lambda: not list(agent._waiting))
        assert agent.memory.bank.notes["summary"].split("\n") == ["Fact 0.", "Fact 1.", "Fact 2."]


@pytest.mark.parametrize("is_up", [False, True], ids=["no backbone", "a slow backbone"])
def test_a_backbone_that_is_not_there_costs_no_attempt(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, is_up: bool
) -> None:
    def script(prompt: Prompt) -> str:
        if prompt.name == "rsum/update":
            raise LLMUnavailable("no server answers")
        return "I see."

    with _open(settings, script) as runtime:
        agent = runtime.agent("ana")
        agent.chat("Fact one.", START)
        agent.close()
        monkeypatch.setattr(runtime, "_answers_now", lambda: is_up)
        assert runtime.remember_all("ana") == 0
        assert [job.attempts for job in runtime.waiting_jobs()] == [int(is_up)]


@pytest.mark.parametrize("call", ["pending_jobs", "claim"])
def test_a_store_that_fails_for_a_while_ends_no_thread(
    settings: Settings, quick: None, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with _open(settings) as runtime:
        agent = runtime.agent("ana")
        agent.chat("Fact one.", START)
        agent.close()
        working, failures = getattr(runtime.store, call), [StoreError("the database is locked")] * 4

        def fail_at_first(*arguments: object, **options: object) -> object:
            if failures:
                raise failures.pop()
            return working(*arguments, **options)

        monkeypatch.setattr(runtime.store, call, fail_at_first)
        runtime.remember_in_background()
        wait_until(lambda: not list(agent._waiting))
        assert agent.memory.bank.notes == {"summary": "Fact one."}


def test_a_session_whose_failure_cannot_be_recorded_is_done_later(
    settings: Settings, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [LLMError("the backbone is gone")]

    def script(prompt: Prompt) -> str:
        if prompt.name == "rsum/update" and failures:
            raise failures.pop()
        return _rsum(prompt)

    def fail(*_: object) -> int:
        monkeypatch.undo()
        raise StoreError("the database is locked")

    with _open(settings, script) as runtime:
        agent = runtime.agent("ana")
        agent.chat("Fact one.", START)
        agent.close()
        monkeypatch.setattr(StoreJournal, "fail", fail)
        with pytest.raises(StoreError):
            runtime.remember_all("ana")
        assert runtime.remember_all("ana") == 1
        assert agent.memory.bank.notes == {"summary": "Fact one."}


def test_a_session_that_is_erased_while_it_is_remembered_is_no_failure(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(settings) as runtime:
        agent = runtime.agent("ana")
        agent.chat("I moved to Porto.", START)
        agent.close()
        (job,) = runtime.waiting_jobs("ana")
        read = runtime.store.session

        def erase_and_read(user: str, session_id: str) -> Session:
            runtime.store.delete_user(user)
            return read(user, session_id)

        monkeypatch.setattr(runtime.store, "session", erase_and_read)
        assert runtime.remember(job)


@pytest.mark.parametrize("topic", ["pin", "cat"], ids=["its session", "a later session"])
@pytest.mark.parametrize("is_erased", [False, True], ids=["hidden", "erased"])
def test_what_is_forgotten_while_a_session_is_remembered_stays_forgotten(
    settings: Settings, topic: str, is_erased: bool
) -> None:
    forgets: list[Callable[[], object]] = []

    def script(prompt: Prompt) -> str:
        if prompt.name != "rsum/update":
            return "I see."
        dialogue = " ".join(message.content for message in prompt.messages)
        while forgets:
            forgets.pop()()
        return " ".join(fact for fact in ("The PIN is 4417.", "Ana has a cat.") if fact.split()[-1] in dialogue)

    def forget() -> None:
        request = agent.chat("Forget what I told you about my bank PIN.", START + timedelta(days=1)).turn.id
        if is_erased:
            runtime.store.delete_units("ana", "rsum", f"{request.partition('.')[0]}.0", sources=True)

    with _open(settings, script) as runtime:
        agent = runtime.agent("ana")
        agent.chat("My bank PIN is 4417.", START)
        if topic == "cat":
            agent.end_session()
            agent.chat("I have a cat.", START + timedelta(hours=1))
        forgets.append(forget)
        agent.end_session()
        assert not forgets
        note = runtime.store.bank("ana", "rsum").notes.get("summary", "")
        assert note == agent.memory.bank.notes.get("summary", "")
        assert note == ("Ana has a cat." if topic == "cat" else "")


def test_what_was_not_done_is_done_at_the_next_start(settings: Settings) -> None:
    with _open(settings) as runtime:
        agent = runtime.agent("ana")
        agent.chat("Fact one.", START)
        agent.close()
    with _open(settings) as runtime:
        assert [session.turns[0].text for session in runtime.agent("ana")._waiting] == ["Fact one."]
        assert runtime.remember_all("ana") == 1
        assert runtime.agent("ana").memory.bank.notes == {"summary": "Fact one."}
        assert runtime.remember_all("ana") == 0


def test_an_open_session_goes_on_after_a_restart(settings: Settings) -> None:
    with _open(settings) as runtime:
        runtime.agent("ana").chat("Fact one.", START)
    with _open(settings) as runtime:
        agent = runtime.agent("ana")
        agent.chat("Fact two.", START + timedelta(minutes=1))
        assert [turn.text for turn in agent.sessions[0].turns] == ["Fact one.", "I see.", "Fact two.", "I see."]


def test_two_processes_on_one_store_lose_nothing(settings: Settings) -> None:
    with _open(settings) as first, _open(settings) as second:
        first.agent("ana").chat("Fact one.", START)
        second.agent("ana").chat("Fact two.", START)
        first.agent("ana").end_session()
        second.agent("ana").end_session()
        assert second.store.bank("ana", "rsum").notes == {"summary": "Fact one.\nFact two."}


@pytest.mark.parametrize("is_remembered", [False, True])
def test_a_reply_is_logged_though_another_process_closes_its_session(settings: Settings, is_remembered: bool) -> None:
    with _open(settings) as first, _open(settings) as second:
        pieces = first.agent("ana").stream("Fact one.", START)
        next(pieces)
        closed = second.agent("ana").end_session() if is_remembered else second.agent("ana").close()
        assert drain(pieces).turn.text == "I see."
        (reply,) = first.store.open_sessions("ana")
        assert closed is not None
        logged = (*first.store.session("ana", closed).turns, *reply.turns)
        assert [turn.text for turn in logged] == ["Fact one.", "Fact one.", "I see."]


def test_a_reply_is_not_logged_where_another_process_erases_its_session(settings: Settings) -> None:
    with _open(settings) as first, _open(settings) as second:
        pieces = first.agent("ana").stream("Fact one.", START)
        next(pieces)
        second.store.delete_session("ana", second.agent("ana").sessions[0].id)
        first.agent("ana").writer.refresh()
        with pytest.raises(NotFound, match="is not open"):
            drain(pieces)
        assert first.store.sessions("ana") == []


def test_tokens_are_counted_by_prompt_name(settings: Settings) -> None:
    with _open(settings) as runtime:
        agent = runtime.agent("ana")
        agent.chat("Fact one.", START)
        agent.end_session()
        spent = runtime.llm.usage()
        assert {name: cost.calls for name, cost in spent.items()} == {"rsum/respond": 1, "rsum/update": 1}
        assert all(cost.input_tokens > 0 and cost.output_tokens > 0 for cost in spent.values())


@pytest.mark.parametrize("real", [False, True], ids=["words", "weights"])
def test_a_user_who_was_let_go_finds_everything_as_it_was(
    tmp_path: Path, real: bool, request: pytest.FixtureRequest
) -> None:
    if real:
        request.getfixturevalue("starter_encoder_dir")
    flags = {"data": tmp_path / "data", "system": "exchange_retrieval", "options": {"k": 2}}
    settings = load_settings(flags=flags)
    encoder = None if real else WordEncoder()
    with Runtime(settings, llm=ScriptedLLM(_rsum), encoder=encoder) as runtime:
        runtime.agent("ana").writer.read(
            [session(f"I like {what}.", "I see.", name=what) for what in ("sailing boats", "green tea", "old maps")]
        )
        runtime.agent("ana").chat("Which boats do I like?", START + timedelta(days=1))
        before, agent = _seen(runtime.agent("ana")), ref(runtime.agent("ana"))
        runtime._agents = AgentCache(runtime._new_agent, max_bytes=1)
        assert agent() is None
        after = runtime.agent("ana")
        assert after.memory.index_memory == 0
        assert _seen(after) == before
        reply = after.chat("And tea?", START + timedelta(days=1, minutes=1))
        assert reply.turn.id.endswith(".3")
        assert [turn.text for turn in after.sessions[0].turns][::2] == ["Which boats do I like?", "And tea?"]
        assert len(after.sessions) == 1


def _seen(agent: Conversation) -> tuple[object, ...]:
    """What a next turn would see."""
    probe = Session("probe", turns("Which boats do I like?", session="probe", start=START + timedelta(days=2)))
    recall = agent.memory.recall(probe)
    assert recall.hits
    return agent.sessions, tuple(agent._waiting), agent.memory.bank, recall


@pytest.mark.slow
def test_ten_thousand_users_are_not_ten_thousand_indexes(settings: Settings) -> None:
    """In little: 60 users on a bound that a few indexes fill, talking from four threads."""
    flags = {"data": settings.data, "system": "exchange_retrieval", "retrieval": {"memory_mb": 1}}
    encoder = WordEncoder()
    with Runtime(load_settings(flags=flags), llm=ScriptedLLM(_rsum), encoder=encoder) as runtime:
        names = [f"user{number}" for number in range(60)]
        for name in names:
            runtime.agent(name).writer.read([session(*[f"{name} likes thing {n}." for n in range(60)], name="s1")])
        memory = runtime.agent("user0").memory
        assert memory.search("thing", 1)
        most = (1 << 20) + 5 * memory.index_memory  # the bound, the last one, and what four threads have in use

        def talk(name: str) -> bool:
            agent = runtime.agent(name)
            size = runtime._agents.index_bytes
            reply = agent.chat(f"What does {name} like?", START + timedelta(days=1))
            return size <= most and all(name in hit.unit.text for hit in reply.recall.hits)

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(talk, names * 3))
        assert 3 < len(runtime._agents) < len(names)
        for name in names:
            (going,) = runtime.agent(name).sessions
            assert len(going.turns) == 6


def test_only_what_is_remembered_by_threads_of_its_own_stands_in_the_background(
    settings: Settings, quick: None
) -> None:
    prompts: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        return _rsum(prompt)

    with _open(settings, script) as runtime:
        runtime.remember_in_background()
        agent = runtime.agent("ana")
        agent.chat("I like sailing.", START)
        agent.close()
        runtime.nudge()
        wait_until(lambda: not list(agent._waiting))
    ranks = {prompt.name: prompt.background for prompt in prompts}
    assert ranks["rsum/update"]
    assert not any(rank for name, rank in ranks.items() if "respond" in name)
