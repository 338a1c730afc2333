"""Residents: the agents that stay in memory, those asked for last, as many as two bounds allow.

An agent that was let go while someone still uses it (a reply is being given, a session is being remembered) is found
again for as long as they do, so no user ever has two. Knows how an agent is made by what it is given, and no store.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from weakref import WeakValueDictionary

from localmem.agent import ChatAgent

MOST_AGENTS = 1000  # of whatever size: without an index an agent holds its user's bank and open sessions
_STRIPES = 64  # users whose agents may be made at the same time


class Residents:
    """Agents by user. `memory` is how many bytes their indexes may hold together, `agents` how many there may be.

    The least recently used are let go; what they hold is freed as soon as nobody uses them. The one asked for is never
    let go, so a single index may be larger than the bound.
    """

    def __init__(self, make: Callable[[str], ChatAgent], *, memory: int, agents: int = MOST_AGENTS) -> None:
        self._make = make
        self._memory = memory
        self._agents = agents
        self._guard = threading.Lock()
        self._making = tuple(threading.Lock() for _ in range(_STRIPES))
        self._kept: OrderedDict[str, ChatAgent] = OrderedDict()  # the least recently used first
        self._alive: WeakValueDictionary[str, ChatAgent] = WeakValueDictionary()

    def get(self, user: str) -> ChatAgent:
        """The user's agent, made if there is none. Other users do not wait while it is made."""
        agent = self._found(user)
        if agent is None:
            with self._stripe(user):
                agent = self._found(user) or self._keep(user, self._make(user))
        while self._let_go():
            pass
        return agent

    def forget(self, user: str) -> None:
        """The next `get` makes the agent afresh, whoever uses the one that there is."""
        with self._stripe(user), self._guard:
            self._kept.pop(user, None)
            self._alive.pop(user, None)

    @property
    def memory(self) -> int:
        """Bytes that the indexes hold, those of agents in use included, about."""
        with self._guard:
            return sum(agent.memory.index_memory for agent in self._alive.values())

    def __len__(self) -> int:
        """How many agents are kept."""
        with self._guard:
            return len(self._kept)

    def _stripe(self, user: str) -> threading.Lock:
        return self._making[hash(user) % _STRIPES]

    def _found(self, user: str) -> ChatAgent | None:
        with self._guard:
            agent = self._alive.get(user)
            return self._keep_held(user, agent) if agent is not None else None

    def _keep(self, user: str, agent: ChatAgent) -> ChatAgent:
        with self._guard:
            return self._keep_held(user, agent)

    def _keep_held(self, user: str, agent: ChatAgent) -> ChatAgent:
        self._alive[user] = self._kept[user] = agent
        self._kept.move_to_end(user)
        return agent

    def _let_go(self) -> bool:
        """Whether one had to go. What it holds is freed on return, where no lock is held, unless somebody uses it: then
        it still counts, and idle ones make room for it."""
        with self._guard:
            held = sum(agent.memory.index_memory for agent in self._alive.values())
            much = held > self._memory or len(self._kept) > self._agents
            gone = self._kept.popitem(last=False) if much and len(self._kept) > 1 else None
        return gone is not None
