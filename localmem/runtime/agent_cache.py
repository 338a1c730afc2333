"""AgentCache: the agents in memory, least recently used first out, within two bounds.

An agent that is evicted while somebody still uses it (a reply is being given, a session is being remembered) is handed
out again for as long as they do, so no user ever has two. How an agent is made is up to the function it is given.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from weakref import ref

from localmem.chat.conversation import Conversation

MAX_AGENTS = 1000  # of any size: without an index an agent holds its user's bank and open sessions
_STRIPES = 64  # users whose agents may be made at the same time
_MEASURED = 16  # agents that each call measures, at least; and at least one in _MEASURED_SHARE
_MEASURED_SHARE = 32


class AgentCache:
    """Agents by user. `max_bytes` bounds what their indexes may hold together, `max_agents` their number.

    The least recently used are evicted; their memory is freed as soon as nobody uses them. The one asked for is never
    evicted, so a single index may be larger than the bound. Indexes grow unnoticed: each call measures a few agents in
    turn, so growth may exceed the bound for a few dozen calls.
    """

    def __init__(self, make: Callable[[str], Conversation], *, max_bytes: int, max_agents: int = MAX_AGENTS) -> None:
        self._make = make
        self._max_bytes = max_bytes
        self._max_agents = max_agents
        self._lock = threading.Lock()
        self._making = tuple(threading.Lock() for _ in range(_STRIPES))
        self._cached: OrderedDict[str, Conversation] = OrderedDict()  # the least recently used first
        self._evicted: dict[str, ref[Conversation]] = {}  # in use as long as the reference is alive
        self._to_measure: list[str] = []
        self._sizes: dict[str, int] = {}
        self._total = 0  # the sum of the sizes

    def get(self, user: str) -> Conversation:
        """The user's agent, made if there is none. Other users do not wait while it is made."""
        agent = self._look_up(user)
        if agent is None:
            with self._stripe(user):
                agent = self._look_up(user) or self._store(user, self._make(user))
        with self._lock:
            self._measure_some(user)
        while self._evict_one():
            pass
        return agent

    def peek(self, user: str) -> Conversation | None:
        """The user's agent if it is in memory; that is no use of it."""
        with self._lock:
            return self._cached.get(user)

    def forget(self, user: str) -> None:
        """The next `get` makes the agent afresh, whoever uses the current one."""
        with self._stripe(user), self._lock:
            self._cached.pop(user, None)
            self._evicted.pop(user, None)
            self._measure(user, None)

    @property
    def index_bytes(self) -> int:
        """About how many bytes the indexes hold, those of evicted agents that are still in use included."""
        with self._lock:
            agents = [*self._cached.values(), *(agent for evicted in self._evicted.values() if (agent := evicted()))]
        return sum(agent.memory.index_memory for agent in agents)

    def __len__(self) -> int:
        """How many agents are cached."""
        with self._lock:
            return len(self._cached)

    def _stripe(self, user: str) -> threading.Lock:
        return self._making[hash(user) % _STRIPES]

    def _look_up(self, user: str) -> Conversation | None:
        with self._lock:
            agent = self._cached.get(user) or self._in_use(user)
            if agent is not None:
                self._evicted.pop(user, None)
                self._cached[user] = agent
                self._cached.move_to_end(user)
            return agent

    def _store(self, user: str, agent: Conversation) -> Conversation:
        with self._lock:
            self._evicted.pop(user, None)
            self._cached[user] = agent
        return agent

    def _measure_some(self, user: str) -> None:
        self._measure(user, self._cached.get(user))
        for _ in range(min(len(self._cached), max(_MEASURED, len(self._cached) // _MEASURED_SHARE))):
            self._to_measure = self._to_measure or list(self._cached)
            name = self._to_measure.pop()
            self._measure(name, self._cached.get(name) or self._in_use(name))

    def _measure(self, user: str, agent: Conversation | None) -> None:
        size = agent.memory.index_memory if agent is not None else 0
        self._total += size - self._sizes.pop(user, 0)
        if agent is not None:
            self._sizes[user] = size

    def _in_use(self, user: str) -> Conversation | None:
        evicted = self._evicted.get(user)
        return evicted() if evicted is not None else None

    def _evict_one(self) -> bool:
        """Whether one had to go. Its memory is freed on return, where no lock is held, unless somebody uses it: then it
        still counts, and idle agents make room for it."""
        with self._lock:
            for user in [user for user, evicted in self._evicted.items() if evicted() is None]:
                del self._evicted[user]
                self._measure(user, None)
            exceeded = self._total > self._max_bytes or len(self._cached) > self._max_agents
            if not exceeded or len(self._cached) == 1:
                return False
            user, agent = self._cached.popitem(last=False)
            self._evicted[user] = ref(agent)
        return True
