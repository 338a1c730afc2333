"""/v1/memories: list, search, recall, add, forget, history and erase, all for the user of the request.

Erasing is permanent and returns a receipt; nothing is erased by default.
"""

import uuid
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import datetime, tzinfo
from itertools import dropwhile, islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from localmem.bank import Bank
from localmem.chat.forgetting import Cures
from localmem.chat.quarantine import withheld_signs
from localmem.errors import NotFound
from localmem.retrieval.base import Scope
from localmem.runtime.inspection import (
    history_document,
    memory_document,
    recall_document,
    recall_text,
    search_within,
    unit_document,
)
from localmem.server.dependencies import LocalTime, Services, SharedServices, User, Zone
from localmem.server.documents import Erasure, MemoryDocument, MemoryPage, RecalledDocument, describe_response
from localmem.server.errors import ApiError, describe_missing
from localmem.server.memory_editor import MemoryEditor
from localmem.server.request_times import EndMoment, Moment, in_request_zone
from localmem.times.periods import Periods, parse_periods
from localmem.turns.forget_requests import request_about
from localmem.types import Hide, Session, Turn, Unit

Json = dict[str, object]
Limit = Annotated[int, Query(ge=1, le=1000)]
Learned = Annotated[str | None, Query(alias="told")]

_LISTED = "`localmem show` or GET /v1/memories lists them"
_CURES = Cures(
    "`localmem forget --all --user NAME` / DELETE /v1/memories?confirm=all",
    "`localmem forget --unit {request}` / DELETE /v1/memories/{request}",
)

router = APIRouter(prefix="/v1/memories")


class _Filtered(BaseModel):
    """Fields of a search. `since` and `until`, dates or times, bound the time of the unit.

    `happened` and `told` are the days of the event, and those on which it was told: "2025-03", "2025-03-01..2025-04".
    """

    model_config = ConfigDict(extra="forbid")

    speaker: str | None = None
    since: Moment | None = None
    until: EndMoment | None = None
    happened: str | None = None
    learned: str | None = Field(default=None, alias="told")

    @property
    def periods(self) -> Periods:
        """The two periods. Raises BadInput."""
        return parse_periods(self.happened, self.learned)

    def scope(self, now: datetime, zone: tzinfo | None) -> Scope:
        """Of whom and when the units are, seen from `now`."""
        return Scope(self.speaker, in_request_zone(self.since, zone), in_request_zone(self.until, zone), now)


class SearchRequest(_Filtered):
    """POST /v1/memories/search."""

    query: Annotated[str, Field(min_length=1)]
    limit: Annotated[int, Field(ge=1, le=100)] = 10


class RecallRequest(_Filtered):
    """POST /v1/memories/recall. `as_of` recalls from the memory of that time."""

    text: Annotated[str, Field(min_length=1)]
    as_of: EndMoment | None = None


class Forgetting(BaseModel):
    """POST /v1/memories/forget. `text` names what to hide, or is what a person would say in a chat."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1)]


class Restoring(BaseModel):
    """POST /v1/memories/restore. `id` is that of the forgetting, or the turn that asked for it in a chat."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(min_length=1)]


class NewMemory(BaseModel):
    """POST /v1/memories. `time` is when the event took place; default: now. `origin` is whose words the text is."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1)]
    time: Moment | None = None
    origin: Literal["user", "assistant", "document", "client", "api"] = "api"


class EditedMemory(BaseModel):
    """PATCH /v1/memories/ID."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1)]


