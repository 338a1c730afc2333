"""Sessions and users as a whole: list, read, add past ones, wait until they are remembered, export, import, erase.

POST /v1/sessions logs past sessions durably and answers; they are remembered in the background, and GET /v1/jobs waits
for it. Sending a session again changes nothing.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from time import monotonic
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from localmem.errors import Conflict, NotFound
from localmem.runtime.known_sessions import is_logged
from localmem.server.dependencies import LocalTime, OperatorOnly, Services, SharedServices, User
from localmem.server.documents import (
    AddedSessions,
    Erasure,
    ImportDocument,
    JobPage,
    SessionDocument,
    SessionPage,
    UserPage,
    describe_response,
    written_as,
)
from localmem.server.errors import ApiError, describe_missing
from localmem.server.quota import check_quota
from localmem.store import SessionInfo
from localmem.transfer.drafts import FileDefaults
from localmem.transfer.session_lines import parse_session
from localmem.types import Session

Json = dict[str, object]
WithErased = Annotated[bool, Query()]  # sessions that were erased are taken in, too

IMPORT_PATHS = ("/v1/sessions", "/v1/import")  # whose bodies may be larger than others
_LISTED = "GET /v1/sessions lists them"
_WORDS = 80  # characters of a session's first words
_POLL_SECONDS = 0.2
_PAST_CURE = "give each session its turns, and times such as 2026-03-02T18:05"

router = APIRouter(prefix="/v1")


class PastTurn(BaseModel):
    """A message of a past session; without `time` it has that of its session."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["user", "assistant", "system"]
    text: str
    time: str | None = None
    speaker: str | None = None


class PastSession(BaseModel):
    """A past session; without `id` it gets one from its content. Times are ISO 8601."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = None
    time: str | None = None
    turns: Annotated[list[PastTurn], Field(min_length=1)]


class PastSessions(BaseModel):
    """POST /v1/sessions."""

    model_config = ConfigDict(extra="forbid")

    sessions: Annotated[list[PastSession], Field(min_length=1)]


@router.get("/sessions", **describe_response(SessionPage))
def list_sessions(
    services: SharedServices,
    user: User,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: str | None = None,
    state: Literal["open", "closed"] | None = None,
) -> Json:
    """The user's sessions, the latest first, with times and first words; from the one `before` a session on."""
    infos = [info for info in reversed(services.runtime.store.sessions(user, state)) if info.turns]
    if before is not None:
        places = [place for place, info in enumerate(infos) if info.id == before]
        if not places:
            raise NotFound(f"no session {before!r} to continue before; omit before to start at the latest")
        infos = infos[places[0] + 1 :]
    read = _reader(services, user)
    data = [_describe(info, read(info.id), services.settings.system) for info in infos[:limit]]
    return {"object": "list", "data": data, "has_more": len(infos) > limit}


@router.post("/sessions", **describe_response(AddedSessions, 202))
def add_past_sessions(
    body: PastSessions, services: SharedServices, user: User, now: LocalTime, with_erased: WithErased = False
) -> Json:
    """Log past sessions, all or none; what was erased of one stays so, and one that was erased whole is left out.

    Raises ApiError, Conflict for another's id.
    """
    chat, store = services.settings.chat, services.runtime.store
    defaults = FileDefaults(chat.user_name, chat.assistant_name, chat.zone)
    sent = [
        parse_session(json.dumps(session.model_dump(exclude_none=True)), f"sessions.{number}", defaults, _PAST_CURE)
        for number, session in enumerate(body.sessions)
    ]
    stored = {info.id: info for info in store.sessions(user)}
    absent = {session.id for session in sent if not with_erased}.difference(stored)
    erased = store.unlogged.erased_sessions(user, absent)
    new: dict[str, Session] = {}
    for session in (each for each in sent if each.id not in erased):
        info = stored.get(session.id)
        previous = store.session(user, session.id) if info else new.setdefault(session.id, session)
        if not is_logged(session, previous, info.logged if info else len(previous.turns)):
            raise Conflict(f"session {session.id!r} exists with other turns; send it under another id")
    check_quota(services.runtime, user, now, adding=sum(len(turn.text) for each in sent for turn in each.turns))
    services.runtime.read_later(user, list(new.values()))
    states = dict.fromkeys(stored, "present") | dict.fromkeys(new, "added") | dict.fromkeys(erased, "erased")
    return {"object": "list", "data": [{"id": session.id, "status": states[session.id]} for session in sent]}


@router.get("/sessions/{session_id:path}", **describe_response(SessionDocument))
def read_session(session_id: str, services: SharedServices, user: User) -> Json:
    """One session with its turns, without those that are hidden. Raises NotFound."""
    with _describe_missing_session(session_id):
        session = _reader(services, user)(session_id)
    info = next(info for info in services.runtime.store.sessions(user) if info.id == session_id)
    data = [{**asdict(turn), "is_cut": turn.is_cut} for turn in session.turns]
    return {**_describe(info, session, services.settings.system), "data": data}


