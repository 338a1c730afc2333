"""Runtime: the agents of many users over one store and one backbone, and the threads that remember closed sessions.

Knows nothing of terminals or HTTP; the command line and the server stand on it. Weights load when first needed.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType

from localmem import build
from localmem.agent import ChatAgent
from localmem.config import Settings, load_settings
from localmem.errors import LocalmemError
from localmem.llm.base import LLM
from localmem.llm.wrappers import Meter, Wrapper
from localmem.retrieval.base import Encoder
from localmem.store.records import Job
from localmem.store.sql import Store

log = logging.getLogger(__name__)

ATTEMPTS = 3  # a session that cannot be remembered is tried so often, then reported by `localmem doctor`
_POLL = 5.0  # seconds between looks for sessions that another process closed


class _Later(Wrapper):
    """An LLM that is loaded when it is first asked: looking at a memory needs no weights."""

    def __init__(self, load: Callable[[], LLM]) -> None:
        self._load = load
        self._guard = threading.Lock()

    @cached_property
    def _loaded(self) -> LLM:
        return self._load()

    @property
    def inner(self) -> LLM:  # type: ignore[override]  # loaded under a lock instead of assigned
        with self._guard:
            return self._loaded


class Runtime:
    """Open it with `with`; leaving stops the threads and whatever server the backbone started.

    `progress` is told of long steps in words. `llm` stands in for the settings' backbone (tests, benchmarks).
    """

    def __init__(
        self,
        settings: Settings,
        *,
        progress: Callable[[str], None] = log.info,
        llm: LLM | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        self.settings = settings
        self.store = Store.open(settings.store_url)
        self.llm = Meter(llm or _Later(self._backbone))
        self._progress = progress
        self._encoder = encoder
        self._started: build.Backbone | None = None
        self._agents: dict[str, ChatAgent] = {}
        self._guard = threading.RLock()
        self._parts = build.Parts(self.llm, lambda: build.retriever(settings, self.encoder))
        self._rememberer = Rememberer(self)

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=kind is None)

    def close(self, *, wait: bool = True) -> None:
        """Stop remembering (what is not done stays a job), stop the backbone, close the store.

        Without `wait` a job that is being done is left, to be done again at the next start.
        """
        self._rememberer.stop(wait=wait)
        if self._started:
            self._started.close()
        self.store.close()

    def backbone_answers(self) -> bool:
        """Whether the backbone, once it is loaded, still answers; loads nothing."""
        return self._started is None or self._started.answers()

    def encoder(self) -> Encoder:
        """The one encoder of all users."""
        with self._guard:
            self._encoder = self._encoder or build.encoder(self.settings, self.store.embeddings)
            return self._encoder

    def agent(self, user: str) -> ChatAgent:
        """The user's agent, with the bank as it is in the store now."""
        with self._guard:
            agent = self._agents.get(user)
            if agent is None:
                agent = self._agents[user] = self._new_agent(user)
            return agent

    def forget_agent(self, user: str) -> None:
        """The next `agent` is made afresh: after an erasure, a rebuild or an import."""
        with self._guard:
            self._agents.pop(user, None)

    def remember_in_background(self) -> None:
        """From now on threads do the jobs of closed sessions, those of earlier runs included."""
        self._rememberer.start()

    def waiting_jobs(self, user: str | None = None) -> list[Job]:
        """What this system has not remembered yet (of one user), oldest first."""
        jobs = self.store.pending_jobs()
        return [job for job in jobs if job.system == self.settings.system and user in (None, job.user)]

    def remember_all(self, user: str) -> int:
        """Do the user's waiting jobs here and now instead of in the background; stops at one that fails."""
        self._rememberer.stop()
        jobs = self.waiting_jobs(user)
        return next((done for done, job in enumerate(jobs) if not self.remember(job)), len(jobs))

    def remember(self, job: Job, *, relive: bool = False) -> bool:
        """One job; a failure is recorded and logged, and the job waits for its next attempt.

        `relive` lets a system that works each turn see the session's replies first, as a rebuild must.
        """
        if not self.store.claim(job):
            return True  # another process does it, or has done it
        agent = self.agent(job.user)
        try:
            session = self.store.session(job.user, job.session)
            if relive:
                agent.relive(session)
            agent.await_memory(session)
            return agent.remember(job.session)
        except Exception as error:  # whatever it is must not end the thread that serves everyone
            attempts = self.store.journal(job.user, job.system).fail(job.session, f"{type(error).__name__}: {error}")
            defect = None if isinstance(error, LocalmemError) else error
            log.warning(
                "session %s of %s: attempt %d failed: %s", job.session, job.user, attempts, error, exc_info=defect
            )
            return False

    def nudge(self) -> None:
        """A session was closed: look for jobs at once."""
        self._rememberer.nudge()

    @cached_property
    def _memory_position(self) -> str:
        """Looked up once: the manifest is long, and a server makes an agent for every user."""
        return build.memory_position(self.settings)

    def _backbone(self) -> LLM:
        self._started = build.backbone(self.settings, self._progress)
        return self._started.llm

    def _new_agent(self, user: str) -> ChatAgent:
        settings, journal = self.settings, self.store.journal(user, self.settings.system)
        return ChatAgent(
            memory=build.memory(settings, self._parts, journal.bank()),
            llm=self.llm,
            journal=journal,
            opened=self.store.open_sessions(user),
            waiting=self.store.unfinished(user, settings.system),
            user=settings.chat.user_name,
            assistant=settings.chat.assistant_name,
            instructions=settings.chat.instructions,
            memory_position=self._memory_position,
            carry=settings.chat.carry,
        )


class Rememberer:
    """Does the jobs of closed sessions on `workers` threads: each user's in order, a failed one again after a while.

    The threads are daemons: a job that is cut off by the end of the process is done again at the next start.
    """

    def __init__(self, runtime: Runtime, workers: int = 2) -> None:
        self._runtime = runtime
        self._workers = workers
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._busy: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin; a second call changes nothing."""
        if not self._threads:
            names = [f"remember-{number}" for number in range(self._workers)]
            self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
            for thread in self._threads:
                thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Begin no further job; with `wait`, see those through that are being done."""
        self._stopping.set()
        self._wake.set()
        for thread in self._threads if wait else ():
            thread.join()

    def nudge(self) -> None:
        """Look for jobs now."""
        self._wake.set()

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            job = self._take()
            if job is None:
                self._wake.wait(_POLL)
                continue
            done = self._runtime.remember(job)
            with self._guard:
                self._busy.discard(job.user)
                if not done:
                    self._not_before[job.user] = time.monotonic() + _POLL * (job.attempts + 1)

    def _take(self) -> Job | None:
        """The first job of a user whom no other thread is at work for."""
        jobs = self._runtime.waiting_jobs()
        with self._guard:
            for job in jobs:
                free = job.user not in self._busy and time.monotonic() >= self._not_before.get(job.user, 0.0)
                if free and job.attempts < ATTEMPTS:
                    self._busy.add(job.user)
                    return job
        return None


def load_agent(user: str | None = None, config: Path | None = None, **flags: object) -> ChatAgent:
    """One user's agent, with settings from `config` and keyword flags (nested mappings as in YAML).

    Sessions are remembered when `end_session` is called, on the caller's thread. Raises BadSettings and its kin.
    """
    settings = load_settings(config, flags)
    return Runtime(settings).agent(user or settings.user)
