"""Which agents stay in memory: the bounds hold, nobody in use is lost, and whoever comes back finds everything."""

import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from localmem.chat.conversation import Conversation
from localmem.errors import StoreError
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.runtime.agent_cache import AgentCache
from localmem.types import Change, Prompt, Recall, Session
from tests.fakes import START, WordRetriever, unit

INDEX_BYTES = 1000  # bytes of one agent's index: ten units of the fake retriever


class Sized(Memory):
    """Its index holds ten units once it was needed."""

    name = "sized"

    def recall(self, session: Session) -> Recall:
        self.index.add([unit(f"u{number}") for number in range(10)])
        return Recall("")

    def end_session(self, session: Session) -> Sequence[Change]:  # type: ignore[override]
        return []


def _say(prompt: Prompt) -> str:
    return "I see."


def _make(user: str) -> Conversation:
    return Conversation(memory=Sized(retriever=WordRetriever()), llm=ScriptedLLM(_say))


def _talk(cache: AgentCache, user: str) -> "weakref.ref[Conversation]":
    agent = cache.get(user)
    agent.chat("Hello.", START)
    return weakref.ref(agent)


def test_the_least_recently_used_is_let_go_and_freed() -> None:
    cache = AgentCache(_make, max_bytes=3 * INDEX_BYTES)
    agents = {user: _talk(cache, user) for user in ("ann", "bob", "cid")}
    _talk(cache, "ann")
    assert len(cache) == 3
    agents["dan"] = _talk(cache, "dan")
    agents["eve"] = _talk(cache, "eve")
    assert [user for user, agent in agents.items() if agent() is None] == ["bob"]
    cache.get("ann")
    assert agents["cid"]() is None
    assert cache.index_bytes == 3 * INDEX_BYTES


def test_one_index_may_be_larger_than_the_bound() -> None:
    cache = AgentCache(_make, max_bytes=INDEX_BYTES // 2)
    agent = _talk(cache, "ann")
    assert cache.get("ann") is agent()
    cache.get("bob")
    assert agent() is None


def test_agents_without_an_index_are_bounded_too() -> None:
    cache = AgentCache(_make, max_bytes=INDEX_BYTES, max_agents=5)
    agents = [weakref.ref(cache.get(f"user{number}")) for number in range(20)]
    assert len(cache) == 5
    assert [agent() is None for agent in agents] == [True] * 15 + [False] * 5


def test_an_agent_in_use_is_the_same_for_everybody() -> None:
    cache = AgentCache(_make, max_bytes=INDEX_BYTES)
    agent = cache.get("ann")
    pieces = agent.stream("Tell me.", START)
    del agent
    assert next(pieces)
    for number in range(5):
        _talk(cache, f"user{number}")
    again = cache.get("ann")
    assert [turn.text for turn in again.sessions[0].turns] == ["Tell me."]
    list(pieces)
    assert [turn.text for turn in again.sessions[0].turns] == ["Tell me.", "I see."]


def test_what_is_in_use_counts_so_that_idle_ones_make_room() -> None:
    cache = AgentCache(_make, max_bytes=3 * INDEX_BYTES)
    used = [cache.get("ann"), cache.get("bob")]
    for agent in used:
        agent.chat("Hello.", START)
    for number in range(10):
        _talk(cache, f"user{number}")
        assert cache.index_bytes <= 4 * INDEX_BYTES  # the bound, and the turn that was just held
    assert [cache.get("ann"), cache.get("bob")] == used


def test_forgotten_is_made_afresh_though_it_is_in_use() -> None:
    cache = AgentCache(_make, max_bytes=INDEX_BYTES)
    agent = cache.get("ann")
    cache.forget("ann")
    cache.forget("nobody")
    assert cache.get("ann") is not agent


def test_users_who_come_do_not_wait_for_one_that_is_made() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def make(user: str) -> Conversation:
        if user == "slow":
            begun.set()
            assert go_on.wait(30)
        return _make(user)

    cache = AgentCache(make, max_bytes=INDEX_BYTES)
    others = [name for name in map(str, range(100)) if cache._stripe(name) is not cache._stripe("slow")]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(cache.get, "slow"), pool.submit(cache.get, "slow")
        assert begun.wait(30)
        cache.get(others[0])
        go_on.set()
        assert first.result() is second.result()


def test_a_crowd_is_bounded_though_only_some_are_measured_at_a_time() -> None:
    """Indexes that grew since they were looked at are found within a few dozen calls."""
    cache = AgentCache(_make, max_bytes=500 * INDEX_BYTES)
    for number in range(800):
        _talk(cache, f"user{number}")
        assert cache.index_bytes <= 540 * INDEX_BYTES
    assert len(cache) > 450


def test_one_that_cannot_be_made_leaves_nothing_behind() -> None:
    def make(user: str) -> Conversation:
        if user == "bad":
            raise StoreError("the disk is full")
        return _make(user)

    cache = AgentCache(make, max_bytes=INDEX_BYTES)
    for _ in range(2):
        with pytest.raises(StoreError):
            cache.get("bad")
    assert cache.get("ann") is cache.get("ann")
    assert len(cache) == 1


def test_many_users_talk_at_once_and_the_bound_holds() -> None:
    """No more than the bound and two indexes for each thread; nobody has two agents at the same time."""
    threads, users, bound = 8, 200, 20 * INDEX_BYTES
    cache = AgentCache(_make, max_bytes=bound)
    talking: dict[str, list[Conversation]] = {}
    guard = threading.Lock()
    most = 0

    def talk(seed: int) -> None:
        nonlocal most
        random = Random(seed)
        for _ in range(200):
            user = f"user{int(random.paretovariate(0.5)) % users}"
            agent = cache.get(user)
            with guard:
                talking.setdefault(user, []).append(agent)
                assert all(other is agent for other in talking[user])
                most = max(most, cache.index_bytes)
            agent.chat("Hello.", START)
            with guard:
                talking[user].pop()
            del agent

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(talk, range(threads)))
    for _ in range(3):  # a call measures sixteen of the agents, and there are a few more
        cache.get("user0")
    assert cache.index_bytes <= bound
    assert most <= bound + 2 * threads * INDEX_BYTES  # what a round of the threads' calls may have made, unseen as yet
    assert most > bound // 2
