"""mem0's REST shape under `/mem0`: its Python client works with this address as its host, and so do programs for it.

The routes are those of mem0's client (`/v1`, `/v2` and `/v3`, with a slash at the end) and of its own server (without).
`user_id` names one of the people behind a key with `trusted_users` or behind a server without keys, any user for an
operator's key, and may only be the user's own name for another. Messages are remembered as a past session is, before
the answer. What localmem does not keep is not an error in a message (metadata, categories, agent_id, run_id), but is in
a filter.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import cache
from itertools import islice
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from localmem.bank import Bank
from localmem.errors import NotFound
from localmem.retrieval.base import Scope
from localmem.server.dependencies import KeyOnly, LocalTime, Services, SharedServices, UserHeader
from localmem.server.errors import ApiError
from localmem.server.memory_editor import MemoryEditor
from localmem.server.quota import check_quota
from localmem.server.routes.sessions import list_jobs
from localmem.store import UnitHistory
from localmem.store.serialization import named_units
from localmem.types import Change, Hide, RetireUnit, Role, Session, Turn, Unit

Json = dict[str, object]

_WAIT_SECONDS = 60  # for messages to be remembered; mem0 answers PENDING where it takes longer
_LONGEST_USER = 200
_EVENTS = {"add_unit": "ADD", "restore": "ADD", "retire_unit": "DELETE", "hide": "DELETE"}  # mem0's words for changes
_OF = "|"  # between a user's name and the id of a unit

router = APIRouter(prefix="/mem0")


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")

    user_id: Annotated[str, Field(max_length=_LONGEST_USER)] | None = None
    filters: dict[str, Any] | None = None

    @property
    def user(self) -> str:
        """The user that the body or its filters name. Raises ApiError for a filter that localmem does not have."""
        return self.user_id or _read_filters(self.filters or {})


class Mem0Message(BaseModel):
    """A message of a dialogue; those of a system or a tool are nobody's words."""

    model_config = ConfigDict(extra="ignore")

    role: str
    content: str


class AddRequest(_Body):
    """Messages to remember; with `infer` false each as a memory of its own. `timestamp` is in unix seconds.

    mem0's own server has the day alone, `observation_date`.
    """

    messages: str | Mem0Message | Annotated[list[Mem0Message], Field(min_length=1)]
    timestamp: Annotated[int, Field(ge=0, le=2**32)] | None = None
    observation_date: date | None = None
    infer: bool | None = None


class SearchRequest(_Body):
    """A search; `limit` is the older name of `top_k`."""

    query: Annotated[str, Field(min_length=1)]
    top_k: Annotated[int, Field(ge=1, le=1000)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] | None = None


class UpdateRequest(BaseModel):
    """A memory's new text; `data` is the older name."""

    model_config = ConfigDict(extra="ignore")

    text: str | None = None
    data: str | None = None


class BatchItem(BaseModel):
    """A memory of a batch."""

    memory_id: str
    text: str | None = None


class BatchRequest(BaseModel):
    """Memories to change or erase."""

    memories: Annotated[list[BatchItem], Field(max_length=1000)]


@dataclass
class _Named:
    """What any request may have in its query."""

    user_id: Annotated[str, Query(max_length=_LONGEST_USER)] = ""
    page: Annotated[int, Query(ge=1, le=10**6)] = 1
    page_size: Annotated[int, Query(ge=1, le=1000)] = 100
    org_id: str = ""
    project_id: str = ""
    delete_linked: str = ""


Named = Annotated[_Named, Depends()]


