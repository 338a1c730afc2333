"""The memory's pages: the list with its filters and the slider of days, one memory, and what can be done to it."""

from dataclasses import replace
from datetime import date, datetime
from itertools import islice
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from localmem.errors import BadInput, NotFound
from localmem.memory import Memory
from localmem.retrieval.base import Match, Scope
from localmem.retrieval.views import exchange_of
from localmem.server.dependencies import LocalTime, Services, SharedServices
from localmem.server.memory_editor import MemoryEditor
from localmem.server.page.memory_views import STATES, Filter, Row, detail_of, row_of
from localmem.server.page.overview import Overview, Overviews
from localmem.server.page.rendering import memory_address, new_router, redirect, render
from localmem.server.page.visitors import CurrentVisitor, Form, Visitor
from localmem.store import UnitHistory
from localmem.times.moments import read_moment

_PER_PAGE = 40
_SEARCHED = 100  # units of a search by meaning, at first

router = new_router()


class ListQuery:
    """The fields of the list's form; an empty one is no limit. Raises BadInput for a day that is none."""

    def __init__(
        self,
        q: str = "",
        by: str = "words",
        since: str = "",
        until: str = "",
        session: str = "",
        kind: str = "",
        state: str = "current",
        as_of: str = "",
        page: Annotated[int, Query(ge=1)] = 1,
    ) -> None:
        self.text, self.by, self.number = q.strip(), by, page
        self.as_of = _read_day(as_of)
        state = state if state in STATES else "current"
        self.filter = Filter("", _read_day(since), _read_day(until), session, kind, state)

    @property
    def by_words(self) -> Filter:
        """The filter with the words that are searched for."""
        return replace(self.filter, words=self.text)

    def moment(self, now: datetime) -> datetime | None:
        """The end of the day to look at, None for now."""
        if self.as_of is None or self.as_of >= now.date():
            return None
        return read_moment(self.as_of.isoformat(), end=True).replace(tzinfo=now.tzinfo)


ListFields = Annotated[ListQuery, Depends(ListQuery)]


@router.get("/memory")
def show_memories(
    request: Request, services: SharedServices, visitor: CurrentVisitor, now: LocalTime, query: ListFields
) -> Response:
    """The list, filtered; by meaning where that is asked for and there is an index, of memories in use now alone."""
    with services.sessions.current_agent(visitor.user) as agent:
        memory, present = agent.memory, agent.memory.bank
    overview = overviews_of(request).find(visitor.user, present, query.moment(now))
    by_meaning = query.by == "meaning" and bool(query.text)
    is_indexed = memory.keeps_units and query.moment(now) is None and query.filter.state in ("current", "pinned")
    if by_meaning and is_indexed:
        rows, has_more = _search(memory, query, now), False
    else:
        rows, has_more = _page(overview, query)
    first = overviews_of(request).find(visitor.user, present).first_day or now.date()
    return render(
        "memories.html",
        visitor,
        query=query,
        rows=rows,
        more=_next_address(request, query.number) if has_more else "",
        kinds=overview.kinds,
        states=STATES,
        live=overview.live_count,
        first=first,
        today=now.date(),
        shown_day=query.as_of or now.date(),
        is_past=query.moment(now) is not None,
        has_index=memory.keeps_units,
        searches_words=by_meaning and not is_indexed,
        system=services.settings.system,
        is_filtered=query.by_words != Filter() or query.moment(now) is not None or query.number > 1,
    )


@router.post("/memory")
def add(services: SharedServices, visitor: CurrentVisitor, form: Form, now: LocalTime) -> Response:
    """Write a memory by hand."""
    unit = _editor(services, visitor).add(form.get("text", ""), now, now, "user")
    return redirect(f"{memory_address(unit.id)}?notice=added")


@router.get("/memory/{memory_id:path}")
def show_memory(
    memory_id: str, services: SharedServices, visitor: CurrentVisitor, now: LocalTime, notice: str = "", undo: str = ""
) -> Response:
    """One memory. Raises NotFound. `notice` and `undo` say what was just done to it and how it is taken back."""
    history = _history(services, visitor, memory_id)
    is_stale = undo and not any(event.cause == undo and event.state == "active" for event in history.events)
    detail = detail_of(history, _editor(services, visitor).bank, now.date())
    text = "" if is_stale else _NOTICES.get(notice, "")
    return render("memory.html", visitor, detail=detail, notice=text, undo=undo)