@router.delete("/sessions/{session_id:path}", **describe_response(Erasure))
def erase_session(session_id: str, services: SharedServices, user: User) -> Json:
    """Erase a session and all that came from it. Raises NotFound."""
    with _describe_missing_session(session_id), services.sessions.exclusive(user):
        receipt = services.runtime.store.delete_session(user, session_id)
    return {"object": "erasure", **asdict(receipt)}


@router.get("/jobs", **describe_response(JobPage))
async def list_jobs(
    services: SharedServices,
    user: User,
    session: str | None = None,
    wait: Annotated[float, Query(ge=0, le=60)] = 0,
) -> Json:
    """The closed sessions that are not remembered yet, or one session; `wait` is for how many seconds to wait for them.

    `done` tells whether they are, and a recall finds them. Raises NotFound.
    """
    end = monotonic() + wait
    jobs = await asyncio.to_thread(_jobs, services, user, session)
    while any(job["status"] != "done" for job in jobs) and monotonic() < end:
        await asyncio.sleep(_POLL_SECONDS)
        jobs = await asyncio.to_thread(_jobs, services, user, session)
    is_done = all(job["status"] == "done" for job in jobs)
    if is_done:
        await asyncio.to_thread(_settle, services, user)
    return {"object": "list", "data": jobs, "done": is_done}


def _settle(services: Services, user: str) -> None:
    """Wait until a recall finds what the store says is remembered."""
    with services.sessions.current_agent(user) as agent:
        agent.writer.settle()


@router.get("/export", **written_as("application/x-ndjson"))
def export(services: SharedServices, user: User) -> StreamingResponse:
    """Everything of the user, as the lines of `localmem export`. Raises NotFound."""
    if not services.runtime.store.lookups.exists(user):
        raise NotFound(f"user {user!r} has no memory to export")

    def lines() -> Iterator[str]:
        for line in services.runtime.store.export(user):
            yield line + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@router.post("/import", **describe_response(ImportDocument, 201))
async def import_lines(request: Request, services: SharedServices, user: User, with_erased: WithErased = False) -> Json:
    """Take in the lines of an export, all or nothing, for a user without a memory; sessions that were erased stay so.

    Raises ApiError, BadInput.
    """
    try:
        text = (await request.body()).decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8 ({error}); send the lines of an export") from error

    def restore() -> Json:
        check_quota(services.runtime, user, services.now(), adding=len(text))
        with services.sessions.exclusive(user):
            lines, store = text.split("\n"), services.runtime.store
            return {"object": "import", **asdict(store.restore(lines, "the body", user, with_erased=with_erased))}

    return await asyncio.to_thread(restore)


@router.get("/users", dependencies=[OperatorOnly], **describe_response(UserPage))
def list_users(services: SharedServices) -> Json:
    """All users, for an operator."""
    return {"object": "list", "data": [{"id": user, "object": "user"} for user in services.runtime.store.users()]}


@router.delete("/users/{name:path}", dependencies=[OperatorOnly], **describe_response(Erasure))
def erase_user(name: str, services: SharedServices, confirm: str = "") -> Json:
    """Erase a user with everything, for an operator; `confirm` is the name again. Raises NotFound, ApiError."""
    if confirm != name:
        raise ApiError(400, "this erases everything of this user for good; add ?confirm=USER", param="confirm")
    with services.sessions.exclusive(name):
        receipt = services.runtime.store.delete_user(name)
    return {"object": "erasure", **asdict(receipt)}


def _describe_missing_session(session_id: str) -> AbstractContextManager[None]:
    return describe_missing(f"session {session_id!r}", _LISTED)


def _reader(services: Services, user: str) -> Callable[[str], Session]:
    """Reads the user's sessions by their ids, without what is hidden."""
    with services.sessions.current_agent(user) as agent:
        visible = agent.memory.bank.visible
    return lambda session_id: visible(services.runtime.store.session(user, session_id))


def _describe(info: SessionInfo, session: Session, system: str) -> Json:
    first = next((turn.text for turn in session.turns if turn.role == "user"), "")
    words = " ".join(first.split())
    return {
        "id": info.id,
        "object": "session",
        "state": info.state,
        "started": info.started,
        "ended": info.ended,
        "turns": len(session.turns),
        "first_words": words if len(words) <= _WORDS else words[: _WORDS - 1] + "…",
        "remembered": info.jobs.get(system) == "done",
    }


def _jobs(services: Services, user: str, session_id: str | None) -> list[Json]:
    system, infos = services.settings.system, services.runtime.store.sessions(user)
    states = {info.id: info.jobs.get(system, "open" if info.state == "open" else "pending") for info in infos}
    if session_id is not None and session_id not in states:
        raise NotFound(f"no session {session_id!r}; {_LISTED}")
    waiting = {info.id for info in infos if info.turns and info.state == "closed" and states[info.id] != "done"}
    chosen = sorted(waiting, key=list(states).index) if session_id is None else [session_id]
    return [{"object": "job", "session": name, "status": states[name]} for name in chosen]
