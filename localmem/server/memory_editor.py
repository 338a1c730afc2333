"""What a person does to single memories: add, edit, pin, hide, undo, erase. The page and MCP are doors to it.

Every change but an erasure is a batch of its own with a cause, by which it is taken back. An edit adds a unit and hides
the one before it, which a rebuild keeps: hiding names a unit whether it is there or not. Replies that quoted a unit are
hidden or erased with it, or it would come back through them. No HTTP here.
"""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from localmem.bank import Bank
from localmem.chat.quarantine import put_aside, release, sign_beside, withheld_signs
from localmem.errors import BadInput, Conflict, NotFound
from localmem.retrieval.views import SIDE_MARK
from localmem.runtime import Runtime
from localmem.server.quota import check_quota
from localmem.server.session_manager import SessionManager
from localmem.store import Receipt
from localmem.store.serialization import check_text
from localmem.systems.evidence.updates import move_link
from localmem.text.dialogue import without_speaker
from localmem.text.provenance import origin_of
from localmem.text.quotations import quotations
from localmem.turns.pins import PINNED
from localmem.types import AddLink, AddUnit, Change, Hide, MarkUnit, Origin, Unit

SOURCE = "api"  # in place of the session that a unit comes from


class MemoryEditor:
    """One user's memories. Methods return the cause by which `undo` takes the change back. Raise NotFound, BadInput."""

    def __init__(self, runtime: Runtime, sessions: SessionManager, user: str) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._user = user
        self._system = runtime.settings.system

    @property
    def bank(self) -> Bank:
        """The bank as the store holds it now."""
        with self._sessions.current_agent(self._user) as agent:
            return agent.memory.bank

    def add(self, text: str, time: datetime, now: datetime, origin: Origin = "api") -> Unit:
        """A memory by hand, of an event at `time`. One of a program that tries to instruct a model is withheld."""
        name = f"note-{uuid.uuid4().hex[:12]}"
        words = _require_text(text)
        check_quota(self._runtime, self._user, now)
        unit = Unit(name, words, words, "note", "", SOURCE, (), time, now, origin=origin)
        with self._sessions.current_agent(self._user) as agent:
            if not agent.memory.keeps_units:
                raise BadInput(f"system {self._system!r} keeps no units to add to; serve another system")
            agent.writer.commit(f"{SOURCE}:{name}", self._addition_of(unit, agent.memory.bank))
        return unit

    def edit(self, unit_id: str, text: str, now: datetime, origin: Origin = "api") -> Unit:
        """Replace a unit's text; the unit before stays in the history. Its cause is `edit:` and the new unit's id.

        What a person edits stays what it was, what a program edits is the program's.
        """
        old, words = _find_live(self.bank, unit_id), _require_text(text)
        prefix = old.text.removesuffix(without_speaker(old.text, old.speaker))
        side = SIDE_MARK + old.id.rpartition(SIDE_MARK)[2] if SIDE_MARK in old.id else ""
        name, body = f"edit-{uuid.uuid4().hex[:12]}{side}", prefix + words
        author = origin_of(old) if origin == "user" else origin
        unit = replace(old, id=name, text=body, key=body, learned=now, spans=None, origin=author)
        changes = [*self._addition_of(unit, self.bank), *self._hides((old.id,), old, name, now)]
        self._commit(f"edit:{name}", changes, of=old.id)
        moved = (move_link(link, old, unit) for link in self.bank.links if old.id in (link.source, link.target))
        links = [AddLink(link, now) for link in moved if link]
        if links:  # apart from the edit: they depend on what sessions made, which a rebuild makes again
            self._commit(f"links:{name}", links)
        return unit

    def pin(self, unit_id: str, now: datetime, *, pinned: bool) -> str:
        """Show a unit with every recall, or no longer."""
        unit = _find_live(self.bank, unit_id)
        return self._commit(f"pin:{uuid.uuid4().hex[:12]}", [MarkUnit(unit.id, PINNED, float(pinned), now)])

    def never_recall(self, unit_id: str, now: datetime) -> str:
        """Hide this unit; what else came from the same turns stays."""
        unit, name = _find_live(self.bank, unit_id), uuid.uuid4().hex[:12]
        return self._commit(f"hide:{name}", self._hides((unit.id,), unit, f"hide-{name}", now))

    def forget(self, unit_id: str, now: datetime) -> str:
        """Hide this unit with the turns it came from, and so all that comes from them, after a rebuild too."""
        unit, name = _find_live(self.bank, unit_id), uuid.uuid4().hex[:12]
        return self._commit(f"hide:{name}", self._hides((unit.id, *unit.sources), unit, f"hide-{name}", now))

    def release(self, unit_id: str, now: datetime) -> str:
        """Let a unit into memory that was withheld, after a rebuild too. Raises NotFound."""
        if unit_id not in withheld_signs(self.bank):
            raise NotFound(f"memory {unit_id!r} is not withheld; GET /v1/memories/quarantine lists those that are")
        return self._commit(f"release:{uuid.uuid4().hex[:12]}", release(unit_id, now))

    def undo(self, cause: str) -> None:
        """Take back one of these changes. Raises Conflict for an edit that was edited again."""
        edited = cause.partition(":")[2]
        later = self.bank.hidden.get(edited)
        if later is not None and later.by in self.bank.units:
            raise Conflict("this edit was edited again; undo the later edit first")
        with self._sessions.exclusive(self._user):
            self._runtime.store.undo_batch(self._user, self._system, cause)

    def erase(self, *unit_ids: str, sources: bool) -> Receipt:
        """Erase units for good, or what a request to forget hid; see `Store.delete_units`. Raises NotFound."""
        with self._sessions.exclusive(self._user):
            return self._runtime.store.delete_units(self._user, self._system, *unit_ids, sources=sources)

    def _addition_of(self, unit: Unit, bank: Bank) -> list[Change]:
        words = without_speaker(unit.text, unit.speaker)
        sign = sign_beside(bank, words, origin_of(unit)) if self._runtime.settings.chat.quarantine else ""
        return put_aside(unit, sign, unit.learned, bank) if sign else [AddUnit(unit, unit.learned)]

    def _hides(self, items: Sequence[str], unit: Unit, by: str, now: datetime) -> list[Hide]:
        """Hides what is named, and the replies that quoted the unit."""
        return [Hide(item, by, now) for item in dict.fromkeys((*items, *self._quoting_replies(unit)))]

    def _quoting_replies(self, unit: Unit) -> list[str]:
        """The replies that hold a sentence of a unit word for word."""
        replies = self._runtime.store.replies_with(self._user, quotations(unit))
        return [turn for turn in replies if turn not in unit.sources]

    def _commit(self, cause: str, changes: Sequence[Change], *, of: str = "") -> str:
        """Write the changes; those `of` a unit only while it is in use: of two edits at once the second is refused."""
        with self._sessions.current_agent(self._user) as agent:
            if of:
                _find_live(agent.memory.bank, of)
            agent.writer.commit(cause, changes)
        return cause


def _find_live(bank: Bank, unit_id: str) -> Unit:
    if not bank.is_live(unit_id):
        raise NotFound(f"no memory {unit_id!r} that is in use; it may have been replaced, hidden or erased")
    return bank.units[unit_id]


def _require_text(text: str) -> str:
    words = text.strip()
    if not words:
        raise BadInput("the text is empty; write what to remember")
    check_text(words)
    return words