class _Door:
    """One request: its services, the key's user and the person that it names."""

    def __init__(self, request: Request, services: SharedServices, _user: UserHeader = None) -> None:
        self.services, self._request = services, request
        self.user = cache(self._find_user)  # a batch counts as one request of each user

    def _find_user(self, name: str = "") -> str:
        """The user whose memory is meant. Raises ApiError."""
        auth = self.services.auth
        key = auth.identify(self._request)
        if key.trusted_users:
            return auth.user(self._request, name)
        own = auth.user(self._request)
        if not (auth.has_keys or key.operator):  # this machine's own programs
            return own if name in ("", own) else f"{own}/{name}"
        if name not in ("", own) and not key.operator:
            cure = f"use user_id {own!r}, or make a key with `localmem keys create --user NAME --trusted-users`"
            raise ApiError(403, f"this key has one memory, and user_id is {name!r}; {cure}", param="user_id")
        return name or own

    def people(self) -> list[str]:
        """The names by which this key's users are called."""
        key, users = self.services.auth.check(self._request), self.services.runtime.store.users()
        own = f"{key.user}/"
        if key.is_proxy:
            return [self.user().removeprefix(own)]
        if key.trusted_users or not (self.services.auth.has_keys or key.operator):
            return [user.removeprefix(own) for user in users if user.startswith(own)]
        return [user for user in users if key.operator or user == key.user]


Mem0 = Annotated[_Door, Depends(_Door)]


@router.get("/v1/ping/", dependencies=[KeyOnly])
def ping(_named: Named) -> Json:
    """What the client asks at its start."""
    return {"status": "ok", "org_id": "localmem", "project_id": "localmem", "user_email": None}


@router.post("/memories")
@router.post("/v1/memories/")
@router.post("/v3/memories/add/")
async def add(body: AddRequest, door: Mem0, now: LocalTime) -> Json:
    """Remember messages. The answer names the memories that came of them."""
    user, services, moment = door.user(body.user), door.services, _time_of(body, now)
    sent = [body.messages] if not isinstance(body.messages, list) else body.messages
    messages = [Mem0Message(role="user", content=each) if isinstance(each, str) else each for each in sent]
    turns = [message for message in messages if message.role in ("user", "assistant") and message.content.strip()]
    editor, status = MemoryEditor(services.runtime, services.sessions, user), "SUCCEEDED"
    if body.infer is False:
        units = [editor.add(message.content, moment, now) for message in turns]
    else:
        session = _session(services, turns, moment)
        if turns:
            check_quota(services.runtime, user, now, adding=sum(len(message.content) for message in turns))
            services.runtime.read_later(user, [session])
            jobs = await list_jobs(services, user, session.id, _WAIT_SECONDS)
            status = status if jobs["done"] else "PENDING"
        units = [unit for unit in editor.bank.units.values() if unit.session == session.id]
    results = [{**_memory(unit, body.user), "event": "ADD"} for unit in units]
    return {"results": results, "status": status, "event_id": uuid.uuid4().hex}


@router.post("/search")
@router.post("/v1/memories/search/")
@router.post("/v2/memories/search/")
@router.post("/v3/memories/search/")
def search(body: SearchRequest, door: Mem0, now: LocalTime) -> Json:
    """The memories most similar to the query, best first."""
    user = door.user(body.user)
    with door.services.sessions.current_agent(user) as agent:
        hits = agent.memory.search(body.query, body.top_k or body.limit or 10, Scope(now=now))
    return {"results": [{**_memory(hit.unit, body.user), "score": float(hit.score)} for hit in hits]}


@router.get("/memories")
@router.get("/v1/memories/")
def list_by_query(named: Named, door: Mem0) -> Json:
    """The memories of a user."""
    return _page(door, named.user_id, named)


@router.post("/v2/memories/")
@router.post("/v3/memories/")
def list_by_filters(body: _Body, named: Named, door: Mem0) -> Json:
    """The memories of a user, page by page."""
    return _page(door, body.user, named)


@router.get("/memories/{memory_id:path}/history")
@router.get("/v1/memories/{memory_id:path}/history/")
def history(memory_id: str, _named: Named, door: Mem0) -> list[Json]:
    """What became of a memory. Raises NotFound."""
    name, user, unit_id = _find(door, memory_id)
    unit_history = door.services.runtime.store.history(user, door.services.settings.system, unit_id)
    steps, subject = _steps(unit_history, _bank(door.services, user)), {"memory_id": memory_id, "user_id": name or None}
    return [{"id": f"{memory_id}.{number}", **subject, **step} for number, step in enumerate(steps)]


