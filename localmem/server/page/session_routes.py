"""Sessions with their text, what was refused and why, and notes with their versions."""

from difflib import SequenceMatcher
from itertools import pairwise
from typing import Annotated, NamedTuple

from fastapi import Query
from fastapi.responses import Response

from localmem.chat.quarantine import withheld_signs
from localmem.server.dependencies import SharedServices
from localmem.server.page.memory_views import row_of
from localmem.server.page.rendering import new_router, redirect, render, session_address
from localmem.server.page.visitors import CurrentVisitor, Form
from localmem.types import SetNote

_PER_PAGE = 40
_NOTICES = {
    "ended": "The session is over; it is being remembered.",
    "undone": "What the memory made of it is taken back; its messages stay.",
}

router = new_router()

Page = Annotated[int, Query(ge=1)]


@router.get("/sessions")
def show_sessions(services: SharedServices, visitor: CurrentVisitor, page: Page = 1) -> Response:
    """All sessions, the last first."""
    lookups, start = services.runtime.store.lookups, (page - 1) * _PER_PAGE
    count = lookups.count_sessions(visitor.user)
    more = f"/sessions?page={page + 1}" if count > start + _PER_PAGE else ""
    infos = lookups.newest_sessions(visitor.user, start, _PER_PAGE)
    with services.sessions.current_agent(visitor.user) as agent:
        hidden = agent.memory.bank.hidden
    return render(
        "sessions.html",
        visitor,
        infos=infos,
        words={info.id: info.opening.text for info in infos if info.opening and info.opening.id not in hidden},
        count=count,
        more=more,
        system=services.settings.system,
    )


@router.get("/sessions/{session_id:path}")
def show_session(session_id: str, services: SharedServices, visitor: CurrentVisitor, notice: str = "") -> Response:
    """One session with its turns. Raises NotFound."""
    store, system = services.runtime.store, services.settings.system
    session = store.session(visitor.user, session_id)
    info = next(info for info in store.sessions(visitor.user) if info.id == session_id)  # first: the job may end now
    with services.sessions.current_agent(visitor.user) as agent:
        bank, keeps_units = agent.memory.bank, agent.memory.keeps_units
    is_read = info.jobs.get(system) == "done"
    units = [unit for unit in bank.units.values() if unit.session == session_id]
    by_turn: dict[str, list[str]] = {}
    for unit in units:
        for turn in unit.sources[-1:]:
            by_turn.setdefault(turn, []).append(unit.id)
    return render(
        "session.html",
        visitor,
        session=session,
        info=info,
        system=system,
        is_empty=is_read and keeps_units and not units,
        can_undo=info.state == "closed" and store.lookups.has_changes_of(visitor.user, system, session_id),
        memories=by_turn,
        visible={turn.id for turn in bank.visible(session).turns},
        notice=_NOTICES.get(notice, ""),
    )


@router.post("/sessions/{session_id:path}/end")
def end(session_id: str, services: SharedServices, visitor: CurrentVisitor, form: Form) -> Response:  # noqa: ARG001
    """Close the session, so that it is remembered. Raises NotFound."""
    services.sessions.end(visitor.user, session_id)
    return redirect(f"{session_address(session_id)}?notice=ended")


@router.post("/sessions/{session_id:path}/undo")
def undo(session_id: str, services: SharedServices, visitor: CurrentVisitor, form: Form) -> Response:  # noqa: ARG001
    """Take back what the memory made of the session. Raises NotFound."""
    with services.sessions.exclusive(visitor.user):
        services.runtime.store.undo(visitor.user, services.settings.system, session_id)
    return redirect(f"{session_address(session_id)}?notice=undone")


@router.post("/sessions/{session_id:path}/erase")
def erase(session_id: str, services: SharedServices, visitor: CurrentVisitor, form: Form) -> Response:  # noqa: ARG001
    """Erase the session for good. Raises NotFound."""
    with services.sessions.exclusive(visitor.user):
        receipt = services.runtime.store.delete_session(visitor.user, session_id)
    return render("receipt.html", visitor, receipts=[receipt], back="/sessions")


@router.get("/refused")
def show_refused(services: SharedServices, visitor: CurrentVisitor, page: Page = 1) -> Response:
    """What is withheld for review, and the texts of the backbone that did not become memory, the last first."""
    with services.sessions.current_agent(visitor.user) as agent:
        bank = agent.memory.bank
    refused = bank.refused[::-1]
    withheld = [(row_of(bank.units[name], bank), sign) for name, sign in withheld_signs(bank).items()]
    start = (page - 1) * _PER_PAGE
    more = f"/refused?page={page + 1}" if len(refused) > start + _PER_PAGE else ""
    texts = refused[start : start + _PER_PAGE]
    lookups = services.runtime.store.lookups
    sessions = lookups.sessions_of_turns(visitor.user, [turn for text in texts for turn in text.sources])
    return render(
        "refused.html", visitor, withheld=withheld, refused=texts, count=len(refused), more=more, sessions=sessions
    )


class Piece(NamedTuple):
    """Some words of a note's version; `is_new` where the version before does not have them."""

    text: str
    is_new: bool


class Version(NamedTuple):
    """A text of a note, and where it differs from the one before."""

    note: SetNote
    pieces: list[Piece]


@router.get("/notes")
def show_notes(services: SharedServices, visitor: CurrentVisitor) -> Response:
    """Each note with its last versions, the newest first."""
    with services.sessions.current_agent(visitor.user) as agent:
        has_notes = bool(agent.memory.bank.notes)
    store, versions = services.runtime.store, dict[str, list[SetNote]]()
    for note in store.note_versions(visitor.user, services.settings.system) if has_notes else ():
        versions.setdefault(note.name, []).append(note)
    notes = {name: _compare(texts)[::-1] for name, texts in versions.items()}
    return render("notes.html", visitor, notes=notes, system=services.settings.system)


def _compare(notes: list[SetNote], last: int = 12) -> list[Version]:
    """The last versions of a note, oldest first, each compared with the one before."""
    first = [Version(notes[0], [Piece(notes[0].text, is_new=False)])] if len(notes) <= last else []
    return first + [Version(new, _pieces(old.text, new.text)) for old, new in pairwise(notes[-last - 1 :])]


def _pieces(old: str, new: str) -> list[Piece]:
    before, after = old.split(" "), new.split(" ")
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return [
        Piece(" ".join(after[start:end]), is_new=kind != "equal")
        for kind, _, _, start, end in matcher.get_opcodes()
        if end > start
    ]
