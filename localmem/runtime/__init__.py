"""Runtime: the agents of many users over one store and one backbone, and the threads that remember closed sessions.

Knows nothing of terminals or HTTP; the command line and the server stand on it. Weights load when first needed. Here a
memory is opened, and so it is here that an encoder which the store's vectors are not of is refused.
"""

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType

from localmem import factory
from localmem.chat.conversation import Conversation
from localmem.chat.responder import Speakers
from localmem.config import Settings, load_settings
from localmem.errors import EncoderMismatch, LocalmemError
from localmem.llm.background import Background
from localmem.llm.base import LLM
from localmem.llm.wrappers import Meter, Wrapper
from localmem.memory import Memory
from localmem.retrieval.base import Encoder, Retriever
from localmem.runtime.agent_cache import Residents
from localmem.runtime.reindexing import Reindexed, Track, reindex
from localmem.runtime.worker import ATTEMPTS, Rememberer
from localmem.store.records import Job
from localmem.store.sql import Store

__all__ = ["ATTEMPTS", "Runtime", "load_agent"]

log = logging.getLogger(__name__)


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

    `progress` is told of long steps in words. `llm` stands in for the settings' backbone (tests, benchmarks). `around`
    is put around every other part as it is made, journals included, to time it say.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        progress: Callable[[str], None] = log.info,
        llm: LLM | None = None,
        encoder: Encoder | None = None,
        around: factory.Around = factory.as_it_is,
    ) -> None:
        self.settings = settings
        self.store = Store.open(settings.store_url, indexes=settings.data / "index")
        self.llm = Meter(Background(llm or _Later(self._backbone), limit=settings.llm.background))
        self._progress = progress
        self._encoder = encoder
        self._around = around
        self._started: factory.Backbone | None = None
        self._guard = threading.Lock()
        self._agents = Residents(self._new_agent, memory=settings.retrieval.memory_mb << 20)
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
        return self._started is None or self._started.is_healthy()

    def encoder(self) -> Encoder:
        """The one encoder of all users. Raises EncoderMismatch where the vectors in the store are of another.

        A running server is refused too, after a `localmem reindex` elsewhere: it goes on with what it holds in memory
        until it needs a vector, and closed sessions wait for a server with the settings' new encoder.
        """
        with self._guard:
            self._encoder = self._encoder or self._around(factory.encoder(self.settings, self.store.vectors))
        self.store.vectors.check(self._encoder.identity)
        return self._encoder

    def reindex(self, track: Track) -> Reindexed:
        """All users' memory is from now on searched with the encoder that the settings name."""
        return reindex(self.store, factory.encoder(self.settings, self.store.embeddings), track)

    def agent(self, user: str) -> Conversation:
        """The user's agent, with the bank as it is in the store now. Raises EncoderMismatch.

        Take it anew for each turn: of those that nobody uses the least recently used are let go.
        """
        return self._agents.get(user)

    def forget_agent(self, user: str) -> None:
        """The next `agent` is made afresh: after an erasure, a rebuild or an import."""
        self._agents.forget(user)

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
        try:
            agent = self.agent(job.user)
            session = self.store.session(job.user, job.session)
            if relive:
                agent.writer.replay(session)
            agent.end_session(session)
            return True
        except EncoderMismatch as error:  # no fault of the session, and no attempt at it
            self.store.release(job)
            log.warning("session %s of %s waits: %s", job.session, job.user, error)
            return False
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
        return factory.memory_position(self.settings)

    def _backbone(self) -> LLM:
        self._started = factory.backbone(self.settings, self._progress)
        return self._started.llm

    def memory_at(self, user: str, moment: datetime) -> Memory:
        """A memory of its own, as the user's stood at that moment; what becomes of it is kept nowhere."""
        bank = self.store.bank(user, self.settings.system, moment)
        return factory.memory(self.settings, self._parts(None), bank)

    def _parts(self, user: str | None) -> factory.Parts:
        """The user's index may be kept in a file of its own; what is compared once lives in memory."""
        return factory.Parts(self.llm, lambda: self._retriever(user), lambda: self._retriever(None), self._around)

    def _retriever(self, user: str | None) -> Retriever:
        settings = self.settings
        before = factory.SYSTEMS[settings.system].before if user else 0
        if settings.retrieval.retriever == "bm25":
            return factory.retriever(settings, self.encoder, before=before, around=self._around)
        encoder = self.encoder()
        file = self.store.indexes.file(user, settings.system, encoder.identity) if user else None
        return factory.retriever(settings, lambda: encoder, file, before=before, around=self._around)

    def _new_agent(self, user: str) -> Conversation:
        settings, journal = self.settings, self._around(self.store.journal(user, self.settings.system))
        return Conversation(
            memory=factory.memory(settings, self._parts(user), journal.bank()),
            llm=self.llm,
            journal=journal,
            opened=self.store.open_sessions(user),
            waiting=self.store.unfinished(user, settings.system),
            speakers=Speakers(settings.chat.user_name, settings.chat.assistant_name),
            instructions=settings.chat.instructions,
            memory_position=self._memory_position,
            carry=settings.chat.carry,
        )


def load_agent(user: str | None = None, config: Path | None = None, **flags: object) -> Conversation:
    """One user's agent, with settings from `config` and keyword flags (nested mappings as in YAML).

    Sessions are remembered when `end_session` is called, on the caller's thread. Raises BadSettings and its kin.
    """
    settings = load_settings(config, flags)
    return Runtime(settings).agent(user or settings.user)
