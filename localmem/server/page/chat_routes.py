"""The chat: a dialogue with what was recalled beside each reply, streamed as JSON lines.

What memory does with a message is the visitor's choice: `write` recalls and stores, `read` recalls, `off` does neither.
"""

import json
import logging
import uuid
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import Header, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from localmem.errors import LocalmemError
from localmem.server.chat_job import ChatJob
from localmem.server.chat_service import start_reply
from localmem.server.dependencies import LocalTime, SharedServices
from localmem.server.errors import ApiError, to_api_error
from localmem.server.page.rendering import new_router, redirect, render
from localmem.server.page.reply_support import Support, support_reply
from localmem.server.page.visitors import TOKEN_HEADER, CurrentVisitor, Form, visitors_of
from localmem.server.recent_values import RecentValues
from localmem.server.reply_stream import ReplyStream
from localmem.server.schemas import ChatRequest, MemoryMode, SentMessage, parse_chat
from localmem.server.session_matching import without_replaced_replies
from localmem.types import Reply

MODES: dict[MemoryMode, str] = {
    "write": "Remember this chat",
    "read": "Recall, but store nothing",
    "off": "Incognito: no memory at all",
}
_PREFIX = "page-"

log = logging.getLogger(__name__)

router = new_router()


class DialogueMessage(BaseModel):
    """A message as the page shows it."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["user", "assistant"]
    content: str


class SayRequest(BaseModel):
    """POST /chat/reply: the dialogue so far with the new message at its end."""

    model_config = ConfigDict(extra="forbid")

    messages: Annotated[list[DialogueMessage], Field(min_length=1)]
    session: str
    mode: MemoryMode = "write"


@router.api_route("/", methods=["GET", "HEAD"])  # some clients look here whether a server is up
def show_chat(
    request: Request, services: SharedServices, visitor: CurrentVisitor, session: str = "", previous: str = ""
) -> Response:
    """The dialogue of an open session, by default the page's last; else an empty one."""
    with services.sessions.current_agent(visitor.user) as agent:
        open_sessions = {other.id: other for other in agent.sessions}
        bank = agent.memory.bank
    own = [name for name in open_sessions if name.startswith(_PREFIX)]
    name = session if session in open_sessions else (own[-1] if own else f"{_PREFIX}{uuid.uuid4().hex[:12]}")
    turns = without_replaced_replies(bank.visible(open_sessions[name]).turns) if name in open_sessions else []
    supports: dict[str, Support] = {}
    for turn in turns:
        support = supports_of(request).find(visitor.user, turn.id)
        # The id of an erased turn is given again, and another process may still hold the support of the erased one.
        if support and support.text == turn.text and (current := support.within(bank)):
            supports[turn.id] = current
    return render(
        "chat.html",
        visitor,
        turns=turns,
        evidence={turn: support.render(bank) for turn, support in supports.items()},
        statements={turn: json.dumps(support.statements) for turn, support in supports.items()},
        session=name,
        previous=previous,
        modes=MODES,
        model=services.settings.model,
    )


def supports_of(request: Request) -> RecentValues[Support]:
    """What the latest replies of the app that received the request rest on."""
    supports: RecentValues[Support] = request.app.state.supports
    return supports


@router.post("/chat/end")
def end_chat(services: SharedServices, visitor: CurrentVisitor, form: Form) -> Response:
    """Close the session, so that it is remembered, and begin anew."""
    name = form.get("session", "")
    if any(info.id == name for info in services.runtime.store.sessions(visitor.user, "open")):
        services.sessions.end(visitor.user, name)
        return redirect(f"/?{urlencode({'previous': name})}")
    return redirect("/")


@router.post("/chat/reply")
async def reply(
    body: SayRequest,
    request: Request,
    services: SharedServices,
    visitor: CurrentVisitor,
    now: LocalTime,
    token: Annotated[str, Header(alias=TOKEN_HEADER)] = "",
) -> Response:
    """The reply as JSON lines: `text` pieces, then `html` of what was recalled; or an `error`.

    Each names the `session` that the message was stored in, "" where it was not.
    """
    visitors_of(request).check_token(request, token)
    messages = [SentMessage(role=message.role, content=message.content) for message in body.messages]
    chat = ChatRequest(model=services.settings.model, messages=messages)
    job = ChatJob(services, visitor.user, chat, parse_chat(chat), body.session, body.mode, now, perf_counter())
    stream = ReplyStream()
    await start_reply(job, stream)
    headers = {"x-accel-buffering": "no"}
    lines = _lines(stream, services, visitor, supports_of(request))
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


async def _lines(
    stream: ReplyStream, services: SharedServices, visitor: CurrentVisitor, supports: RecentValues[Support]
) -> AsyncIterator[str]:
    try:
        event = await stream.next()
        while not isinstance(event, Reply):
            yield _line({"text": event, "session": stream.session})
            event = await stream.next()
        support = support_reply(event)
        if stream.session:
            supports.add(visitor.user, event.turn.id, support)
        html = support.render(services.runtime.agent(visitor.user).memory.bank)
        yield _line({"html": html, "session": stream.session, "statements": support.statements})
    except Exception as error:  # the status is sent; an error can only be reported in the stream
        log.warning("a reply ended early: %s", error, exc_info=not isinstance(error, LocalmemError | ApiError))
        yield _line({"error": to_api_error(error).message, "session": stream.session})
    finally:
        stream.stop()


def _line(values: dict[str, object]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"