@router.get("", **describe_response(MemoryPage))
def memories(
    services: SharedServices,
    user: User,
    now: LocalTime,
    zone: Zone,
    limit: Limit = 100,
    after: str | None = None,
    as_of: EndMoment | None = None,
    retired: Annotated[bool, Query()] = False,
    happened: str | None = None,
    learned: Learned = None,
) -> Json:
    """Units in the order of their addition, from the one after `after`, and notes; `as_of` shows both at that time.

    `happened` and `told` limit the units by the days of the event, and those on which it was told. Raises BadInput.
    """
    periods, as_of = parse_periods(happened, learned), in_request_zone(as_of, zone)
    bank = _bank(services, user, as_of)
    if after is not None and after not in bank.units:
        raise NotFound(f"no memory {after!r} to continue after; omit after to start at the first")
    units = (unit for unit in bank.units.values() if retired or bank.is_live(unit.id) or unit.id == after)
    following = units if after is None else islice(dropwhile(lambda unit: unit.id != after, units), 1, None)
    page = list(islice(filter(periods.hold, following), limit + 1))
    return {
        "object": "list",
        "data": [_memory(unit, bank, as_of or now) for unit in page[:limit]],
        "has_more": len(page) > limit,
        "notes": dict(bank.notes),
    }


@router.post("/search", **describe_response(MemoryPage))
def search(body: SearchRequest, services: SharedServices, user: User, now: LocalTime, zone: Zone) -> Json:
    """The live units most similar to the query, best first. Raises BadInput."""
    with services.sessions.current_agent(user) as agent:
        memory = agent.memory
    scope = body.scope(now, zone)
    hits = search_within(memory, body.query, body.limit, scope, body.periods)
    data = [{**_memory(hit.unit, memory.bank, now), "score": float(hit.score)} for hit in hits]
    return {"object": "list", "data": data}


@router.post("/recall", **describe_response(RecalledDocument))
def recall(body: RecallRequest, services: SharedServices, user: User, now: LocalTime, zone: Zone) -> Json:
    """What the model would be shown if the user said `text` now. Raises BadInput."""
    as_of = in_request_zone(body.as_of, zone)
    if as_of is None:
        with services.sessions.current_agent(user) as agent:
            memory = agent.memory
    else:
        memory = services.runtime.memory_at(user, as_of)
    scope = body.scope(as_of or now, zone)
    results = recall_text(memory, body.text, scope, body.periods, user_name=services.settings.chat.user_name)
    return {"object": "recall", **recall_document(results, as_of or now)}


@router.get("/bank")
def read_bank(
    services: SharedServices,
    user: User,
    now: LocalTime,
    zone: Zone,
    as_of: EndMoment | None = None,
    happened: str | None = None,
    learned: Learned = None,
) -> Json:
    """All units, or those within the two periods, links, notes and marks, and how many closed sessions are not read.

    Raises BadInput.
    """
    periods, as_of = parse_periods(happened, learned), in_request_zone(as_of, zone)
    document = memory_document(services.runtime.store, user, services.settings.system, now, as_of, periods)
    return {"object": "bank", **document}


@router.get("/quarantine", **describe_response(MemoryPage))
def read_quarantine(services: SharedServices, user: User, now: LocalTime) -> Json:
    """What is withheld from memory because it tries to instruct a model, the last first."""
    bank = _bank(services, user, None)
    return {"object": "list", "data": [_memory(bank.units[name], bank, now) for name in withheld_signs(bank)]}


@router.post("/{memory_id:path}/release", **describe_response(MemoryDocument))
def release(memory_id: str, services: SharedServices, user: User, now: LocalTime) -> Json:
    """Let a unit into memory that was withheld. Raises NotFound."""
    editor = MemoryEditor(services.runtime, services.sessions, user)
    editor.release(memory_id, now)
    return _memory(editor.bank.units[memory_id], editor.bank, now)


@router.post("", **describe_response(MemoryDocument, 201))
def add(body: NewMemory, services: SharedServices, user: User, now: LocalTime, zone: Zone) -> Json:
    """Add a memory by hand. Raises ApiError for a system that keeps no units."""
    editor = MemoryEditor(services.runtime, services.sessions, user)
    unit = editor.add(body.text, in_request_zone(body.time, zone) or now, now, body.origin)
    return _memory(unit, editor.bank, now)


