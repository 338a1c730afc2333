"""Conversation: one user's sessions with one memory. Logs what is said, passes it to the Responder, logs the reply.

A turn travels Conversation -> Responder -> Memory -> LLM and comes back once. The conversation writes to a Journal, so
it depends on no store, and it reads no clock: times come with turns. Several threads may use one conversation: replies
run side by side, the log changes under one lock.
"""

import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import dropwhile, takewhile
from queue import SimpleQueue
from typing import TypeVar
from weakref import WeakMethod

from localmem.chat.memory_writer import MemoryWriter
from localmem.chat.quarantine import without_injections
from localmem.chat.reader import Reader
from localmem.chat.responder import PreparedReply, Responder, Sampling, Speakers, next_number
from localmem.errors import BadInput, NotFound, OutOfOrder
from localmem.journal import Journal, NoJournal, check_time, measure_extents
from localmem.llm.base import LLM, drain, tee_pieces
from localmem.memory import Memory
from localmem.types import CUT, Exchange, Hide, Message, Prompt, Recall, Reply, Session, Turn

_CARRIED = 300  # characters of a carried turn

Adjust = Callable[[Prompt], Prompt]
Announce = Callable[[Session], None]


class Conversation:
    """One user's sessions: open ones, and those that are over and wait to be remembered.

    `opened` and `waiting` are the sessions that an earlier process left open, or closed and not yet remembered. The
    last `carry` turns of the latter precede the dialogue in prompts, so that users can refer to what they just wrote.
    `memory_position`, `sampling` and `reader` are as in Responder, `quarantine` as in MemoryWriter. `memory`,
    `responder` and `writer` are its parts.
    """

    def __init__(
        self,
        *,
        memory: Memory,
        llm: LLM,
        journal: Journal | None = None,
        opened: Iterable[Session] = (),
        waiting: Iterable[Session] = (),
        speakers: Speakers = Speakers(),  # noqa: B008  # an immutable value
        instructions: str = "",
        memory_position: str = "last",
        sampling: Sampling | None = None,
        reader: Reader | None = None,
        carry: int = 12,
        quarantine: bool = True,
    ) -> None:
        self._journal: Journal = journal or NoJournal()
        self._open = {session.id: session for session in opened}
        self._waiting = WaitingSessions(waiting, carry, quarantine=quarantine)
        self._current = ""  # the session continued here last: another process may have opened a later one
        self._lock = threading.RLock()
        self._ending = threading.Lock()
        self.memory = memory
        self.writer = MemoryWriter(memory, self._journal, quarantine=quarantine, reread=_hold_weakly(self._reread))
        self.responder = Responder(
            memory=memory,
            llm=llm,
            speakers=speakers,
            instructions=instructions,
            memory_position=memory_position,
            sampling=sampling,
            reader=reader,
            pending=self._waiting.last_turns,
            own_recall=self.writer.forgetting.recall,
        )

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The open sessions, the one opened last at the end."""
        with self._lock:
            return tuple(self._open.values())

    # -- turns -----------------------------------------------------------------------------------------------------

    def log_turns(
        self,
        messages: str | Sequence[Message],
        time: datetime,
        session_id: str | None = None,
        announce: Announce | None = None,
    ) -> Session:
        """Log what was said, durable on return, and return the session with it.

        `messages` is the user's text, or turns of both sides. `session_id` names the session: by default the current
        one (see `close`), else a new one. `announce` is called before the write with the session as it will be, if the
        write is valid. Raises OutOfOrder for a time before the session's last turn, BadInput for one without an offset.
        """
        check_time(time)
        incoming = [Message("user", messages)] if isinstance(messages, str) else messages
        with self._lock:
            session_id = session_id or self._default_session() or uuid.uuid4().hex[:12]
            self._current = session_id
            session = self._append(session_id, incoming, time, announce)
        for end in range(len(session.turns) - len(incoming) + 1, len(session.turns) + 1):
            self.writer.observe_turn(replace(session, turns=session.turns[:end]))
        return session

    def reply(
        self,
        session_id: str,
        *,
        dialogue: Session | None = None,
        instructions: str | None = None,
        adjust: Adjust | None = None,
        prepared: PreparedReply | None = None,
    ) -> Generator[str, None, Reply]:
        """Answer the session's last turn piece by piece; the generator returns the whole Reply, logged and observed.

        When the generator is closed early, the words so far are logged as a reply that `is_cut`. `dialogue` is what the
        model sees, to the turn to answer, where that differs from the log. `adjust` may change the prompt's sampling.
        `prepared` is the result of `responder.prepare` for the same dialogue and instructions. Not logged are replies
        that call tools (the one after their results is) or repeat what is unlogged. Where the session was closed or the
        user has written more in it meanwhile, both begin a new one. Raises NotFound for a session that is not open.
        """
        dialogue = dialogue or self._open_session(session_id)
        prepared = prepared or self.responder.prepare(dialogue, instructions)
        if adjust:
            prepared = prepared._replace(prompt=adjust(prepared.prompt))
        question = dialogue.turns[-1]
        if prepared.recall.reply:
            self.writer.forget(prepared.recall)
        pieces: list[str] = []
        try:
            completion = yield from tee_pieces(self.responder.stream(dialogue, prepared), pieces)
        except BaseException:
            text = "".join((prepared.prompt.prefill, *pieces))
            if any(pieces) and prepared.may_be_logged(text):
                self._log_reply(session_id, question, text, prepared.recall, mark=CUT)
            raise
        text = prepared.prompt.prefill + completion.text
        if completion.tool_calls or not prepared.may_be_logged(text):
            turn = Turn(f"{question.id}.unlogged", "assistant", "", text, question.time)
            return Reply(turn, prepared.recall, prepared.prompt, completion)
        turn, is_new = self._log_reply(session_id, question, text, prepared.recall)
        if is_new and not prepared.recall.reply:
            self.writer.observe(Exchange(question, turn, prepared.recall))
        return Reply(turn, prepared.recall, prepared.prompt, completion)

    def stream(self, text: str, time: datetime) -> Generator[str, None, Reply]:
        """`log_turns`, then `reply`; memory is searched while the turn is written."""
        session, prepared = log_and_prepare(partial(self.log_turns, text, time, None), self.responder.prepare)
        return (yield from self.reply(session.id, dialogue=session, prepared=prepared))

    def chat(self, text: str, time: datetime) -> Reply:
        """The whole reply at once."""
        return drain(self.stream(text, time))

    # -- the end of a session ----------------------------------------------------------------------------------------

    def close(self, session_id: str | None = None) -> str | None:
        """End a session, durably; remembering it is left to `end_session`, perhaps on another thread.

        By default the current session: continued here last, else opened last. Returns its id, None when it is not open.
        """
        with self._lock:
            session = self._open.get(session_id or self._default_session())
            if session is None:
                return None
            self._waiting.add(self._journal.close(session.id) or session)
            del self._open[session.id]
        self.responder.shown.forget(session.id)
        return session.id

    def end_session(self, session: str | Session | None = None) -> str | None:
        """Close a session and remember it, on this thread; by default the current one.

        A Session was closed elsewhere, perhaps by another process, and is only remembered. Returns its id, if any.
        """
        if isinstance(session, Session):
            with self._lock:
                self._open.pop(session.id, None)
                if session.id not in self._waiting:
                    self._waiting.add(session)
            closed: str | None = session.id
        else:
            closed = session if session is not None and session in self._waiting else self.close(session)
        if closed is None:
            return None
        with self._ending:
            waiting = self._waiting.get(closed)
            if waiting is not None:  # else another thread has remembered it in the meantime
                self.writer.finish(waiting)
                self._waiting.remove(closed)
        return closed

    # -- internals ---------------------------------------------------------------------------------------------------

    def _default_session(self) -> str:
        return self._current if self._current in self._open else next(reversed(self._open), "")

    def _open_session(self, session_id: str) -> Session:
        with self._lock:
            session = self._open.get(session_id)
        if session is None or not session.turns:
            raise NotFound(f"session {session_id!r} is not open; say something in it first")
        return session

    def _reread(self) -> None:
        """Take over the sessions that other processes have opened, continued, closed, remembered or erased."""
        with self._lock:
            current = self._journal.reread(measure_extents(self._open.values()), measure_extents(self._waiting))
            if current:
                opened, waiting = current
                self._open = {session.id: session for session in opened}
                self._waiting.replace(waiting)
                self.responder.shown.clear()  # it may hold what is erased

    def _log_reply(
        self, session_id: str, question: Turn, text: str, recall: Recall, mark: str = ""
    ) -> tuple[Turn, bool]:
        """The reply as a turn, and whether it is new: the same answer to the same turn is logged once."""
        try:
            session = self._append_reply(session_id, question, text, mark)
        except (BadInput, NotFound):  # another process has logged a turn under the number of this one, or closed it
            self.writer.refresh()
            if self._is_closed(session_id, question):
                session = self._begin_anew(question, text, mark)
            else:
                session = self._append_reply(session_id, question, text, mark)
        if isinstance(session, Turn):
            return session, False
        turn = session.turns[-1]
        if recall.reply or question.id in self.memory.bank.hidden:  # it speaks of what is forgotten
            self.writer.commit(f"forget:{turn.id}", [Hide(turn.id, question.id, turn.time)])
        else:
            self.writer.observe_turn(session, recall)
        return turn, True

    def _is_closed(self, session_id: str, question: Turn) -> bool:
        """Whether a session is over, and its log still has the question: a reply to what was erased is not logged."""
        if any(session.id == session_id for session in self.sessions):
            return False
        logged = (session for session in self._journal.sessions() if session.id == session_id)
        return any(turn.id == question.id for session in logged for turn in session.turns)

    def _append_reply(self, session_id: str, question: Turn, text: str, mark: str) -> Session | Turn:
        """The session with the reply as its last turn, new where the user wrote more; or the turn that it is."""
        with self._lock:
            session = self._open_session(session_id)
            following = list(dropwhile(lambda turn: turn.id != question.id, session.turns))[1:]
            ends = (following, reversed(session.turns))  # right after the question, and at the end of the log
            replies = (turn for end in ends for turn in takewhile(lambda turn: turn.role == "assistant", end))
            if same := next((turn for turn in replies if turn.text == text), None):
                return same
            time = max(question.time, session.turns[-1].time)
            if any(turn.role == "user" for turn in following):
                return self._begin_anew(question, text, mark)  # behind what was written meanwhile it would answer that
            return self._append(session_id, [Message("assistant", text)], time, mark=mark, after=question.id)

    def _begin_anew(self, question: Turn, text: str, mark: str) -> Session:
        """A new session of a question, if that is not hidden, and the reply to it, which says little alone."""
        repeated = [] if question.id in self.memory.bank.hidden else [Message("user", question.text)]
        messages = [*repeated, Message("assistant", text)]
        return self._append(uuid.uuid4().hex[:12], messages, question.time, mark=mark, after=question.id)

    def _append(
        self,
        session_id: str,
        messages: Sequence[Message],
        time: datetime,
        announce: Announce | None = None,
        mark: str = "",
        after: str = "",
    ) -> Session:
        with self._lock:
            session = self._open.get(session_id) or Session(session_id)
            if session.turns and time < session.turns[-1].time:
                raise OutOfOrder(
                    f"a turn of {time.isoformat()} came after one of {session.turns[-1].time.isoformat()}; "
                    "give turns in the order they were said"
                )
            grown = session
            for message in messages:
                grown = replace(grown, turns=(*grown.turns, self._new_turn(grown, message, time, mark)))
            if announce:
                announce(grown)
            self._journal.add_turns(session_id, grown.turns[len(session.turns) :], after)
            self._open[session_id] = grown
            return grown

    def _new_turn(self, session: Session, message: Message, time: datetime, mark: str) -> Turn:
        user, assistant = self.responder.speakers
        speaker = user if message.role == "user" else assistant
        name = f"{session.id}.{next_number(session)}{mark if message.role == 'assistant' else ''}"
        return Turn(name, message.role, speaker, message.content, time)  # type: ignore[arg-type]


def _hold_weakly(method: Callable[[], None]) -> Callable[[], None]:
    """The method without a cycle of references: an agent that is let go of is to be freed at once."""
    reference = WeakMethod(method)

    def call() -> None:
        if target := reference():
            target()

    return call


def not_before_last(time: datetime, *sessions: Session) -> datetime:
    """The time to give a turn that continues a session: a clock that was set back must not break a dialogue."""
    return max([time, *(session.turns[-1].time for session in sessions if session.turns)])


class WaitingSessions:
    """The sessions that are over and not yet remembered, and the last `carry` turns of them, for many threads.

    It is a part of its own so that conversation and responder share it without holding one another: an agent that
    nobody uses is then freed at once.
    """

    def __init__(self, sessions: Iterable[Session], carry: int, *, quarantine: bool = True) -> None:
        # Replaced, never changed in place, so that a reply can read it while a session is closed.
        self._sessions = {session.id: session for session in sessions}
        self._carry = carry
        self._quarantine = quarantine
        self._lock = threading.Lock()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._sessions

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def replace(self, sessions: Iterable[Session]) -> None:
        """These sessions wait, and no others."""
        with self._lock:
            self._sessions = {session.id: session for session in sessions}

    def get(self, session_id: str) -> Session | None:
        """The session of this id, if it waits."""
        return self._sessions.get(session_id)

    def add(self, session: Session) -> None:
        """The session is over."""
        with self._lock:
            self._sessions = {**self._sessions, session.id: session}

    def remove(self, session_id: str) -> None:
        """The session is remembered."""
        with self._lock:
            self._sessions = {name: session for name, session in self._sessions.items() if name != session_id}

    def last_turns(self, dialogue: Session) -> tuple[Turn, ...]:
        """The last turns, in order, without those that the dialogue itself holds; of a long one its beginning."""
        in_dialogue = {turn.id for turn in dialogue.turns}
        turns = [turn for session in self for turn in session.turns if turn.id not in in_dialogue]
        last = turns[-self._carry :] if self._carry else []
        return tuple(map(_cut_long_text, map(without_injections, last) if self._quarantine else last))


def _cut_long_text(turn: Turn) -> Turn:
    """A paste would lengthen every prompt until its session is remembered."""
    if len(turn.text) <= _CARRIED:
        return turn
    return replace(turn, text=f"{turn.text[:_CARRIED].rstrip()} [...]")


Logged = TypeVar("Logged")
Prepared = TypeVar("Prepared")

_WRITERS = ThreadPoolExecutor(128, "localmem-log")  # threads that wait for the disk; none starts before it is needed


def log_and_prepare(
    log_turns: Callable[[Callable[[Logged], None]], Logged], prepare: Callable[[Logged], Prepared]
) -> tuple[Logged, Prepared | None]:
    """The result of `log_turns`, and what `prepare` made of it meanwhile; None when `log_turns` had not announced it.

    Logging a turn waits for the disk and searching memory for the processor, a few milliseconds each. Nothing is
    answered before the turn is durable: a result prepared for anything but what was written is dropped.

    `log_turns` runs on a thread of its own and calls its argument with what it is about to write. Raises the error of
    `log_turns`, else that of `prepare`, and neither before `log_turns` has finished.
    """
    announced: SimpleQueue[Logged | None] = SimpleQueue()
    writing = _WRITERS.submit(copy_context().run, log_turns, announced.put)
    writing.add_done_callback(lambda _: announced.put(None))
    expected = announced.get()
    prepared = None
    try:
        if expected is not None:
            prepared = prepare(expected)
    finally:
        written = writing.result()
    return written, prepared if written == expected else None