@router.get("/memories/{memory_id:path}")
@router.get("/v1/memories/{memory_id:path}/")
def read(memory_id: str, _named: Named, door: Mem0) -> Json:
    """One memory. Raises NotFound, also for one that is no longer in use."""
    name, user, unit_id = _find(door, memory_id)
    bank = _bank(door.services, user)
    if bank.is_live(unit_id):
        return _memory(bank.units[unit_id], name)
    if newer := _successor(bank, bank.retired.get(unit_id) or bank.hidden.get(unit_id)):
        raise NotFound(f"memory {memory_id!r} was replaced by {_memory(newer, name)['id']!r}; ask for that one")
    raise NotFound(f"memory {memory_id!r} is no longer in use; its history says since when")


@router.put("/memories/{memory_id:path}")
@router.put("/v1/memories/{memory_id:path}/")
def update(memory_id: str, body: UpdateRequest, _named: Named, door: Mem0, now: LocalTime) -> Json:
    """Replace the text of a memory, which gets another id. Raises NotFound, ApiError without a text."""
    (name, user, unit_id), text = _find(door, memory_id), body.text or body.data
    if not text:
        raise ApiError(400, "there is no text; localmem changes nothing else of a memory", param="text")
    editor = MemoryEditor(door.services.runtime, door.services.sessions, user)
    return {**_memory(editor.edit(unit_id, text, now), name), "event": "UPDATE"}


@router.delete("/memories/{memory_id:path}")
@router.delete("/v1/memories/{memory_id:path}/")
def erase(memory_id: str, _named: Named, door: Mem0) -> Json:
    """Erase a memory for good, with the turns it came from. Raises NotFound."""
    _, user, unit_id = _find(door, memory_id)
    MemoryEditor(door.services.runtime, door.services.sessions, user).erase(unit_id, sources=True)
    return {"message": "Memory deleted successfully!"}


@router.delete("/memories")
@router.delete("/v1/memories/")
def erase_all(named: Named, door: Mem0) -> Json:
    """Erase everything of the user that is named. Raises ApiError where none is."""
    if not named.user_id:
        raise ApiError(400, "this erases everything of a user for good; name one with user_id", param="user_id")
    return _erase_user(door, named.user_id)


@router.put("/v1/batch/")
def update_all(body: BatchRequest, door: Mem0, now: LocalTime) -> Json:
    """Replace the texts of memories. Raises NotFound."""
    for item in body.memories:
        update(item.memory_id, UpdateRequest(text=item.text), _Named(), door, now)
    return {"message": f"Successfully updated {len(body.memories)} memories"}


@router.delete("/v1/batch/")
def erase_these(body: BatchRequest, door: Mem0) -> Json:
    """Erase memories for good, with the turns they came from. Raises NotFound, with nothing erased."""
    unit_ids: dict[str, list[str]] = {}
    for item in body.memories:
        _, user, unit_id = _find(door, item.memory_id)
        unit_ids.setdefault(user, []).append(unit_id)
    for user, names in unit_ids.items():
        MemoryEditor(door.services.runtime, door.services.sessions, user).erase(*names, sources=True)
    return {"message": f"Successfully deleted {len(body.memories)} memories"}


@router.get("/v1/entities/")
def list_people(_named: Named, door: Mem0) -> Json:
    """The users that this key can name."""
    people = [{"id": name, "name": name, "type": "user"} for name in door.people()]
    return {"count": len(people), "next": None, "previous": None, "results": people}


@router.delete("/v2/entities/user/{name:path}/")
def erase_person(name: str, _named: Named, door: Mem0) -> Json:
    """Erase a user with everything."""
    return _erase_user(door, name)


