"""The desk: which session a request belongs to, who is talking in it, and when it is over.

Requests of one user are placed one after the other; replies run side by side. Knows no HTTP. The clock is injected.

A session is over when a client says so or when it was idle. A client that goes on with a dialogue whose session is over
gets a new session; the messages that the old one holds are not written again. A client that names its sessions goes on
under the name it gave, with ~2, ~3 and so on behind it.
"""

import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from localmem.chat.agent import Announce, ChatAgent
from localmem.errors import BadInput, Conflict, NotFound
from localmem.runtime import Runtime
from localmem.server.conversation import Fit, Place, best, fit
from localmem.server.reply_stream import Talk
from localmem.server.schemas import SESSION_ID
from localmem.types import Message, Session

log = logging.getLogger(__name__)

Clock = Callable[[], datetime]

_LOOKED_BACK = 20  # sessions that are over, in which a dialogue that goes on is looked for
_PATIENCE = 30.0  # seconds that a stopped reply may take to write its last words


@dataclass(frozen=True, slots=True)
class Heard:
    """What a request said. `dialogue` is what the model is to see of the session."""

    agent: ChatAgent
    dialogue: Session


class Desk:
    """One for the server."""

    def __init__(self, runtime: Runtime, now: Clock) -> None:
        self._runtime = runtime
        self._now = now
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._talks: dict[str, set[Talk]] = {}

    # -- talking ---------------------------------------------------------------------------------------------------

    def hear(
        self, user: str, sent: Sequence[Message], named: str | None, talk: Talk, announce: Callable[[Heard], None]
    ) -> Heard:
        """Writes what is new of the messages, durable on return; the last one is the user's.

        `announce` is called before with what will be returned, unless nothing is new. Raises BadInput, StoreError.
        """
        if named is not None and not re.match(SESSION_ID, named):
            raise BadInput(f"session {named!r} cannot be used; give at most 100 letters, digits and . _ : ~ -")
        with self._lock(user):
            self._settle(user, [talk for talk in self._of(user) if talk.stopped])
            try:
                heard = self._heard(user, sent, named, announce)
            except BadInput:
                if not self._is_stale(user):
                    raise
                self._runtime.forget_agent(user)
                heard = self._heard(user, sent, named, announce)
            talk.session = heard.dialogue.id
            with self._guard:
                self._talks.setdefault(user, set()).add(talk)
        return heard

    def done(self, user: str, talk: Talk) -> None:
        """The talk has written its last turn."""
        with self._guard:
            talks = self._talks.get(user, set())
            talks.discard(talk)
            if not talks:
                self._talks.pop(user, None)

    def talking(self) -> int:
        """How many replies are being given."""
        with self._guard:
            return sum(map(len, self._talks.values()))

    def stop_all(self) -> None:
        """Every reply ends before its next piece."""
        with self._guard:
            talks = [talk for talks in self._talks.values() for talk in talks]
        for talk in talks:
            talk.stop()

    # -- endings ---------------------------------------------------------------------------------------------------

    def end(self, user: str, named: str | None = None) -> list[str]:
        """Closes the session, or all of the user's; a reply that is being given in it ends. Raises NotFound."""
        with self._lock(user):
            agent = self._runtime.agent(user)
            going = [session.id for session in agent.sessions]
            ends = going if named is None else [name for name in going if _family(name) == _family(named)]
            if named is not None and not ends:
                raise NotFound(f"session {named!r} does not go on; these do: {', '.join(going) or 'none'}")
            self._settle(user, [talk for talk in self._of(user) if talk.session in ends])
            return self._close(agent, ends)

    def end_idle(self, user: str, is_idle: Callable[[Session], bool]) -> list[str]:
        """Closes the user's sessions that are idle and in which no reply is being given."""
        with self._lock(user):
            agent = self._runtime.agent(user)
            busy = {talk.session for talk in self._of(user)}
            return self._close(agent, [one.id for one in agent.sessions if one.id not in busy and is_idle(one)])

    @contextmanager
    def quiet(self, user: str) -> Iterator[ChatAgent]:
        """The user's agent, with the memory as it is in the store, while no new message of the user is heard."""
        with self._lock(user):
            yield self._agent(user)

    @contextmanager
    def alone(self, user: str) -> Iterator[None]:
        """While the user's memory is changed in the store itself: replies end, and the agent is made anew afterwards.

        A reply that is being given may be about what is to be erased, so it is not waited for but broken off.
        """
        with self._lock(user):
            self._settle(user, self._of(user))
            try:
                yield
            finally:
                self._runtime.forget_agent(user)
        self._runtime.nudge()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _heard(self, user: str, sent: Sequence[Message], named: str | None, announce: Callable[[Heard], None]) -> Heard:
        agent = self._agent(user)
        place = self._named(agent, user, sent, named) if named else self._placed(agent, user, sent)
        return Heard(agent, self._write(agent, place, lambda dialogue: announce(Heard(agent, dialogue))))

    def _agent(self, user: str) -> ChatAgent:
        agent = self._runtime.agent(user)
        agent.refresh()
        return agent

    def _is_stale(self, user: str) -> bool:
        """Whether another process (a chat at the terminal, an erasure) closed, opened or changed sessions."""
        known = {session.id: len(session.turns) for session in self._runtime.agent(user).sessions}
        return known != {info.id: info.turns for info in self._runtime.store.sessions(user, "open")}

    def _lock(self, user: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(user, threading.Lock())

    def _of(self, user: str) -> list[Talk]:
        with self._guard:
            return list(self._talks.get(user, ()))

    def _settle(self, user: str, talks: Sequence[Talk]) -> None:
        """These replies end, and what they said is written."""
        for talk in talks:
            talk.stop()
        for talk in talks:
            if not talk.wait(_PATIENCE):
                raise Conflict(f"a reply in session {talk.session!r} does not end; try again in a moment")

    def _close(self, agent: ChatAgent, names: Sequence[str]) -> list[str]:
        closed = [name for name in names if agent.close(name)]
        if closed:
            self._runtime.nudge()
        return closed

    def _placed(self, agent: ChatAgent, user: str, sent: Sequence[Message]) -> Place:
        found = best(agent.sessions, sent)
        return found.place(sent) if found else self._begin(user, sent, uuid.uuid4().hex[:12])

    def _named(self, agent: ChatAgent, user: str, sent: Sequence[Message], named: str) -> Place:
        for session in reversed(agent.sessions):
            if _family(session.id) == _family(named):
                return (fit(session, sent, named=True) or Fit(session, ())).place(sent)
        return self._begin(user, sent, self._next_name(user, named))

    def _next_name(self, user: str, named: str) -> str:
        """The name itself, or the first of the names behind it that no session has."""
        taken = {info.id for info in self._runtime.store.sessions(user)}
        number, name = 1, named
        while name in taken:
            number += 1
            name = f"{_family(named)}~{number}"
        return name

    def _begin(self, user: str, sent: Sequence[Message], name: str) -> Place:
        """A new session; what a session that is over holds of the messages is shown and not written again."""
        held = best(self._over(user), sent) if len(sent) > 1 else None
        return held.place_behind(sent, name) if held else Place(name, sent)

    def _over(self, user: str) -> Iterator[Session]:
        closed = [info for info in self._runtime.store.sessions(user, "closed") if info.turns]
        for info in sorted(closed, key=lambda info: info.ended)[-_LOOKED_BACK:]:
            yield self._runtime.store.session(user, info.id)

    def _write(self, agent: ChatAgent, place: Place, announce: Announce) -> Session:
        """The new turns are durable; the session as the model is to see it."""

        def shown(grown: Session) -> Session:
            return Session(place.session_id, (*place.shown, *grown.turns[len(held) :]))

        if not place.new:
            return Session(place.session_id, place.shown)
        held = next((one.turns for one in agent.sessions if one.id == place.session_id), ())
        times = [self._now(), *(turn.time for turn in held[-1:])]
        time = max(times)  # a clock that was set back must not stop a talk
        return shown(agent.hear_all(place.new, time, place.session_id, lambda grown: announce(shown(grown))))


def _family(name: str) -> str:
    return re.sub(r"~\d+$", "", name)
