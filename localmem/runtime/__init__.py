"""Runtime: the agents of many users over one store and one backbone, and the threads that remember closed sessions.

The command line, the server and LocalMem are built on it. Weights load when they are first needed: looking at a memory
loads no backbone. A memory is opened here, so an encoder that did not make the store's vectors is refused here too.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING

from localmem import factory
from localmem.chat.conversation import Conversation
from localmem.chat.reader import Reader
from localmem.chat.responder import Sampling, Speakers
from localmem.config import Settings
from localmem.errors import EncoderMismatch, LLMError, LLMUnavailable, LocalmemError, NotFound, StoreError
from localmem.journal import check_order
from localmem.llm.base import LLM
from localmem.llm.thinking import WithoutThinking
from localmem.llm.wrappers import Background, ForUser, LazyLLM, Meter
from localmem.memory import Memory
from localmem.retrieval.base import Encoder, Retriever, passage_digest
from localmem.runtime.agent_cache import AgentCache
from localmem.runtime.worker import MAX_ATTEMPTS, Worker
from localmem.store import SessionJob, Store
from localmem.store.opening import open_store
from localmem.store.serialization import check_text
from localmem.systems import Wrap, no_wrap
from localmem.types import Session

if TYPE_CHECKING:
    from localmem.retrieval.encoder import Rows

__all__ = ["MAX_ATTEMPTS", "Reindexed", "Runtime"]

log = logging.getLogger(__name__)

_BATCH = 256  # keys that are encoded, and stored, at a time

Track = Callable[[Sequence[Sequence[str]]], Iterable[Sequence[str]]]
TrackJobs = Callable[[Sequence[SessionJob]], Iterable[SessionJob]]
EncodeBatches = Callable[[Sequence[Sequence[str]]], Iterable[tuple[Sequence[str], "Rows"]]]


@dataclass(frozen=True, slots=True)
class Reindexed:
    """`keys` is how many the banks hold, `encoded` how many of them this run encoded, `dropped` vectors of others."""

    encoder: str
    dimension: int
    keys: int
    encoded: int
    dropped: int


class Runtime:
    """Use it as a context manager: leaving stops the threads and any server that the backbone started.

    `progress` receives a line of text for each long step. `llm` and `encoder` replace those of the settings (tests,
    benchmarks). `wrap` decorates every part as it is made, journals included, for timing for example.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        progress: Callable[[str], None] = log.info,
        llm: LLM | None = None,
        encoder: Encoder | None = None,
        wrap: Wrap = no_wrap,
    ) -> None:
        self.settings = settings
        self.store = open_store(settings)
        self._loads_backbone = llm is None  # an LLM that the caller brings is to answer by itself
        self.llm = Meter(wrap(Background(llm or LazyLLM(self._backbone), limit=settings.llm.background)))
        self._progress = progress
        self._encoder = encoder
        self._wrap = wrap
        self._started: factory.Backbone | None = None
        self._lock = threading.Lock()
        self._past: set[tuple[str, str]] = set()  # sessions that were logged as a whole: nobody observed their turns
        self._unrecorded: list[SessionJob] = []  # failed, but the store failed too: to it they are in progress
        self._agents = AgentCache(self._new_agent, max_bytes=settings.retrieval.memory_mb << 20)
        self._worker = Worker(wrap(self))

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(wait=kind is None)

    def close(self, *, wait: bool = True) -> None:
        """Stop the worker threads and the backbone, and close the store. Jobs that are not done stay in the store.

        Without `wait` a job in progress is abandoned, to be done again at the next start.
        """
        self._worker.stop(wait=wait)
        if self._started:
            self._started.close()
        self.store.close()

    def backbone_answers(self) -> bool:
        """Whether the backbone still answers; True while it is not loaded. Loads nothing."""
        return self._started is None or self._started.is_healthy()

    def encoder(self) -> Encoder:
        """The encoder of all users. Raises EncoderMismatch when the store's vectors were made by another.

        That includes a running server after a `localmem reindex` in another process: it keeps working until it needs a
        vector, and closed sessions wait for a server with the new encoder.
        """
        with self._lock:
            self._encoder = self._encoder or self._wrap(factory.encoder(self.settings, self.store.vectors))
        self.store.vectors.check(self._encoder.identity)
        return self._encoder

    def reindex(self, track: Track = iter, encode: EncodeBatches | None = None) -> Reindexed:
        """Re-embed all users' memories with the configured encoder; `track` is called with the batches.

        `encode` encodes batches elsewhere. The new vectors are stored batch by batch beside those in use, so an
        interrupted run resumes where it stopped. Until the last step, which is one transaction, users of the old
        encoder are not disturbed; from then on it is refused.
        """
        store, encoder = self.store, factory.encoder(self.settings, self.store.embeddings)
        encoded = 0
        while missing := _keys_without_vector(store, encoder.identity):  # again for what was remembered meanwhile
            batches = track([missing[start : start + _BATCH] for start in range(0, len(missing), _BATCH)])
            if encode:
                for batch, rows in encode(list(batches)):
                    encoder.put(batch, rows)
            else:
                for batch in batches:
                    encoder.encode(batch, "passage")
            encoded += len(missing)
        keys = len(set(store.unit_keys()))
        dropped = store.vectors.change_encoder(encoder.identity, encoder.dimension)
        store.indexes.delete_all()
        return Reindexed(encoder.identity, encoder.dimension, keys, encoded, dropped)

    def agent(self, user: str) -> Conversation:
        """The user's agent, with the bank as it is in the store now. Raises BadInput for no user, EncoderMismatch.

        Ask for it again at each turn: agents that nobody uses are evicted, the least recently used first.
        """
        return self._agents.get(user)

    def forget_agent(self, user: str) -> None:
        """Reload the user's agent at its next use: after an erasure, a rebuild or an import."""
        self._agents.forget(user)

    def refresh(self, user: str) -> None:
        """Take over what another process has changed, where the user's memory is in this one."""
        if agent := self._agents.peek(user):
            agent.writer.refresh()

    def remember_in_background(self) -> None:
        """Start the threads that remember closed sessions, including those that earlier runs left.

        A system that asks no LLM also takes over the sessions that another system remembered: it costs little.
        """
        if not factory.SYSTEMS[self.settings.system].asks_llm:
            self.store.queue_unread(self.settings.system)
        self._worker.start()

    def waiting_jobs(self, user: str | None = None) -> list[SessionJob]:
        """The closed sessions that this system has not remembered yet, of one user or of all, oldest first."""
        with self._lock:
            while self._unrecorded:
                self.store.release(self._unrecorded[-1])
                self._unrecorded.pop()
        jobs = self.store.pending_jobs(system=self.settings.system)
        return [job for job in jobs if user in (None, job.user)]

    def remember_all(self, user: str) -> int:
        """Do the user's waiting jobs on this thread and return how many were done; stops at the first that fails."""
        self._worker.stop()
        jobs = self.waiting_jobs(user)
        return next((count for count, job in enumerate(jobs) if not self.remember(job)), len(jobs))

    def remember(self, job: SessionJob, *, replay: bool = False) -> bool:
        """Do one job. False on failure, which is recorded and logged; the job then waits for its next attempt.

        `replay` shows the session's replies to a system that works at each turn first, as a rebuild must.
        """
        if not self.store.claim(job):
            return True  # another process is doing it, or has done it
        try:
            agent = self.agent(job.user)
            session = self.store.session(job.user, job.session)
            if replay or (job.user, job.session) in self._past:
                agent.writer.replay(session)
            agent.end_session(session)
            self._past.discard((job.user, job.session))
            return True
        except Exception as error:  # no failure of one session may end the thread that serves all users
            defect = None if isinstance(error, LocalmemError) else error
            log.warning("session %s of %s waits: %s", job.session, job.user, error, exc_info=defect)
            return self._record_failure(job, error)

    def _record_failure(self, job: SessionJob, error: Exception) -> bool:
        """Return the job to the queue; True where its session was erased meanwhile."""
        try:
            if isinstance(error, EncoderMismatch) or (isinstance(error, LLMUnavailable) and not self._answers_now()):
                self.store.release(job)  # not the session's fault, so not counted as an attempt
            else:
                self.store.journal(job.user, job.system).fail(job.session, f"{type(error).__name__}: {error}")
        except NotFound:
            return True
        except StoreError:
            self._unrecorded.append(job)
            raise
        return False

    def _answers_now(self) -> bool:
        """Whether the backbone is there: then it was too slow for this session, which is not tried for ever."""
        return self._started is not None and self._started.is_healthy()

    def replay_waiting(self, user: str, track: TrackJobs = iter) -> int:
        """Remember the user's waiting sessions in order and return their number; `track` is called with the jobs.

        Raises LLMError at the first failure.
        """
        self.forget_agent(user)
        jobs = self.waiting_jobs(user)
        for count, job in enumerate(track(jobs)):
            if not self.remember(job, replay=True):
                raise LLMError(
                    f"cannot remember session {job.session} of {user} ({count} of {len(jobs)} completed); run it again"
                )
        return len(jobs)

    def rebuild(self, user: str, track: TrackJobs = iter) -> tuple[int, int]:
        """Read the user's log again with this system; returns the numbers of sessions and of units. Raises LLMError."""
        self.agent(user)  # fails before anything is cleared if the system cannot be opened
        self.store.clear(user, self.settings.system)
        count = self.replay_waiting(user, track)
        return count, len(self.agent(user).memory.bank.units)

    def read_later(self, user: str, sessions: Sequence[Session]) -> None:
        """Log past sessions, durably on return; the threads then remember them as if they had been held here.

        Raises BadInput, OutOfOrder, before anything is logged.
        """
        for session in sessions:
            check_order(session)
        check_text(*(text for each in sessions for turn in each.turns for text in (turn.id, turn.speaker, turn.text)))
        journal = self.store.journal(user, self.settings.system)
        for session in sessions:
            self._past.add((user, session.id))
            journal.add_turns(session.id, session.turns)
            journal.close(session.id)
        self.nudge()

    def nudge(self) -> None:
        """Look for jobs at once: a session was closed."""
        self._worker.nudge()

    @cached_property
    def _memory_position(self) -> str:
        """Looked up once: reading the manifest takes long, and a server makes an agent for every user."""
        return factory.memory_position(self.settings)

    @cached_property
    def _stages(self) -> LLM:
        return factory.stages(self.settings, self.llm) if self._loads_backbone else self.llm

    @cached_property
    def _sampling(self) -> Sampling:
        return factory.sampling(self.settings)

    @cached_property
    def _reader(self) -> Reader | None:
        return factory.reader(self.settings) if self._loads_backbone else None

    def _backbone(self) -> LLM:
        self._started = factory.backbone(self.settings, self._progress)
        return WithoutThinking(self._started.llm, self.settings.chat.template_kwargs)

    def memory_at(self, user: str, moment: datetime) -> Memory:
        """A separate copy of the user's memory as it was at that moment; changes to it are not saved."""
        bank = self.store.bank(user, self.settings.system, moment)
        return factory.memory(self.settings, self._parts(None), bank)

    def _parts(self, user: str | None) -> factory.Parts:
        """Parts of a memory. The user's index may be saved in a file; an index for a single comparison never is."""
        new_index, day_first = lambda: self._retriever(None), self.settings.day_first
        llm = ForUser(self._stages, user) if user else self._stages
        return factory.Parts(llm, lambda: self._retriever(user), new_index, self._wrap, day_first)

    def _retriever(self, user: str | None) -> Retriever:
        settings = self.settings
        system = factory.SYSTEMS[settings.system] if user else None
        if settings.retrieval.retriever == "bm25":
            return factory.retriever(settings, self.encoder, system=system, wrap=self._wrap)
        encoder = self.encoder()
        file = self.store.indexes.path(user, settings.system, encoder.identity) if user else None
        new_dense = (
            partial(self._vector_rows, encoder, user) if user and settings.retrieval.index == "pgvector" else None
        )
        return factory.retriever(settings, lambda: encoder, file, system=system, new_dense=new_dense, wrap=self._wrap)

    def _vector_rows(self, encoder: Encoder, user: str) -> Retriever:
        from localmem.store.pgvector import PgVectorRetriever

        return PgVectorRetriever(encoder, self.store.unit_vectors, user, self.settings.system)

    def _new_agent(self, user: str) -> Conversation:
        settings, journal = self.settings, self._wrap(self.store.journal(user, self.settings.system))
        return Conversation(
            memory=factory.memory(settings, self._parts(user), journal.bank()),
            llm=ForUser(self.llm, user),
            journal=journal,
            opened=self.store.open_sessions(user),
            waiting=self.store.pending_sessions(user, settings.system),
            speakers=Speakers(settings.chat.user_name, settings.chat.assistant_name),
            instructions=settings.chat.instructions,
            memory_position=self._memory_position,
            sampling=self._sampling,
            reader=self._reader,
            carry=settings.chat.carry,
            quarantine=settings.chat.quarantine,
        )


def _keys_without_vector(store: Store, identity: str) -> list[str]:
    """The keys without a vector of this encoder, each once."""
    by_digest = {passage_digest(key): key for key in store.unit_keys()}
    stored = store.embeddings.find_digests(identity, list(by_digest))
    return [key for digest, key in by_digest.items() if digest not in stored]
