"""Decide which session a request belongs to, track the replies in progress, and close sessions.

Messages of one user are logged one request after the other; replies run side by side. No HTTP and no clock here: times
come with requests.

A session is over when a client ends it or when it has been idle. A client that continues a dialogue whose session is
over gets a new session; the messages that the old one holds are not written again. So does one that names no session
and continues while a reply is in progress: its dialogue may be another with the same beginning. A client that names its
sessions continues under the same name with ~2, ~3 and so on appended.
"""

import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from weakref import WeakSet

from localmem.chat.conversation import Announce, Conversation, not_before_last
from localmem.errors import BadInput, Conflict, NotFound
from localmem.runtime import Runtime
from localmem.server.client_tasks import ClientMessage, HasLogged
from localmem.server.recent_values import RecentValues
from localmem.server.reply_stream import ReplyStream
from localmem.server.schemas import SESSION_ID
from localmem.server.session_matching import (
    Continuation,
    Match,
    Unlogged,
    best_match,
    find_unlogged,
    match_session,
    restore_unlogged,
)
from localmem.text.dialogue import normalize
from localmem.types import Message, Role, Session, Turn

log = logging.getLogger(__name__)

Dialogue = tuple[int, Sequence[Mapping[str, object]]]  # the user's erasures by then, and OpenAI's messages

_CLOSED_SESSIONS = 20  # how many of the last closed sessions are searched for a dialogue that continues
_STOP_SECONDS = 30.0  # how long a stopped reply may take to log its last words


@dataclass(frozen=True, slots=True)
class MatchedRequest:
    """A request whose session is found, and whose messages are logged unless it only reads.

    `dialogue` is what memory is searched by: the session's turns as they are logged. `prompted` is what the model is to
    see: the same with examples, files and messages that were not to be stored, in their places. `unlogged` are the
    words by which a reply is known to repeat the latter.
    """

    agent: Conversation
    dialogue: Session
    prompted: Session
    unlogged: Set[str] = frozenset()


