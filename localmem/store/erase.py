"""Permanent erasure: deletes rows and everything that was derived from them. `undo` is the reversible way.

The difficulty is that text spreads. A turn is stored once, but systems put its text into units, and these into other
units, notes, reasons of retirements and vectors, none of which says which of its words came from where. The rules err
on the safe side:

- A unit that names an erased turn or session as its source is derived from it. Its whole batch goes, with all batches
  that depend on the batch (`dependents`), in every system, whether they are in effect or were undone.
- A unit of a session that lost turns may say more than the turns that it names, as one that a model wrote from all of
  them. It counts as derived where it has a word that those turns do not have.
- A note has no sources. When a session lost turns, every note that was written in a batch of the session counts as
  derived, and so do all later texts of that note.
- What else was in a deleted batch is lost too, so the sessions of deleted batches are queued to be remembered again,
  from the turns that still exist. Of an open session only the batches go that are derived from what is erased.
- Links and marks only name a unit. They go with the unit, but do not spread further.
- A refused text may repeat what an earlier session said, by way of a note. It is a record only, so all of them go that
  are not older than what was derived from the erased.

Works inside one transaction. `erase_check` then verifies on the bytes of the files that the text is gone.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import get_args

from sqlalchemy import ColumnElement, Connection, Table, Text, and_, delete, func, select, type_coerce, update

from localmem.retrieval.base import passage_digest
from localmem.retrieval.views import index_texts
from localmem.store import jobs
from localmem.store.change_log import BatchState, ChangeLog, LoggedBatch, no_unit, of_bank
from localmem.store.encryption import KeyDestroyed
from localmem.store.schema import banks, batches, changes, sessions, turns
from localmem.store.schema import jobs as jobs_table
from localmem.store.sessions import chunks, no_session, no_user, replies_to, replies_with, session_states, turns_by_id
from localmem.store.undo import dependents
from localmem.store.unit_vectors import delete_unit_vectors
from localmem.store.vectors import delete_vectors, reseal_vectors
from localmem.text.dialogue import without_speaker
from localmem.text.quotations import quotations
from localmem.types import AddUnit, Change, Message, RefuseText, RetireUnit, Role, SetNote, Unit

_INACTIVE: tuple[BatchState, ...] = ("undone", "superseded")


class Eraser:
    """Erases for one user inside one transaction.

    Collects what was deleted: the `texts`, the `messages` that were turns, the `sessions` that went whole, the number
    of `rows` by table, and in `reread` the sessions to remember again, by system. `sources` are the turns of an erased
    unit that stay.
    """

    def __init__(self, connection: Connection, log: ChangeLog, user: str) -> None:
        self._connection = connection
        self._log = log
        self._user = user
        self.texts: set[str] = set()
        self.messages: set[Message] = set()
        self.sessions: set[str] = set()
        self.rows: Counter[str] = Counter()
        self.reread: dict[str, tuple[str, ...]] = {}
        self.sources: tuple[str, ...] = ()

    def erase_units(self, system: str, unit_ids: Iterable[str], *, sources: bool) -> None:
        """Units with all that names them, and the versions that they replaced by hand.

        With `sources` also their turns, the replies to them, those that quote them, and what came from all these.
        An id may be a request to forget: then all that it hid is erased, with the turns.
        """
        erased, turn_ids = set[str](), set[str]()
        for unit_id in unit_ids:
            if unit_id not in erased:
                versions = self._versions(system, unit_id)
                erased.update(versions)
                turn_ids |= self._erase_versions(system, versions, sources=sources)
        self.sources = tuple(turn for turn in self.sources if turn not in turn_ids)
        if turn_ids:  # last, because another of the units may go with the turns of one
            self._delete_turns(turn_ids, set())

    def _erase_versions(self, system: str, versions: Sequence[str], *, sources: bool) -> Set[str]:
        """A unit in all its versions, or what a request hid. Returns the ids of the turns that are to go with it."""
        decoded = [
            self._log.serializer.decode(body)
            for condition in self._naming(system, versions)
            for body in self._connection.execute(select(changes.c.body).where(condition)).scalars()
        ]
        units = [change.unit for change in decoded if isinstance(change, AddUnit)]
        if not units:
            return self._erase_hidden(system, versions[0])
        source_turns = turns_by_id(self._connection, self._user, {turn for unit in units for turn in unit.sources})
        self._delete_refusals(system, min(self._first_batch(system, name) for name in versions))
        self._delete_units(system, versions)
        self._record_texts(decoded)
        self._log.advance(self._connection, self._user, system)
        if not sources:
            self.sources += tuple(source_turns)
            return set()
        replies = replies_to(self._connection, self._user, set(source_turns))
        quotes = {text for unit in units for text in quotations(unit)}
        return {*source_turns, *replies, *replies_with(self._connection, self._user, quotes)}

    def _versions(self, system: str, unit_id: str) -> list[str]:
        """A unit, and those that edits by hand replaced on the way to it: an edit hides the unit before by its own."""
        unit = changes.alias()
        added = select(unit.c.unit).where(unit.c.user == self._user, unit.c.system == system)
        added = added.where(unit.c.type == "add_unit")
        hidden = select(changes.c.unit).select_from(batches.join(changes, changes.c.batch == batches.c.number))
        hidden = hidden.where(of_bank(self._user, system), changes.c.type == "hide", changes.c.unit.in_(added))
        versions = [unit_id]
        if self._connection.execute(added.where(unit.c.unit == unit_id)).first():
            for name in versions:  # which grows meanwhile
                versions += self._connection.execute(hidden.where(changes.c.other == name)).scalars()
        return versions

    def _erase_hidden(self, system: str, request: str) -> Set[str]:
        """The units that a request hid. Returns the ids of the turns that it hid. Raises NotFound for none."""
        by_request = and_(changes.c.user == self._user, changes.c.other == request, changes.c.type == "hide")
        items = set(self._connection.execute(select(changes.c.unit).where(by_request)).scalars())
        if not items:
            raise no_unit(self._user, system, request)
        hidden_turns = set(turns_by_id(self._connection, self._user, items))
        for unit in sorted(items - hidden_turns - {request}):
            self._erase_versions(system, self._versions(system, unit), sources=False)
        return hidden_turns

    def erase_session(self, session_id: str) -> None:
        """A session with its turns and all that was derived from it, in every system."""
        if session_id not in session_states(self._connection, self._user):
            raise no_session(self._user, session_id)
        of_session = and_(turns.c.user == self._user, turns.c.session == session_id)
        self._delete_turns(set(self._connection.execute(select(turns.c.id).where(of_session)).scalars()), {session_id})
        self._delete(jobs_table, and_(jobs_table.c.user == self._user, jobs_table.c.session == session_id))
        self._delete(sessions, and_(sessions.c.user == self._user, sessions.c.id == session_id))
        self.sessions.add(session_id)

    def erase_user(self) -> None:
        """All rows of the user."""
        keys = self._log.database.keys
        self._record_texts(map(self._log.serializer.decode, self._readable(changes, "body")))
        roles: tuple[Role, ...] = get_args(Role)
        for role in roles:
            texts = self._readable(turns, "text", turns.c.role == role)
            self._record_messages(Message(role, text) for text in texts)
        for table in (changes, batches, jobs_table, turns, sessions, banks):
            self._delete(table, table.c.user == self._user)
        if not any(self.rows.values()):
            raise no_user(self._user)
        self.rows["unit_vectors"] = delete_unit_vectors(self._connection, '"user" = %s', [self._user])
        if keys:  # before the commit: after a crash in between, erasing again removes what nobody can read
            self.rows["keys"] = int(keys.destroy(self._user))
            reseal_vectors(self._connection, *keys.replace_vector_key())

    def _readable(self, table: Table, name: str, *conditions: ColumnElement[bool]) -> Iterator[str]:
        """The user's texts in a column, without those whose key is gone: nobody can read them any more."""
        keys = self._log.database.keys
        query = select(type_coerce(table.c[name], Text)).where(table.c.user == self._user, *conditions)
        for text in self._connection.execute(query).scalars():
            with suppress(KeyDestroyed):
                yield keys.open(text) if keys else text

    def _delete_turns(self, ids: Set[str], sessions_gone: Set[str]) -> None:
        """Turns, and what every system derived from them. `sessions_gone` are sessions that lose all their turns."""
        session_of = select(turns.c.session).where(turns.c.user == self._user)
        affected = {
            session
            for part in chunks(sorted(ids))
            for session in self._connection.execute(session_of.where(turns.c.id.in_(part))).scalars()
        }
        for system in self._log.systems(self._connection, self._user):
            self._delete_derived(system, ids, sessions_gone, affected | sessions_gone)
            self._log.advance(self._connection, self._user, system)  # it may be reading these turns
        deleted = turns_by_id(self._connection, self._user, ids).values()
        self._record_messages(Message(turn.role, turn.text) for turn in deleted)
        of_turns = and_(changes.c.user == self._user, changes.c.type.in_(("hide", "restore")))
        for part in chunks(sorted(ids)):  # a later turn may get the id of one that is gone: it must not be hidden
            self._delete(changes, and_(of_turns, changes.c.unit.in_(part)))
            self._delete(turns, and_(turns.c.user == self._user, turns.c.id.in_(part)))
        self._release_causes(ids)

    def _release_causes(self, ids: Iterable[str]) -> None:
        """Make room for the changes of later turns with these ids: a cause that was there counts as written."""
        causes = sorted(cause for turn in ids for cause in (turn, f"forget:{turn}", f"forget:{turn}/notes"))
        has_changes = select(changes.c.batch).where(changes.c.batch == batches.c.number).exists()
        for part in chunks(causes):
            of_turns = and_(batches.c.user == self._user, batches.c.cause.in_(part))
            self._delete(batches, and_(of_turns, ~has_changes))
            new_cause = batches.c.cause + "#" + batches.c.number.cast(Text)
            self._connection.execute(update(batches).where(of_turns).values(cause=new_cause))

    def _delete_derived(self, system: str, ids: Set[str], sessions_gone: Set[str], affected: Set[str]) -> None:
        """What one system derived from these turns. Notes of an affected session count as derived."""
        active = self._log.batches(self._connection, self._user, system)
        inactive = self._log.batches(self._connection, self._user, system, _INACTIVE)
        states = session_states(self._connection, self._user)
        unfinished = {session for session, state in states.items() if state == "open"}
        deleted: list[LoggedBatch] = []
        for log in (active, inactive):
            said = self._sources_of(batch for batch in log if batch.session in affected)
            roots = [batch.number for batch in log if _is_derived(batch, ids, sessions_gone, affected, said)]
            numbers = dependents(log, roots, text_only=True, unfinished=unfinished)
            deleted += [batch for batch in log if batch.number in numbers]
        of_affected = [batch.number for log in (active, inactive) for batch in log if batch.session in affected]
        if derived := [*of_affected, *(batch.number for batch in deleted)]:
            self._delete_refusals(system, min(derived))
        if not deleted:
            return
        self._delete_batches(system, deleted)
        numbers = {batch.number for batch in deleted}
        remaining = [batch for batch in (*active, *inactive) if batch.number not in numbers]
        for part in chunks(sorted(_unit_ids(deleted) - _unit_ids(remaining))):
            self._delete_units(system, part)  # links, marks and retirements of them in batches that stay
        in_effect = {batch.session for batch in deleted if batch.state == "active" and batch.session}
        if session_ids := sorted(in_effect - sessions_gone):
            jobs.requeue(self._connection, self._user, system, session_ids)
            self.reread[system] = tuple(session_ids)

    def _sources_of(self, log: Iterable[LoggedBatch]) -> dict[str, set[str]]:
        """The words of the turns that units of these batches name, with those of who said them, by turn."""
        units = [change.unit for batch in log for change in batch.changes if isinstance(change, AddUnit)]
        sources = turns_by_id(self._connection, self._user, {turn for unit in units for turn in unit.sources})
        return {name: _words(f"{turn.speaker} {turn.text}") for name, turn in sources.items()}

    def _delete_batches(self, system: str, deleted: Collection[LoggedBatch]) -> None:
        self._record_texts(change for batch in deleted for change in batch.changes)
        for part in chunks(sorted(batch.number for batch in deleted)):
            self._delete(changes, and_(changes.c.user == self._user, changes.c.batch.in_(part)))
            self._delete(batches, and_(batches.c.user == self._user, batches.c.number.in_(part)))

    def _first_batch(self, system: str, unit_id: str) -> int:
        of_unit = and_(changes.c.user == self._user, changes.c.system == system, changes.c.unit == unit_id)
        return int(self._connection.execute(select(func.min(changes.c.batch)).where(of_unit)).scalar_one())

    def _delete_refusals(self, system: str, first: int) -> None:
        """The refused texts of the batches from number `first` on."""
        since = and_(changes.c.user == self._user, changes.c.system == system, changes.c.batch >= first)
        refusals = and_(since, changes.c.type == "refuse_text")
        bodies = self._connection.execute(select(changes.c.body).where(refusals)).scalars()
        self._record_texts(map(self._log.serializer.decode, bodies))
        self._delete(changes, refusals)

    def _delete_units(self, system: str, units: Sequence[str]) -> None:
        for condition in self._naming(system, units):
            self._delete(changes, condition)
        # A unit that one of these superseded stays retired, but the reason may repeat text of the erased unit.
        by_them = and_(changes.c.user == self._user, changes.c.system == system, changes.c.other.in_(units))
        rows = self._connection.execute(select(changes).where(by_them, changes.c.type == "retire_unit")).mappings()
        for row in rows.all():
            change = self._log.serializer.decode(row["body"])
            if not isinstance(change, RetireUnit) or not change.reason:
                continue
            self.texts.add(change.reason)
            place = and_(changes.c.batch == row["batch"], changes.c.position == row["position"])
            body = self._log.encode(self._user, replace(change, reason=""))
            self._connection.execute(update(changes).where(place).values(body=body))

    def _naming(self, system: str, units: Sequence[str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        """Conditions for changes of these units, and for links to them."""
        of_bank = and_(changes.c.user == self._user, changes.c.system == system)
        return (
            and_(of_bank, changes.c.unit.in_(units)),
            and_(of_bank, changes.c.other.in_(units), changes.c.type == "add_link", changes.c.unit.not_in(units)),
        )

    def _record_messages(self, deleted: Iterable[Message]) -> None:
        messages = set(deleted)
        self.messages |= messages
        self.texts.update(message.content for message in messages)

    def _record_texts(self, deleted: Iterable[Change]) -> None:
        self.texts.update(text for change in deleted for text in _texts_of(change))

    def _delete(self, table: Table, condition: ColumnElement[bool]) -> None:
        self.rows[table.name] += self._connection.execute(delete(table).where(condition)).rowcount

    def delete_vectors(self) -> None:
        """The vectors of all texts that were deleted."""
        self.rows["embeddings"] = delete_vectors(self._connection, self._log.database, self.texts)
        own = [self._user, list(map(passage_digest, self.texts))]  # another user's index counts on its rows
        self.rows["unit_vectors"] += delete_unit_vectors(self._connection, '"user" = %s AND digest = ANY(%s)', own)


def _texts_of(change: Change) -> Iterator[str]:
    """The texts in a change that a person may have written."""
    if isinstance(change, AddUnit):
        yield change.unit.text
        yield from index_texts(change.unit)
    elif isinstance(change, SetNote):
        yield change.text
    elif isinstance(change, RefuseText):
        yield change.text
        yield change.detail
    elif isinstance(change, RetireUnit):
        yield change.reason


def _unit_ids(log: Iterable[LoggedBatch]) -> set[str]:
    return {change.unit.id for batch in log for change in batch.changes if isinstance(change, AddUnit)}


def _is_derived(
    batch: LoggedBatch,
    turn_ids: Set[str],
    sessions_gone: Set[str],
    affected: Set[str],
    said: Mapping[str, Set[str]],
) -> bool:
    if batch.session in sessions_gone:
        return True
    units = [change.unit for change in batch.changes if isinstance(change, AddUnit)]
    if any(unit.session in sessions_gone or not turn_ids.isdisjoint(unit.sources) for unit in units):
        return True
    notes = any(isinstance(change, SetNote) for change in batch.changes)
    return batch.session in affected and (notes or not all(_quotes(unit, said) for unit in units))


def _quotes(unit: Unit, said: Mapping[str, Set[str]]) -> bool:
    """Whether a unit has no word that the turns it names do not have: then nothing else of its session is in it."""
    return _words(without_speaker(unit.text, unit.speaker)) <= set().union(
        *(said.get(name, ()) for name in unit.sources)
    )


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