@router.post("/memory/{memory_id:path}/edit")
def edit(memory_id: str, services: SharedServices, visitor: CurrentVisitor, form: Form, now: LocalTime) -> Response:
    """Replace the text; where the memory is not in use any more, show it with what replaced it and with the text."""
    editor, text = _editor(services, visitor), form.get("text", "")
    if not editor.bank.is_live(memory_id):
        try:
            detail = detail_of(_history(services, visitor, memory_id), editor.bank, now.date())
        except NotFound as error:
            raise NotFound(f"Not saved: {error}. You wrote: {text}") from error
        notice = f"Not saved: this memory was changed or put away meanwhile. You wrote: {text}"
        return render("memory.html", visitor, status=409, detail=detail, notice=notice, undo="")
    unit = editor.edit(memory_id, text, now, "user")
    return _redirect_after(unit.id, "edited", f"edit:{unit.id}")


@router.post("/memory/{memory_id:path}/{action}")
def change(
    memory_id: str, action: str, services: SharedServices, visitor: CurrentVisitor, form: Form, now: LocalTime
) -> Response:
    """Pin, unpin, hide, forget, release, undo or erase. Raises NotFound, BadInput."""
    editor = _editor(services, visitor)
    match action:
        case "pin" | "unpin":
            return _redirect_after(memory_id, f"{action}ned", editor.pin(memory_id, now, pinned=action == "pin"))
        case "never":
            return _redirect_after(memory_id, action, editor.never_recall(memory_id, now))
        case "forget":
            return _redirect_after(memory_id, action, editor.forget(memory_id, now))
        case "release":
            return _redirect_after(memory_id, "released", editor.release(memory_id, now))
        case "undo":
            editor.undo(form.get("cause", ""))
            return redirect(f"{memory_address(form.get('to') or memory_id)}?notice=undone")
        case "erase":
            _history(services, visitor, memory_id)  # says it plainly where another tab erased it
            receipt = editor.erase(memory_id, sources="sources" in form)
            return render("receipt.html", visitor, receipts=[receipt], back="/memory")
    raise BadInput(f"there is no action {action!r}")


_NOTICES = {
    "added": "Added.",
    "edited": "Saved. The version before it stays in the history.",
    "pinned": "Pinned: every recall shows it.",
    "unpinned": "No longer pinned.",
    "never": "Hidden: it is not recalled again.",
    "forget": "Hidden, with the messages it came from.",
    "released": "Released: it is a memory like the others.",
    "undone": "Taken back.",
}


def _redirect_after(memory_id: str, notice: str, cause: str) -> Response:
    return redirect(f"{memory_address(memory_id)}?{urlencode({'notice': notice, 'undo': cause})}")


def _history(services: Services, visitor: Visitor, memory_id: str) -> UnitHistory:
    try:
        return services.runtime.store.history(visitor.user, services.settings.system, memory_id)
    except NotFound as error:
        raise NotFound(f"there is no memory {memory_id!r}; it may have been erased") from error


def _editor(services: Services, visitor: Visitor) -> MemoryEditor:
    return MemoryEditor(services.runtime, services.sessions, visitor.user)


def overviews_of(request: Request) -> Overviews:
    """The overviews of the app that received the request."""
    overviews: Overviews = request.app.state.overviews
    return overviews


def _page(overview: Overview, query: ListQuery) -> tuple[list[Row], bool]:
    """The rows of a page, and whether more follow."""
    start = (query.number - 1) * _PER_PAGE
    units = list(islice(overview.select(query.by_words), start, start + _PER_PAGE + 1))
    is_superseded = overview.superseded_ids.__contains__
    return [row_of(unit, overview.bank, is_superseded) for unit in units[:_PER_PAGE]], len(units) > _PER_PAGE


def _search(memory: Memory, query: ListQuery, now: datetime) -> list[Row]:
    """The units nearest in meaning that the filter lets through, best first: one of each exchange.

    A narrow filter may leave few of the nearest, so then ever more are searched.
    """
    bank, size, nearest = memory.bank, 0, list[Match]()
    units = {exchange_of(unit.id): unit for unit in bank.live() if query.filter.holds(unit, bank)}
    while len(nearest) < min(_PER_PAGE, len(units)) and size < len(bank.units):
        size = size * 10 or _SEARCHED
        matches = memory.index.search([query.text], size, Scope(now=now))[0]
        nearest = [match for match in matches if bank.is_live(match.id) and exchange_of(match.id) in units]
    rows = []
    for name, score in nearest[:_PER_PAGE]:
        unit = bank.units[name]
        unit = unit if query.filter.holds(unit, bank) else units[exchange_of(name)]
        rows.append(row_of(unit, bank, score=score))
    return rows


def _read_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise BadInput(f"{text!r} is not a day; write it as 2026-03-31") from error


def _next_address(request: Request, number: int) -> str:
    return f"/memory?{urlencode({**request.query_params, 'page': number + 1})}"
