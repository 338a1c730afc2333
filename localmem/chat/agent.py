"""ChatAgent: one user's conversation with one memory. Hears, recalls, replies, and remembers when a session is over.

Knows no store and no backend: it writes through a Journal and asks an LLM. It reads no clock; times come with turns.
Several threads may use one agent: replies run side by side, the bank changes under one lock.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import dropwhile, takewhile
from typing import NamedTuple

from localmem.chat.prefetch import heard_ahead
from localmem.chat.prompt_layout import Places
from localmem.errors import BadInput, Conflict, NotFound, OutOfOrder
from localmem.journal import Journal, NoJournal
from localmem.llm.base import LLM, alternate
from localmem.llm.streams import drained, teed
from localmem.memory import Memory
from localmem.prompts import load
from localmem.text.dialogue import day
from localmem.types import Change, Completion, Exchange, Message, Prompt, Recall, Reply, Session, Turn

log = logging.getLogger(__name__)

_SHOWN = 4096  # tokens of memory in a session's dialogue, and no more than half of the context: a server keeps them all

Adjust = Callable[[Prompt], Prompt]
Announce = Callable[[Session], None]


class Ready(NamedTuple):
    """All that a reply to a dialogue needs: what was recalled, the prompt, and how the last turn stands in it."""

    recall: Recall
    prompt: Prompt
    content: str


class ChatAgent:
    """One user's agent.

    `opened` are the sessions that go on, `waiting` those that are over and not yet remembered: the last turns of the
    latter stay in sight, `carry` of them, so that a user reads what they wrote. `memory_position` says where recalled
    memory stands: in the system message, or last, before the user's turn. There it stays while the session goes on, and
    later turns show what is new: a prompt then begins with the one before, and a server's prefix cache holds that.
    """

    def __init__(
        self,
        *,
        memory: Memory,
        llm: LLM,
        journal: Journal | None = None,
        opened: Iterable[Session] = (),
        waiting: Iterable[Session] = (),
        user: str = "User",
        assistant: str = "Assistant",
        instructions: str = "",
        memory_position: str = "last",
        carry: int = 12,
    ) -> None:
        self.memory = memory
        self.llm = llm
        self.user = user
        self.assistant = assistant
        self._journal: Journal = journal or NoJournal()
        self._opened = {session.id: session for session in opened}
        # Never changed in place, so that a reply reads it while a turn is being written under the guard.
        self._waiting = {session.id: session for session in waiting}
        self._instructions = instructions
        self._in_system = memory_position == "system"
        self._carry = carry
        self._guard = threading.RLock()
        self._remembering = threading.Lock()
        self._places = Places(llm.count_tokens, min(_SHOWN, llm.context_length // 2))

    # -- talking ---------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session | None:
        """The session that was opened last and still goes on."""
        with self._guard:
            return next(reversed(self._opened.values()), None)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All sessions that go on."""
        with self._guard:
            return tuple(self._opened.values())

    @property
    def waiting(self) -> tuple[Session, ...]:
        """The sessions that are over and not yet remembered."""
        with self._guard:
            return tuple(self._waiting.values())

    def hear(
        self, text: str, time: datetime, session_id: str | None = None, announce: Announce | None = None
    ) -> Session:
        """The user's turn, durable on return, in the session named, else the one that goes on, else a new one.

        `announce` is called before with the session as it will be, if the turn can be written.
        """
        with self._guard:
            open_id = session_id or (self.session.id if self.session else uuid.uuid4().hex[:12])
            return self._append(open_id, [Message("user", text)], time, announce)

    def hear_all(
        self, messages: Sequence[Message], time: datetime, session_id: str, announce: Announce | None = None
    ) -> Session:
        """Turns of both sides that were said elsewhere, durable together on return; `announce` as in `hear`."""
        with self._guard:
            return self._append(session_id, messages, time, announce)

    def prepare(self, dialogue: Session, instructions: str | None = None) -> Ready:
        """What `reply` works out before it asks the model. Nothing changes."""
        # What waits is read before the bank: a session remembered meanwhile is then seen twice, never not at all.
        carried = self._carried(dialogue)
        recall = self.memory.recall(dialogue)
        return Ready(recall, *self._composed(dialogue, recall, instructions, carried))

    def reply(
        self,
        session_id: str,
        *,
        dialogue: Session | None = None,
        instructions: str | None = None,
        adjust: Adjust | None = None,
        ready: Ready | None = None,
    ) -> Generator[str, None, Reply]:
        """Answers the session's last turn piece by piece; the generator returns the whole Reply.

        A reply that is broken off (the generator is closed) is kept as far as it was given. `dialogue` is what the
        model sees where it differs from the session's log: it ends with the turn to answer. `adjust` may change the
        prompt's sampling; `instructions` stand in for the agent's own. `ready` is what `prepare` gave for both.
        """
        session = dialogue or self._going(session_id)
        recall, prompt, content = ready or self.prepare(session, instructions)
        prompt = adjust(prompt) if adjust else prompt
        said: list[str] = []
        whole = False
        try:
            completion = yield from teed(self.llm.stream(prompt), said)
            whole = True
        finally:
            if said and not whole:
                self._say(session_id, session.turns[-1], "".join(said))
        turn, new = self._say(session_id, session.turns[-1], completion.text)
        self._keep_in_place(session, recall, content, completion)
        if new:
            self._observe(Exchange(session.turns[-1], turn, recall))
        return Reply(turn, recall, prompt, completion)

    def stream(self, text: str, time: datetime) -> Generator[str, None, Reply]:
        """`hear`, then `reply`; what is recalled is looked up while the turn is being written."""
        session, ready = heard_ahead(partial(self.hear, text, time, None), self.prepare)
        return (yield from self.reply(session.id, dialogue=session, ready=ready))

    def chat(self, text: str, time: datetime) -> Reply:
        """The whole reply at once."""
        return drained(self.stream(text, time))

    def answer(self, session: Session) -> Reply:
        """The reply to a session that is written nowhere: nothing changes, so many may be asked of one memory."""
        recall, prompt, _ = self.prepare(session)
        (completion,) = self.llm.generate([prompt])
        last = session.turns[-1]
        return Reply(self._turn(session, "assistant", completion.text, last.time), recall, prompt, completion)

    def prompt(
        self, session: Session, recall: Recall, instructions: str | None = None, carried: Sequence[Turn] = ()
    ) -> Prompt:
        """A reply's prompt: fixed instructions, the dialogue, and what was recalled, where the model reads it best.

        `carried` are turns of earlier sessions that stand ahead of the dialogue.
        """
        return self._composed(session, recall, instructions, carried)[0]

    def _composed(
        self, session: Session, recall: Recall, instructions: str | None, carried: Sequence[Turn]
    ) -> tuple[Prompt, str]:
        """The prompt, and its last turn with the memory that is shown there."""
        file = load(self.memory.response_prompt)
        last = session.turns[-1]
        values = {
            "today": day(last.time),
            "user": self.user,
            "assistant": self.assistant,
            "instructions": self._instructions if instructions is None else instructions,
        }
        in_system = recall.text if self._in_system else ""
        shown = "" if self._in_system else self._places.fresh(session, recall.text)
        content = f"{file.section('memory', memory=shown, **values)}\n\n{last.text}" if shown else last.text
        said = (*carried, *session.turns[:-1])
        messages = (
            Message("system", file.section("system", memory=in_system, **values)),
            *(Message(turn.role, self._places.content(session.id, turn)) for turn in said),
            Message("user", content),
        )
        prompt = Prompt(
            name=file.name,
            messages=alternate(messages),
            max_tokens=file.max_tokens,
            temperature=file.temperature,
            stop=file.stop,
        )
        return prompt, content

    # -- remembering -----------------------------------------------------------------------------------------------

    def close(self, session_id: str | None = None) -> str | None:
        """The session is over, durably; `remember` does the work of it. Returns its id, None when none goes on."""
        with self._guard:
            session = self._opened.get(session_id) if session_id else self.session
            if session is None:
                return None
            logged = self._journal.close(session.id)
            del self._opened[session.id]
            self._places.forget(session.id)
            self._waiting = {**self._waiting, session.id: logged or session}
            return session.id

    def commit(self, cause: str, changes: Sequence[Change]) -> None:
        """Changes made by hand. The same cause again changes nothing."""
        with self._guard:
            try:
                self._journal.commit(cause, changes)
            except Conflict:
                self._catch_up()
                self._journal.commit(cause, changes)
            self.memory.apply(changes)

    def refresh(self) -> None:
        """Take over what another process has committed to the bank since it was read."""
        if not self._journal.is_current():
            self._catch_up()

    def await_memory(self, session: Session) -> None:
        """A session that was closed elsewhere waits to be remembered here."""
        with self._guard:
            self._opened.pop(session.id, None)
            self._waiting = {**self._waiting, session.id: self._waiting.get(session.id, session)}

    def remember(self, session_id: str) -> bool:
        """The job of a closed session: its changes are worked out and committed. False if that was done before."""
        with self._remembering:
            with self._guard:
                session = self._waiting.get(session_id)
            if session is None:
                raise NotFound(f"session {session_id!r} does not wait to be remembered; close it first")
            try:
                return self._finish(session)
            except Conflict:
                self._catch_up()
                return self._finish(session)

    def end_session(self, session_id: str | None = None) -> str | None:
        """`close` and `remember` at once. Returns the session's id, None when none goes on."""
        closed = self.close(session_id)
        if closed is not None:
            self.remember(closed)
        return closed

    def read(self, sessions: Iterable[Session]) -> None:
        """Sessions of the past, in order, as if they had been held with this agent."""
        for session in sessions:
            _check_order(session)
            with self._guard:
                self._journal.add_turns(session.id, session.turns)
                self._opened[session.id] = session
            self.relive(session)
            self.end_session(session.id)

    def relive(self, session: Session) -> None:
        """What `observe` would have seen while the session was held, for systems that work each turn."""
        if type(self.memory).observe is Memory.observe:
            return
        heard = 0
        for exchange in session.exchanges():
            heard += len(exchange.turns())
            if exchange.user and exchange.reply:
                seen = self.memory.recall(replace(session, turns=session.turns[: heard - 1]))
                self._observe(replace(exchange, recall=seen))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _going(self, session_id: str) -> Session:
        with self._guard:
            session = self._opened.get(session_id)
        if session is None or not session.turns:
            raise NotFound(f"session {session_id!r} does not go on; say something in it first")
        return session

    def _say(self, session_id: str, asked: Turn, text: str) -> tuple[Turn, bool]:
        """The reply as a turn, and whether it is new: the same words given again to one turn are written once."""
        with self._guard:
            session = self._going(session_id)
            for turn in _replies(session, asked):
                if turn.text == text:
                    return turn, False
            time = max(asked.time, session.turns[-1].time)  # the user may have gone on while the reply was made
            return self._append(session_id, [Message("assistant", text)], time).turns[-1], True

    def _append(
        self, session_id: str, messages: Sequence[Message], time: datetime, announce: Announce | None = None
    ) -> Session:
        with self._guard:
            session = self._opened.get(session_id) or Session(session_id)
            if session.turns and time < session.turns[-1].time:
                raise OutOfOrder(
                    f"a turn of {time.isoformat()} came after one of {session.turns[-1].time.isoformat()}; "
                    "give turns in the order they were said"
                )
            grown = session
            for message in messages:
                turn = self._turn(grown, message.role, message.content, time)
                grown = replace(grown, turns=(*grown.turns, turn))
            if announce:
                announce(grown)
            self._journal.add_turns(session_id, grown.turns[len(session.turns) :])
            self._opened[session_id] = grown
            return grown

    def _turn(self, session: Session, role: str, text: str, time: datetime) -> Turn:
        speaker = self.user if role == "user" else self.assistant
        return Turn(f"{session.id}.{_next_number(session)}", role, speaker, text, time)  # type: ignore[arg-type]

    def _keep_in_place(self, session: Session, recall: Recall, content: str, completion: Completion) -> None:
        """The next prompt shows the turn as this one did, unless this one was too long to show everything."""
        if completion.trimmed:
            self._places.forget(session.id)
        elif not self._in_system:
            self._places.put(session, self._places.fresh(session, recall.text), content)

    def _carried(self, dialogue: Session) -> tuple[Turn, ...]:
        """The last turns of sessions that are over and not yet remembered, but for those that the dialogue shows."""
        shown = {turn.id for turn in dialogue.turns}
        turns = [turn for session in self._waiting.values() for turn in session.turns if turn.id not in shown]
        return tuple(turns[-self._carry :]) if self._carry else ()

    def _finish(self, session: Session) -> bool:
        changes = self.memory.end_session(session)
        with self._guard:
            done = self._journal.finish(session.id, changes)
            if done:
                self.memory.apply(changes)
            self._waiting = {name: one for name, one in self._waiting.items() if name != session.id}
        return done

    def _observe(self, exchange: Exchange) -> None:
        try:
            self._commit(exchange)
        except Conflict:
            self._catch_up()
            self._commit(exchange)

    def _commit(self, exchange: Exchange) -> None:
        with self._guard:
            changes = self.memory.observe(exchange)
            if changes and exchange.reply:
                self._journal.commit(exchange.reply.id, changes)
                self.memory.apply(changes)

    def _catch_up(self) -> None:
        """Another process changed this bank: take over what it committed."""
        log.warning("the bank of %s was changed elsewhere; reading it again", self.memory.name)
        with self._guard:
            self.memory.catch_up(self._journal.bank())


def _next_number(session: Session) -> int:
    """Behind the last turn's number: an erasure may have left fewer turns than were numbered."""
    name, _, number = session.turns[-1].id.rpartition(".") if session.turns else ("", "", "")
    return int(number) + 1 if name == session.id and number.isdecimal() else len(session.turns)


def _replies(session: Session, asked: Turn) -> Iterator[Turn]:
    """The replies that a log may hold for a turn: those right behind it, and those that the log ends with."""
    behind = dropwhile(lambda turn: turn.id != asked.id, session.turns)
    next(behind, None)
    yield from takewhile(lambda turn: turn.role == "assistant", behind)
    yield from takewhile(lambda turn: turn.role == "assistant", reversed(session.turns))


def _check_order(session: Session) -> None:
    if not session.turns:
        raise BadInput(f"session {session.id!r} has no turns; leave it out")
    for before, after in zip(session.turns, session.turns[1:], strict=False):
        if after.time < before.time:
            raise OutOfOrder(
                f"turn {after.id!r} of {after.time.isoformat()} follows one of {before.time.isoformat()}; "
                "give turns in the order they were said"
            )
