"""Erasure for good: rows go, and everything in them is drawn from goes with them. Undo is the soft way.

What a system drew from an erased turn is erased in every system; sessions whose memory stood on it are read again.
Works inside one transaction; `Store` then proves on the bytes of the files that nothing is left.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, select, update

from localmem.errors import NotFound
from localmem.store import embeddings, jobs
from localmem.store.change_log import BankLog, Logged
from localmem.store.dependents import made_of, standing_on
from localmem.store.history import no_unit
from localmem.store.records import BatchState
from localmem.store.schema import banks, batches, changes, sessions, turns
from localmem.store.schema import jobs as jobs_table
from localmem.store.sessions import chunks, turns_by_id
from localmem.types import AddUnit, Change, RetireUnit, SetNote

_SOFT: tuple[BatchState, ...] = ("undone", "superseded")


@dataclass(slots=True)
class Erased:
    """What went, while it goes: the texts, the rows by table, the sessions to read again by system."""

    texts: set[str] = field(default_factory=set)
    rows: Counter[str] = field(default_factory=Counter)
    again: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()


class Eraser:
    """Erases for one user inside one transaction."""

    def __init__(self, connection: Connection, log: BankLog, user: str) -> None:
        self._connection = connection
        self._log = log
        self._user = user
        self.erased = Erased()

    def unit(self, system: str, unit_id: str, *, sources: bool) -> Erased:
        """A unit of one system with all that names it; with `sources` its turns and what else came of them too."""
        found = [
            self._log.codec.decode(body)
            for named in self._naming(system, [unit_id])
            for body in self._connection.execute(select(changes.c.body).where(named)).scalars()
        ]
        units = [change.unit for change in found if isinstance(change, AddUnit)]
        if not units:
            raise no_unit(self._user, system, unit_id)
        said = turns_by_id(self._connection, self._user, {turn for unit in units for turn in unit.sources})
        self._units(system, [unit_id])
        self._keep_texts(found)
        self._log.advance(self._connection, self._user, system)
        if sources:
            self._turns(set(said), set())
        else:
            self.erased.sources = tuple(said)
        return self._done()

    def session(self, session_id: str) -> Erased:
        """A session with its turns and all that was drawn from it, in every system."""
        of_session = and_(turns.c.user == self._user, turns.c.session == session_id)
        if not self._held(session_id):
            raise NotFound(f"user {self._user!r} has no session {session_id!r}; `localmem show` lists what there is")
        said = set(self._connection.execute(select(turns.c.id).where(of_session)).scalars())
        self._turns(said, {session_id})
        self._drop(jobs_table, and_(jobs_table.c.user == self._user, jobs_table.c.session == session_id))
        self._drop(sessions, and_(sessions.c.user == self._user, sessions.c.id == session_id))
        return self._done()

    def everything(self) -> Erased:
        """The user."""
        mine = changes.c.user == self._user
        bodies = self._connection.execute(select(changes.c.body).where(mine)).scalars()
        self._keep_texts(map(self._log.codec.decode, bodies))
        said = select(turns.c.text).where(turns.c.user == self._user)
        self.erased.texts.update(self._connection.execute(said).scalars())
        for table in (changes, batches, jobs_table, turns, sessions, banks):
            self._drop(table, table.c.user == self._user)
        if not any(self.erased.rows.values()):
            raise NotFound(f"there is no user {self._user!r}; `localmem doctor` lists who there is")
        return self._done()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _turns(self, said: Set[str], whole: Set[str]) -> None:
        """Turns, and in every system what was drawn from them. `whole` are sessions that go with all their turns."""
        held = select(turns.c.session).where(turns.c.user == self._user)
        touched = {
            session
            for part in chunks(sorted(said))
            for session in self._connection.execute(held.where(turns.c.id.in_(part))).scalars()
        }
        systems = select(batches.c.system).where(batches.c.user == self._user).distinct().order_by(batches.c.system)
        for system in self._connection.execute(systems).scalars().all():
            self._drawn(system, said, whole, touched | whole)
        texts = turns_by_id(self._connection, self._user, said)
        self.erased.texts.update(turn.text for turn in texts.values())
        for part in chunks(sorted(said)):
            self._drop(turns, and_(turns.c.user == self._user, turns.c.id.in_(part)))

    def _drawn(self, system: str, said: Set[str], whole: Set[str], touched: Set[str]) -> None:
        """What one system drew from these turns. Notes have no sources: those of a touched session count as drawn."""
        active = self._log.batches(self._connection, self._user, system)
        soft = self._log.batches(self._connection, self._user, system, _SOFT)
        gone: list[Logged] = []
        for log in (active, soft):
            seeds = [batch.number for batch in log if _stands_in(batch, said, whole, touched)]
            numbers = standing_on(log, seeds, in_words=True)
            gone += [batch for batch in log if batch.number in numbers]
        if not gone:
            return
        self._batches(system, gone)
        left = {batch.number for batch in gone}
        self._loose_ends(system, gone, [batch for batch in (*active, *soft) if batch.number not in left])
        self._read_again(system, {batch.session for batch in gone if batch.state == "active"}, whole)

    def _batches(self, system: str, gone: Collection[Logged]) -> None:
        self._keep_texts(change for batch in gone for change in batch.changes)
        for part in chunks(sorted(batch.number for batch in gone)):
            self._drop(changes, and_(changes.c.user == self._user, changes.c.batch.in_(part)))
            self._drop(batches, and_(batches.c.user == self._user, batches.c.number.in_(part)))
        self._log.advance(self._connection, self._user, system)

    def _loose_ends(self, system: str, gone: Collection[Logged], kept: Collection[Logged]) -> None:
        """Links, marks and retirements of units that are no more."""
        for part in chunks(sorted(_added(gone) - _added(kept))):
            self._units(system, part)

    def _units(self, system: str, units: Sequence[str]) -> None:
        for named in self._naming(system, units):
            self._drop(changes, named)
        self._hush(system, units)

    def _hush(self, system: str, units: Sequence[str]) -> None:
        """What one of these units took the place of stays retired, but the reason may repeat what the unit said."""
        by_them = and_(changes.c.user == self._user, changes.c.system == system, changes.c.other.in_(units))
        rows = self._connection.execute(select(changes).where(by_them, changes.c.type == "retire_unit")).mappings()
        for row in rows.all():
            change = self._log.codec.decode(row["body"])
            if not isinstance(change, RetireUnit) or not change.reason:
                continue
            self.erased.texts.add(change.reason)
            place = and_(changes.c.batch == row["batch"], changes.c.position == row["position"])
            body = self._log.codec.encode(replace(change, reason=""))
            self._connection.execute(update(changes).where(place).values(body=body))

    def _naming(self, system: str, units: Sequence[str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        """Changes of these units, and links to them."""
        mine = and_(changes.c.user == self._user, changes.c.system == system)
        return (
            and_(mine, changes.c.unit.in_(units)),
            and_(mine, changes.c.other.in_(units), changes.c.type == "add_link", changes.c.unit.not_in(units)),
        )

    def _read_again(self, system: str, found: Collection[str | None], whole: Set[str]) -> None:
        again = sorted({session for session in found if session is not None} - whole)
        jobs.queue_again(self._connection, self._user, system, again)
        if again:
            self.erased.again[system] = tuple(again)

    def _held(self, session_id: str) -> bool:
        query = select(sessions.c.id).where(sessions.c.user == self._user, sessions.c.id == session_id)
        return self._connection.execute(query).first() is not None

    def _keep_texts(self, found: Iterable[Change]) -> None:
        self.erased.texts.update(text for change in found for text in texts_of(change))

    def _drop(self, table: Table, which: ColumnElement[bool]) -> None:
        self.erased.rows[table.name] += self._connection.execute(delete(table).where(which)).rowcount

    def _done(self) -> Erased:
        self.erased.rows["embeddings"] = embeddings.forget(self._connection, self.erased.texts)
        return self.erased


def texts_of(change: Change) -> Iterator[str]:
    """The words in a change that a person may have said."""
    if isinstance(change, AddUnit):
        yield change.unit.text
        yield change.unit.key
    elif isinstance(change, SetNote):
        yield change.text
    elif isinstance(change, RetireUnit):
        yield change.reason


def _added(log: Iterable[Logged]) -> set[str]:
    return {change.unit.id for batch in log for change in batch.changes if isinstance(change, AddUnit)}


def _stands_in(batch: Logged, said: Set[str], whole: Set[str], touched: Set[str]) -> bool:
    if batch.session in whole or any(made_of(change, whole, said) for change in batch.changes):
        return True
    return batch.session in touched and any(isinstance(change, SetNote) for change in batch.changes)