def _read_filters(filters: Mapping[str, object]) -> str:
    """The user that filters name, at their top or within AND. Raises ApiError."""
    name = ""
    for key, value in filters.items():
        if key == "user_id" and isinstance(value, str) and len(value) <= _LONGEST_USER:
            name = value
        elif key == "AND" and isinstance(value, list):
            names = [_read_filters(part) for part in value if isinstance(part, Mapping)]
            name = next(filter(None, names), name)
        else:
            raise ApiError(400, f"the filter {key!r} is not known; localmem filters by user_id", param="filters")
    return name


def _time_of(body: AddRequest, now: datetime) -> datetime:
    if body.timestamp is not None:
        return datetime.fromtimestamp(body.timestamp, UTC).astimezone(now.tzinfo)
    return now if body.observation_date is None else datetime.combine(body.observation_date, time(), now.tzinfo)


def _session(services: Services, messages: Iterable[Mem0Message], moment: datetime) -> Session:
    name, chat = f"mem0-{uuid.uuid4().hex[:12]}", services.settings.chat
    turns = list[Turn]()
    for message in messages:
        role: Role = "user" if message.role == "user" else "assistant"
        speaker = chat.user_name if role == "user" else chat.assistant_name
        turns.append(Turn(f"{name}.{len(turns)}", role, speaker, message.content, moment))
    return Session(name, tuple(turns))


def _bank(services: Services, user: str) -> Bank:
    with services.sessions.current_agent(user) as agent:
        return agent.memory.bank


def _find(door: _Door, memory_id: str) -> tuple[str, str, str]:
    """The person that an id of `_memory` names, "" for none, their user, and the unit. Raises ApiError, NotFound."""
    quoted, _, unit_id = memory_id.rpartition(_OF)
    name = unquote(quoted)
    user = door.user(name)
    if unit_id not in _bank(door.services, user).units:
        raise NotFound(f"no memory {memory_id!r}; list them")
    return name, user, unit_id


def _steps(history: UnitHistory, bank: Bank) -> Iterator[Json]:
    """What became of a unit, as mem0 writes it; hiding it and its turns is one deletion."""
    unit, last = history.unit, ""
    for change in (event.change for event in history.events if event.state == "active"):
        item = named_units(change)[0]
        newer = _successor(bank, change) if item == unit.id else None
        event = "UPDATE" if newer else _EVENTS.get(change.type, "")
        if item in (unit.id, *unit.sources) and event not in ("", last):
            yield {"new_memory": (newer or unit).text, "event": event, "created_at": change.time}
            last = event


def _successor(bank: Bank, change: Change | None) -> Unit | None:
    """The unit by which a change replaces another one, if it does."""
    return bank.units.get(change.by) if isinstance(change, Hide | RetireUnit) else None


def _page(door: _Door, name: str, named: _Named) -> Json:
    bank = _bank(door.services, door.user(name))
    live = [unit for unit in bank.units.values() if bank.is_live(unit.id)]
    start = (named.page - 1) * named.page_size
    results = [_memory(unit, name) for unit in islice(live, start, start + named.page_size)]
    return {"count": len(live), "next": None, "previous": None, "results": results}


def _erase_user(door: _Door, name: str) -> Json:
    user = door.user(name)
    if door.services.runtime.store.lookups.exists(user):
        with door.services.sessions.exclusive(user):
            door.services.runtime.store.delete_user(user)
    return {"message": "Memories deleted successfully!"}


def _memory(unit: Unit, name: str) -> Json:
    """A memory as mem0 writes it. Its id names the user, too, as mem0 asks for a memory by its id alone."""
    identity = f"{quote(name, safe='')}{_OF}{unit.id}" if name else unit.id
    times = {"created_at": unit.time, "updated_at": unit.learned}
    return {"id": identity, "memory": unit.text, "user_id": name or None, "metadata": None, "categories": [], **times}