class SessionManager:
    """The sessions of all users of one server."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._streams: dict[str, set[ReplyStream]] = {}
        self._requested = WeakSet[ReplyStream]()  # those as well whose turn is not logged yet
        self.unlogged = runtime.store.unlogged
        self.dialogues = RecentValues[Dialogue]()  # by id of a response
        self.on_erasure: list[Callable[[str], None]] = [self.dialogues.forget]  # what drops a user's texts

    # -- requests ----------------------------------------------------------------------------------------------------

    def log_turns(
        self,
        user: str,
        sent: Sequence[ClientMessage],
        session_name: str | None,
        time: datetime,
        stream: ReplyStream,
        announce: Callable[[MatchedRequest], None],
    ) -> MatchedRequest:
        """Log the words that are new, durably, as said at `time`; the last message is the user's.

        Messages without words, and those of `unlogged`, are not logged. `announce` gets the result before it is
        written, unless nothing is new. Raises BadInput, StoreError.
        """
        _check_name(session_name)
        with self._lock(user):
            self._finish(other for other in self._streams_of(user) if other.is_stopped)
            try:
                logged = self._log(user, sent, session_name, time, announce)
            except BadInput:  # another process (a chat at the terminal, a replica) may have changed sessions just now
                logged = self._log(user, sent, session_name, time, announce)
            stream.session = logged.dialogue.id
            self.track(user, stream)
        return logged

    def look_up(
        self, user: str, sent: Sequence[ClientMessage], session_name: str | None, time: datetime, stream: ReplyStream
    ) -> MatchedRequest:
        """The session that the messages belong to, with what is new in them; nothing is written. Raises BadInput.

        The reply is tracked from here on: before, it would wait for an erasure that waits for it.
        """
        _check_name(session_name)
        with self._lock(user):
            agent = self._refreshed_agent(user)
            unlogged = self._find_unlogged(user, agent, sent)
            continuation = self._continue(agent, user, _words(sent, unlogged.flags), session_name)
            self.track(user, stream)
        dialogue = _with_unlogged(agent, continuation, time)
        return MatchedRequest(agent, dialogue, restore_unlogged(dialogue, sent, unlogged.flags))

    def detach(self, user: str, messages: Sequence[Message], time: datetime) -> MatchedRequest:
        """The request's own messages as a session that belongs to no other; nothing is written."""
        agent = self._runtime.agent(user)
        dialogue = _with_unlogged(agent, Continuation(uuid.uuid4().hex[:12], messages), time)
        return MatchedRequest(agent, dialogue, dialogue)

    def has_logged(self, user: str) -> HasLogged:
        """Tells of words whether they were said in a session that is open or was closed lately, or are not stored."""

        @cache
        def texts() -> frozenset[str]:
            last = (self._runtime.store.session(user, name) for name in self._closed_ids(user)[-_CLOSED_SESSIONS:])
            sessions = (*self._runtime.agent(user).sessions, *last)
            return frozenset(normalize(turn.role, turn.text)[1] for session in sessions for turn in session.turns)

        def is_logged(text: str) -> bool:
            sides = Message("user", text), Message("assistant", text)
            return normalize("", text)[1] in texts() or bool(self.unlogged.find(user, sides))

        return is_logged

    def expect(self, stream: ReplyStream) -> None:
        """A reply was asked for, and is to be stopped with the others from now on."""
        with self._guard:
            self._requested.add(stream)

    def track(self, user: str, stream: ReplyStream) -> None:
        """A reply of this user is in progress, until `remove`."""
        with self._guard:
            self._streams.setdefault(user, set()).add(stream)

    def remove(self, user: str, stream: ReplyStream) -> None:
        """Drop a stream that has logged its last turn."""
        with self._guard:
            streams = self._streams.get(user, set())
            streams.discard(stream)
            if not streams:
                self._streams.pop(user, None)

    def count_active(self) -> int:
        """The number of replies in progress."""
        with self._guard:
            return sum(map(len, self._streams.values()))

    def stop_all(self) -> None:
        """End every reply before its next piece."""
        with self._guard:
            active = {stream for streams in (self._requested, *self._streams.values()) for stream in streams}
        for stream in active:
            stream.stop()

    # -- ends of sessions --------------------------------------------------------------------------------------------

    def end(self, user: str, session_name: str | None = None) -> list[str]:
        """Close one session, or all of the user's, and stop replies in it. Returns their ids. Raises NotFound."""
        with self._lock(user):
            agent = self._refreshed_agent(user)
            names = open_names = [session.id for session in agent.sessions]
            if session_name is not None:
                names = [name for name in open_names if _base_name(name) == _base_name(session_name)]
                if not names:
                    raise NotFound(
                        f"no open session {session_name!r}; open sessions: {', '.join(open_names) or 'none'}"
                    )
            self._finish(stream for stream in self._streams_of(user) if stream.session in names)
            return self._close(agent, names)

    def end_idle(self, user: str, is_idle: Callable[[Session], bool]) -> list[str]:
        """Close the user's idle sessions that have no reply in progress. Returns their ids."""
        with self._lock(user):
            agent = self._refreshed_agent(user)
            active = {stream.session for stream in self._streams_of(user)}
            idle = [session.id for session in agent.sessions if session.id not in active and is_idle(session)]
            return self._close(agent, idle)

    @contextmanager
    def current_agent(self, user: str) -> Iterator[Conversation]:
        """The user's agent with the memory as the store holds it; no new message of the user is logged meanwhile."""
        with self._lock(user):
            yield self._refreshed_agent(user)

    @contextmanager
    def exclusive(self, user: str) -> Iterator[None]:
        """Stop the user's replies and hold the user's lock while the store is changed; then reload the agent.

        A reply in progress may speak of what is being erased, so it is broken off instead of awaited.
        """
        with self._lock(user):
            self._finish(self._streams_of(user))
            try:
                yield
            finally:
                self._runtime.forget_agent(user)
                for forget in self.on_erasure:
                    forget(user)
        self._runtime.nudge()

    # -- internals ---------------------------------------------------------------------------------------------------

    def _log(
        self,
        user: str,
        sent: Sequence[ClientMessage],
        session_name: str | None,
        time: datetime,
        announce: Callable[[MatchedRequest], None],
    ) -> MatchedRequest:
        agent = self._refreshed_agent(user)
        unlogged = self._find_unlogged(user, agent, sent)

        def make_match(session: Session) -> MatchedRequest:
            return MatchedRequest(agent, session, restore_unlogged(session, sent, unlogged.flags), unlogged.words)

        continuation = self._continue(agent, user, _words(sent, unlogged.flags), session_name)
        return make_match(self._write(agent, continuation, time, lambda session: announce(make_match(session))))

    def _find_unlogged(self, user: str, agent: Conversation, sent: Sequence[ClientMessage]) -> Unlogged:
        messages = (Message(message.role, words) for message, words in sent if words is not None)
        return find_unlogged(sent, self.unlogged.find(user, messages), agent.sessions)

    def _continue(
        self, agent: Conversation, user: str, messages: Sequence[Message], session_name: str | None
    ) -> Continuation:
        if session_name:
            return self._continue_named(agent, user, messages, session_name)
        match, new_id = best_match(agent.sessions, messages), uuid.uuid4().hex[:12]
        if match is None:
            return self._begin(user, messages, new_id)
        continuation = match.continuation(messages)
        is_answering = any(stream.session == match.session.id for stream in self._streams_of(user))
        if is_answering and continuation.new:  # perhaps a branch, whose turns would come in between
            return match.continuation_in(new_id, messages)
        return continuation

    def _refreshed_agent(self, user: str) -> Conversation:
        agent = self._runtime.agent(user)
        agent.writer.refresh()
        return agent

    def _lock(self, user: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(user, threading.Lock())

    def _streams_of(self, user: str) -> list[ReplyStream]:
        with self._guard:
            return list(self._streams.get(user, ()))

    def _finish(self, streams: Iterable[ReplyStream]) -> None:
        """Stop these replies and wait until their words are logged."""
        stopping = list(streams)
        for stream in stopping:
            stream.stop(for_good=True)
        for stream in stopping:
            if not stream.wait(_STOP_SECONDS):
                raise Conflict(f"the reply in session {stream.session!r} did not stop; try again in a moment")

    def _close(self, agent: Conversation, names: Sequence[str]) -> list[str]:
        closed = [name for name in names if agent.close(name)]
        if closed:
            self._runtime.nudge()
        return closed

    def _continue_named(
        self, agent: Conversation, user: str, messages: Sequence[Message], session_name: str
    ) -> Continuation:
        for session in reversed(agent.sessions):
            if _base_name(session.id) == _base_name(session_name):
                match = match_session(session, messages, is_named=True) or Match(session, ())
                return match.continuation(messages)
        existing = {info.id for info in self._runtime.store.sessions(user)}
        number, name = 1, session_name
        while name in existing:
            number += 1
            name = f"{_base_name(session_name)}~{number}"
        return self._begin(user, messages, name)

    def _begin(self, user: str, messages: Sequence[Message], session_id: str) -> Continuation:
        """A new session; messages that a closed session holds become context and are not written again."""
        if len(messages) == 1:
            return Continuation(session_id, messages)
        closed = self._closed_ids(user)
        of_name = [name for name in closed if _base_name(name) == _base_name(session_id)]
        match = self._match(user, of_name, messages) or self._match(user, closed, messages)
        match = match or self._match(user, self._closed_with(user, messages), messages)
        return match.continuation_in(session_id, messages) if match else Continuation(session_id, messages)

    def _match(self, user: str, names: Sequence[str], messages: Sequence[Message]) -> Match | None:
        """The best match among the last of these sessions."""
        return best_match((self._runtime.store.session(user, name) for name in names[-_CLOSED_SESSIONS:]), messages)

    def _closed_ids(self, user: str) -> list[str]:
        """The ids of the closed sessions, in the order in which they ended."""
        closed = [info for info in self._runtime.store.sessions(user, "closed") if info.turns]
        return [info.id for info in sorted(closed, key=lambda info: info.ended)]

    def _closed_with(self, user: str, messages: Sequence[Message]) -> list[str]:
        """The ids of the closed sessions, however old, that hold earlier ones of these messages; the most last."""
        earlier = {normalize(message.role, message.content) for message in messages[:-1]}
        lookups = self._runtime.store.lookups
        return lookups.closed_sessions_with(user, lambda role, text: normalize(role, text) in earlier)

    def _write(self, agent: Conversation, continuation: Continuation, time: datetime, announce: Announce) -> Session:
        """Log the new turns durably and return the session as the model is to see it."""
        session_id = continuation.session_id
        if not continuation.new:
            return Session(session_id, continuation.context)
        logged = next((session.turns for session in agent.sessions if session.id == session_id), ())

        def as_seen(session: Session) -> Session:
            return Session(session_id, (*continuation.context, *session.turns[len(logged) :]))

        moment = not_before_last(time, Session(session_id, tuple(logged)))
        return as_seen(
            agent.log_turns(continuation.new, moment, session_id, lambda session: announce(as_seen(session)))
        )


def _with_unlogged(agent: Conversation, continuation: Continuation, time: datetime) -> Session:
    """The session with its new turns, which are written nowhere."""
    name, context = continuation.session_id, continuation.context
    user, assistant = agent.responder.speakers
    moment = not_before_last(time, Session(name, tuple(context)))
    new: list[Turn] = []
    for message in continuation.new:
        role: Role = "user" if message.role == "user" else "assistant"
        speaker = user if role == "user" else assistant
        new.append(Turn(f"{name}.new{len(new)}", role, speaker, message.content, moment))
    return Session(name, (*context, *new))


def _check_name(session_name: str | None) -> None:
    if session_name is not None and not re.fullmatch(SESSION_ID, session_name):
        raise BadInput(f"session {session_name!r} is not a valid name; use at most 100 letters, digits and . _ : ~ -")


def _words(sent: Sequence[ClientMessage], is_unlogged: Sequence[bool]) -> list[Message]:
    """What was said in the messages that may be logged. The last message always may: without words it stays whole."""
    return [
        Message(message.role, message.content if words is None else words)
        for (message, words), is_left_out in zip(sent, is_unlogged, strict=True)
        if not is_left_out
    ]


def _base_name(session_name: str) -> str:
    return re.sub(r"~\d+$", "", session_name)
