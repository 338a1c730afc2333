"""/v1/memories: what the memory of the asking user holds; list, search, add, history, erase.

Knows the store, the agent and the desk. Erasing is for good and gives a receipt; nothing is erased by default.
"""

import uuid
from dataclasses import asdict
from itertools import dropwhile, islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from localmem.bank import Bank
from localmem.errors import NotFound
from localmem.retrieval.base import Scope
from localmem.server.dependencies import Services, Shared, User
from localmem.server.errors import Problem
from localmem.types import AddUnit, Unit

Json = dict[str, object]
Limit = Annotated[int, Query(ge=1, le=1000)]

router = APIRouter(prefix="/v1/memories")

SOURCE = "api"  # stands where a unit that was drawn from a session names it


class SearchRequest(BaseModel):
    """POST /v1/memories/search. `since` and `until` bound the event's time; `speaker` finds what is about both too."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1)]
    limit: Annotated[int, Field(ge=1, le=100)] = 10
    speaker: str | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None


class NewMemory(BaseModel):
    """POST /v1/memories. `time` is when what it tells took place; default: now."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1)]
    time: AwareDatetime | None = None


@router.get("")
def memories(
    shared: Shared,
    user: User,
    limit: Limit = 100,
    after: str | None = None,
    as_of: AwareDatetime | None = None,
    retired: Annotated[bool, Query()] = False,
) -> Json:
    """Units, oldest addition first, from behind `after`; and the notes. `as_of` shows both as they stood then."""
    bank = _bank(shared, user, as_of)
    if after is not None and after not in bank.units:
        raise NotFound(f"there is no memory {after!r} to go on behind; leave after out to begin at the first")
    wanted = (unit for unit in bank.units.values() if retired or bank.is_live(unit.id) or unit.id == after)
    rest = wanted if after is None else islice(dropwhile(lambda unit: unit.id != after, wanted), 1, None)
    page = list(islice(rest, limit + 1))
    return {
        "object": "list",
        "data": [_memory(unit, bank) for unit in page[:limit]],
        "has_more": len(page) > limit,
        "notes": dict(bank.notes),
    }


@router.post("/search")
def search(body: SearchRequest, shared: Shared, user: User) -> Json:
    """The live units nearest to the query, best first."""
    with shared.desk.quiet(user) as agent:
        memory = agent.memory
    scope = Scope(body.speaker, body.since, body.until, shared.now())
    hits = memory.search(body.query, body.limit, scope)
    data = [{**_memory(hit.unit, memory.bank), "score": float(hit.score)} for hit in hits]
    return {"object": "list", "data": data}


@router.post("", status_code=201)
def add(body: NewMemory, shared: Shared, user: User) -> Json:
    """A memory written by hand. Raises BadInput for a system that keeps no units."""
    now = shared.now()
    name, text = f"note-{uuid.uuid4().hex[:12]}", body.text.strip()
    if not text:
        raise Problem(400, "text is empty; say what is to be remembered", param="text")
    unit = Unit(name, text, text, "note", "", SOURCE, (), body.time or now, now)
    with shared.desk.quiet(user) as agent:
        if not agent.memory.keeps_units:
            raise Problem(400, f"system {shared.settings.system!r} keeps no single memories; serve one that does")
        agent.commit(f"{SOURCE}:{name}", [AddUnit(unit, now)])
        return _memory(unit, agent.memory.bank)


@router.get("/{memory_id:path}/history")
def history(memory_id: str, shared: Shared, user: User) -> Json:
    """How a unit came to be: what changed it, and the turns it came from. Raises NotFound."""
    life = shared.runtime.store.history(user, shared.settings.system, memory_id)
    return {"object": "memory.history", **asdict(life)}


@router.get("/{memory_id:path}")
def memory(memory_id: str, shared: Shared, user: User) -> Json:
    """One unit. Raises NotFound."""
    bank = _bank(shared, user, None)
    if memory_id not in bank.units:
        raise NotFound(f"there is no memory {memory_id!r}; GET /v1/memories lists them")
    return _memory(bank.units[memory_id], bank)


@router.delete("")
def erase_all(shared: Shared, user: User, confirm: Annotated[Literal["all"] | None, Query()] = None) -> Json:
    """Everything of this user, conversations included. Raises Problem without confirm=all."""
    if confirm is None:
        raise Problem(400, "this erases everything of you for good; say so with ?confirm=all", param="confirm")
    with shared.desk.alone(user):
        receipt = shared.runtime.store.delete_user(user)
    return {"object": "erasure", **asdict(receipt)}


@router.delete("/{memory_id:path}")
def erase(memory_id: str, shared: Shared, user: User, with_sources: Annotated[bool, Query()] = False) -> Json:
    """One unit for good, and with `with_sources` the turns it came from. Raises NotFound."""
    store, system = shared.runtime.store, shared.settings.system
    store.history(user, system, memory_id)
    with shared.desk.alone(user):
        receipt = store.delete_unit(user, system, memory_id, sources=with_sources)
    return {"object": "erasure", **asdict(receipt)}


def _bank(shared: Services, user: str, as_of: AwareDatetime | None) -> Bank:
    if as_of is None:
        with shared.desk.quiet(user) as agent:
            return agent.memory.bank
    return shared.runtime.store.bank(user, shared.settings.system, as_of)


def _memory(unit: Unit, bank: Bank) -> Json:
    return {"object": "memory", **asdict(unit), "retired": unit.id in bank.retired}