@router.post("/forget")
def forget(body: Forgetting, services: SharedServices, user: User, now: LocalTime) -> Json:
    """Hide what a text names: it is not recalled again, and can be restored or erased. `reply` says what it is."""
    name = f"forget-{uuid.uuid4().hex[:12]}"
    with services.sessions.current_agent(user) as agent:
        turn = Turn(name, "user", agent.responder.speakers.user, body.text, now)
        writer = agent.writer
        answer = writer.forgetting.forget(request_about(body.text), turn, Session(name, (turn,)), _CURES)
        writer.forget(answer)
    hidden = [change.item for change in answer.proposed if isinstance(change, Hide) and change.item != name]
    return {"object": "forgetting", "id": name, "hidden": hidden, "reply": answer.reply}


@router.post("/restore")
def restore(body: Restoring, services: SharedServices, user: User) -> Json:
    """Take back what a request to forget hid. Raises NotFound."""
    with services.sessions.current_agent(user) as agent:
        changes = agent.writer.forgetting.restore(body.id, services.now())
        if not changes:
            raise NotFound(f"nothing is hidden by {body.id!r}; POST /v1/memories/forget returns the id")
        agent.writer.commit(f"restore:{uuid.uuid4().hex[:12]}", changes)
    return {"object": "restoration", "id": body.id, "restored": [change.item for change in changes]}


@router.get("/{memory_id:path}/history")
def history(memory_id: str, services: SharedServices, user: User) -> Json:
    """The history of a unit: its changes and the turns it came from. Raises NotFound."""
    with _describe_missing_memory(memory_id):
        unit_history = services.runtime.store.history(user, services.settings.system, memory_id)
    return {"object": "memory.history", **history_document(unit_history)}


@router.get("/{memory_id:path}", **describe_response(MemoryDocument))
def memory(memory_id: str, services: SharedServices, user: User, now: LocalTime) -> Json:
    """One unit. Raises NotFound."""
    bank = _bank(services, user, None)
    if memory_id not in bank.units:
        raise NotFound(f"no memory {memory_id!r}; {_LISTED}")
    return _memory(bank.units[memory_id], bank, now)


@router.patch("/{memory_id:path}", **describe_response(MemoryDocument))
def edit(memory_id: str, body: EditedMemory, services: SharedServices, user: User, now: LocalTime) -> Json:
    """Replace the text of a unit: a new unit, by a new id; the one before stays in its history. Raises NotFound."""
    editor = MemoryEditor(services.runtime, services.sessions, user)
    unit = editor.edit(memory_id, body.text, now)
    return {**_memory(unit, editor.bank, now), "replaces": memory_id}


@router.delete("", **describe_response(Erasure))
def erase_all(services: SharedServices, user: User, confirm: Annotated[Literal["all"] | None, Query()] = None) -> Json:
    """Erase everything of this user, conversations included. Raises ApiError without confirm=all."""
    if confirm is None:
        raise ApiError(400, "this erases everything of this user for good; add ?confirm=all", param="confirm")
    with services.sessions.exclusive(user):
        receipt = services.runtime.store.delete_user(user)
    return {"object": "erasure", **asdict(receipt)}


@router.delete("/{memory_id:path}", **describe_response(Erasure))
def erase(memory_id: str, services: SharedServices, user: User, with_sources: Annotated[bool, Query()] = False) -> Json:
    """Erase one unit, or what a request to forget hid. Raises NotFound.

    With `with_sources` the turns it came from go too, and the replies that answer or quote them.
    """
    with _describe_missing_memory(memory_id):
        receipt = MemoryEditor(services.runtime, services.sessions, user).erase(memory_id, sources=with_sources)
    return {"object": "erasure", **asdict(receipt)}


def _describe_missing_memory(memory_id: str) -> AbstractContextManager[None]:
    return describe_missing(f"memory {memory_id!r}", _LISTED)


def _bank(services: Services, user: str, as_of: datetime | None) -> Bank:
    if as_of is None:
        with services.sessions.current_agent(user) as agent:
            return agent.memory.bank
    return services.runtime.store.bank(user, services.settings.system, as_of)


def _memory(unit: Unit, bank: Bank, now: datetime) -> Json:
    sign = withheld_signs(bank).get(unit.id, "")
    return {"object": "memory", **unit_document(unit, now), "quarantined": sign, "retired": not bank.is_live(unit.id)}
