"""MemoryWriter: commits what a memory system learns, to the journal first and then to the memory.

Does not depend on how turns are logged or replies are made.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TypeVar

from localmem.bank import Bank
from localmem.chat.forgetting import Forgetting
from localmem.chat.quarantine import screen_session
from localmem.errors import Conflict
from localmem.journal import Journal, check_order
from localmem.memory import Memory
from localmem.types import Change, Exchange, Hide, Recall, Session, SetNote

log = logging.getLogger(__name__)

_ATTEMPTS = 20  # before a commit is given up, each after another process's own

Result = TypeVar("Result")


class MemoryWriter:
    """Commits what a memory system proposes, to the journal first and then to the memory; for any number of threads.

    The only place where a live memory changes. When another process has changed the same bank, the commit is refused as
    a Conflict; the writer then reads the bank again and repeats the step. With `quarantine` no system reads what
    tries to instruct a model. A refresh also calls `reread`.
    """

    def __init__(
        self,
        memory: Memory,
        journal: Journal,
        *,
        quarantine: bool = True,
        reread: Callable[[], None] = lambda: None,
    ) -> None:
        self.memory = memory
        self._quarantine = quarantine
        self._reread = reread
        self.forgetting = Forgetting(memory, journal)
        self._journal = journal
        self._lock = threading.RLock()  # commits to the bank, one at a time
        self._finishing = threading.Lock()  # sessions are remembered one after another, in the order they were closed

    def commit(self, cause: str, changes: Sequence[Change]) -> None:
        """Changes made by hand. The same cause a second time changes nothing."""

        def write() -> None:
            if self._journal.commit(cause, changes):
                self.memory.apply(changes)

        with self._lock:
            self._with_retry(write)

    def observe(self, exchange: Exchange) -> None:
        """Commit what the system learns from one exchange, if anything."""

        def write() -> None:
            turns = self._screen_session(Session("", exchange.turns()))[0].exchanges()
            changes = self.memory.observe(replace(turns[0], recall=exchange.recall)) if turns else []
            if changes and exchange.reply and self._journal.commit(exchange.reply.id, changes):
                self.memory.apply(changes)

        with self._lock:
            self._with_retry(write)

    def observe_turn(self, session: Session, recall: Recall | None = None) -> None:
        """Commit what the system learns from the last turn of an open session, if anything.

        The turn itself is durable: what a power cut loses of this is learned again when the session ends.
        """

        def write() -> None:
            screened, injections = self._screen_session(session)
            changes = [*injections, *self.memory.observe_turn(screened, recall)]
            if changes and self._journal.commit(session.turns[-1].id, changes, derived=True):
                self.memory.apply(changes)

        if type(self.memory).observe_turn is not Memory.observe_turn:
            with self._lock:
                self._with_retry(write)

    def finish(self, session: Session) -> bool:
        """Remember a closed session, as logged. False, and nothing changes, if another process has done it before."""
        with self._finishing:
            is_new, logged = self._with_retry(lambda: self._remember(session))
            self._forget_as_asked(logged)
            return is_new

    def _remember(self, session: Session) -> tuple[bool, Session]:
        """Whether the session was not remembered before, and its turns in the log.

        Repeated until nothing that the system read was hidden, erased or rewritten meanwhile.
        """
        while True:
            bank, logged = self.memory.bank, self._journal.session(session.id) or session
            visible, injections = self._screen_session(bank.visible(logged))
            # May take long: commits of other exchanges need not wait.
            changes = [*injections, *(self.memory.end_session(visible) if visible.turns else [])]
            with self._lock:
                if self._is_current(bank, changes) and logged == (self._journal.session(session.id) or session):
                    is_new = self._journal.finish(session.id, changes)
                    if is_new:
                        self.memory.apply(changes)
                    return is_new, logged
            log.info("session %s is remembered again: what it was made from has changed", session.id)

    def _is_current(self, read: Bank, changes: Sequence[Change]) -> bool:
        """Whether the bank still has what was read, and these changes overwrite no newer note."""
        bank = self.memory.bank
        notes = [change.name for change in changes if isinstance(change, SetNote)]
        same_notes = all(bank.notes.get(name) == read.notes.get(name) for name in notes)
        return same_notes and bank.hidden == read.hidden and read.units.keys() <= bank.units.keys()

    def settle(self) -> None:
        """Wait until what is committed can be found: the index follows the commit, and may have to load an encoder."""
        with self._lock:
            return

    def forget(self, recall: Recall) -> None:
        """Commit what is hidden at a request to forget, which the first change names.

        Notes are written apart: they depend on the sessions that made them, what is hidden on none.
        """
        request = recall.proposed[0]
        if isinstance(request, Hide):
            notes = [change for change in recall.proposed if isinstance(change, SetNote)]
            self.commit(f"forget:{request.by}", [change for change in recall.proposed if change not in notes])
            if notes:
                self.commit(f"forget:{request.by}/notes", notes)

    def _forget_as_asked(self, session: Session) -> None:
        """Carry out the requests to forget of an imported or rebuilt session: nobody answered them when it was held."""
        for number, turn in enumerate(session.turns):
            if turn.role != "user" or turn.id in self.memory.bank.hidden:
                continue
            recall = self.forgetting.recall(replace(session, turns=session.turns[: number + 1]))
            if recall is not None:
                replies = takewhile(lambda other: other.role == "assistant", session.turns[number + 1 :])
                hides = tuple(Hide(reply.id, turn.id, reply.time) for reply in replies)
                self.forget(replace(recall, proposed=(*recall.proposed, *hides)))

    def read(self, sessions: Iterable[Session]) -> None:
        """Log and remember past sessions, in order, as if they had been held here. Raises BadInput, OutOfOrder."""
        for session in sessions:
            check_order(session)
            self._journal.add_turns(session.id, session.turns)
            self.replay(session)
            self.finish(self._journal.close(session.id) or session)

    def replay(self, session: Session) -> None:
        """Observe the exchanges of a past session in order, for systems that work at each turn."""
        if type(self.memory).observe is Memory.observe:
            return
        session = self.memory.bank.visible(session)
        count = 0
        for exchange in session.exchanges():
            count += len(exchange.turns())
            if exchange.user and exchange.reply:
                recall = self.memory.recall(replace(session, turns=session.turns[: count - 1]))
                self.observe(replace(exchange, recall=recall))

    def refresh(self) -> None:
        """Take over what other processes have committed, logged or erased since it was read."""
        if not self._journal.is_current():
            self._catch_up()
        self._reread()

    def _screen_session(self, session: Session) -> tuple[Session, list[Change]]:
        return screen_session(session, self.memory.bank) if self._quarantine else (session, [])

    def _with_retry(self, write: Callable[[], Result]) -> Result:
        """Write again after each commit of another process, which may be importing."""
        for _ in range(_ATTEMPTS):
            try:
                return write()
            except Conflict:
                self._catch_up()
        return write()

    def _catch_up(self) -> None:
        log.info("the bank of %s was changed by another process; reading it again", self.memory.name)
        with self._lock:
            self.memory.catch_up(self._journal.bank())
