"""Residents: the agents that stay in memory, those asked for last, as many as two bounds allow.

An agent that was let go while someone still uses it (a reply is being given, a session is being remembered) is found
again for as long as they do, so no user ever has two. Knows how an agent is made by what it is given, and no store.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from weakref import ref

from localmem.chat.conversation import Conversation

MOST_AGENTS = 1000  # of whatever size: without an index an agent holds its user's bank and open sessions
_STRIPES = 64  # users whose agents may be made at the same time
_LOOKED_AT = 16  # agents that are measured whenever one is asked for, at least; and at least one of _PART
_PART = 32


class Residents:
    """Agents by user. `memory` is how many bytes their indexes may hold together, `agents` how many there may be.

    The least recently used are let go; what they hold is freed as soon as nobody uses them. The one asked for is never
    let go, so a single index may be larger than the bound. Indexes grow unseen: each call measures some in turn, so the
    bound may be overstepped by what grew in a few dozen calls, and is kept again after them.
    """

    def __init__(self, make: Callable[[str], Conversation], *, memory: int, agents: int = MOST_AGENTS) -> None:
        self._make = make
        self._memory = memory
        self._agents = agents
        self._guard = threading.Lock()
        self._making = tuple(threading.Lock() for _ in range(_STRIPES))
        self._kept: OrderedDict[str, Conversation] = OrderedDict()  # the least recently used first
        self._lent: dict[str, ref[Conversation]] = {}  # let go, and in use as long as the reference is alive
        self._round: list[str] = []  # whom to measure next
        self._sizes: dict[str, int] = {}
        self._held = 0  # the sum of the sizes

    def get(self, user: str) -> Conversation:
        """The user's agent, made if there is none. Other users do not wait while it is made."""
        agent = self._found(user)
        if agent is None:
            with self._stripe(user):
                agent = self._found(user) or self._keep(user, self._make(user))
        with self._guard:
            self._look_again(user)
        while self._let_go():
            pass
        return agent

    def forget(self, user: str) -> None:
        """The next `get` makes the agent afresh, whoever uses the one that there is."""
        with self._stripe(user), self._guard:
            self._kept.pop(user, None)
            self._lent.pop(user, None)
            self._measure(user, None)

    @property
    def memory(self) -> int:
        """Bytes that the indexes hold, those of agents in use included, about."""
        with self._guard:
            agents = [*self._kept.values(), *(agent for lent in self._lent.values() if (agent := lent()))]
        return sum(agent.memory.index_memory for agent in agents)

    def __len__(self) -> int:
        """How many agents are kept."""
        with self._guard:
            return len(self._kept)

    def _stripe(self, user: str) -> threading.Lock:
        return self._making[hash(user) % _STRIPES]

    def _found(self, user: str) -> Conversation | None:
        with self._guard:
            agent = self._kept.get(user) or self._in_use(user)
            if agent is not None:
                self._lent.pop(user, None)
                self._kept[user] = agent
                self._kept.move_to_end(user)
            return agent

    def _keep(self, user: str, agent: Conversation) -> Conversation:
        with self._guard:
            self._lent.pop(user, None)
            self._kept[user] = agent
        return agent

    def _look_again(self, user: str) -> None:
        """Measure this one and the next of the round."""
        self._measure(user, self._kept.get(user))
        for _ in range(min(len(self._kept), max(_LOOKED_AT, len(self._kept) // _PART))):
            self._round = self._round or list(self._kept)
            name = self._round.pop()
            self._measure(name, self._kept.get(name) or self._in_use(name))

    def _measure(self, user: str, agent: Conversation | None) -> None:
        size = agent.memory.index_memory if agent is not None else 0
        self._held += size - self._sizes.pop(user, 0)
        if agent is not None:
            self._sizes[user] = size

    def _in_use(self, user: str) -> Conversation | None:
        lent = self._lent.get(user)
        return lent() if lent is not None else None

    def _let_go(self) -> bool:
        """Whether one had to go. What it holds is freed on return, where no lock is held, unless somebody uses it: then
        it still counts, and idle ones make room for it."""
        with self._guard:
            for user in [user for user, lent in self._lent.items() if lent() is None]:
                del self._lent[user]
                self._measure(user, None)
            much = self._held > self._memory or len(self._kept) > self._agents
            if not much or len(self._kept) == 1:
                return False
            user, gone = self._kept.popitem(last=False)
            self._lent[user] = ref(gone)
        return True
