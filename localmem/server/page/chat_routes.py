"""The chat: a dialogue with what was recalled beside each reply, streamed as JSON lines.

What memory does with a message is the visitor's choice: `write` recalls and stores, `read` recalls, `off` does neither.
"""

import json
import logging
import re
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from time import perf_counter
from typing import Annotated, Literal

from fastapi import Header, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from localmem.bank import Bank
from localmem.errors import LocalmemError
from localmem.grounding.support import Statement, read_statements
from localmem.server.chat_job import ChatJob
from localmem.server.dependencies import LocalTime, SharedServices
from localmem.server.errors import ApiError, to_api_error
from localmem.server.page.memory_views import split_speaker
from localmem.server.page.rendering import new_router, redirect, render, render_text
from localmem.server.page.visitors import TOKEN_HEADER, CurrentVisitor, Form, visitors_of
from localmem.server.reply_stream import ReplyStream
from localmem.server.schemas import ChatRequest, MemoryMode, SentMessage, parse_chat
from localmem.times.annotate import show_times
from localmem.turns.utterances import split_sentences
from localmem.types import Hit, Reply, Unit

MODES: dict[MemoryMode, str] = {
    "write": "Remember this chat",
    "read": "Recall, but store nothing",
    "off": "Incognito: no memory at all",
}
_PREFIX = "page-"
_QUOTED = re.compile(r'said: "(.+?)"(?=\n|$)')  # how a quotation of memory ends a line

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


@dataclass(frozen=True, slots=True)
class Evidence:
    """A recalled memory beside a reply; `number` is its mark, `is_quoted` says that the reply repeats its words.

    `statements` are the sentences of the reply that rest on it.
    """

    number: int
    unit: Unit
    speaker: str
    text: str
    score: float
    is_quoted: bool
    statements: tuple[str, ...] = ()


@router.api_route("/", methods=["GET", "HEAD"])  # some clients look here whether a server is up
def show_chat(services: SharedServices, visitor: CurrentVisitor, session: str = "") -> Response:
    """The dialogue of an open session, by default the page's last; else an empty one."""
    with services.sessions.current_agent(visitor.user) as agent:
        open_sessions = {other.id: other for other in agent.sessions}
        visible = agent.memory.bank.visible
    own = [name for name in open_sessions if name.startswith(_PREFIX)]
    name = session if session in open_sessions else (own[-1] if own else f"{_PREFIX}{uuid.uuid4().hex[:12]}")
    turns = visible(open_sessions[name]).turns if name in open_sessions else ()
    return render("chat.html", visitor, turns=turns, session=name, modes=MODES, model=services.settings.model)


@router.post("/chat/end")
def end_chat(services: SharedServices, visitor: CurrentVisitor, form: Form) -> Response:
    """Close the session, so that it is remembered, and begin anew."""
    name = form.get("session", "")
    if any(info.id == name for info in services.runtime.store.sessions(visitor.user, "open")):
        services.sessions.end(visitor.user, name)
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
    """The reply as JSON lines: `text` pieces, then `html` of what was recalled and the `session`; or an `error`."""
    visitors_of(request).check_token(request, token)
    messages = [SentMessage(role=message.role, content=message.content) for message in body.messages]
    chat = ChatRequest(model=services.settings.model, messages=messages)
    job = ChatJob(services, visitor.user, chat, parse_chat(chat), body.session, body.mode, now, perf_counter())
    stream = ReplyStream()
    services.pool.submit(stream.run, job.generate)
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(_lines(stream, services, visitor), media_type="application/x-ndjson", headers=headers)


async def _lines(stream: ReplyStream, services: SharedServices, visitor: CurrentVisitor) -> AsyncIterator[str]:
    try:
        event = await stream.next()
        while not isinstance(event, Reply):
            yield _line({"text": event})
            event = await stream.next()
        evidence, statements = support_reply(event)
        html = _render_evidence(event, evidence, statements, services.runtime.agent(visitor.user).memory.bank)
        marks = [
            {"text": each.text, "unsupported": each.unsupported}
            if each.memory is None
            else {"text": each.text, "number": evidence[each.memory].number}
            for each in statements
        ]
        reply = event.completion.text
        yield _line({"html": html, "session": stream.session, "reply": reply, "statements": marks})
    except Exception as error:  # the status is sent; an error can only be reported in the stream
        log.warning("a reply ended early: %s", error, exc_info=not isinstance(error, LocalmemError | ApiError))
        yield _line({"error": to_api_error(error).message})
    finally:
        stream.stop()


def _line(values: dict[str, object]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"


def support_reply(reply: Reply) -> tuple[list[Evidence], list[Statement]]:
    """What was recalled for a reply, and which of its sentences rest on which of that, or on nothing."""
    text, today = reply.completion.text, reply.turn.time.date()
    evidence = list_evidence(reply.recall.hits, text, today)
    context = "\n".join(message.content for message in reply.prompt.messages)
    memories = [show_times(item.unit, today) for item in evidence]
    statements = read_statements(text, memories, context, [today, *(item.unit.time.date() for item in evidence)])
    for place, item in enumerate(evidence):
        own = tuple(each.text for each in statements if each.memory == place)
        evidence[place] = replace(item, statements=own)
    return evidence, statements


def _render_evidence(reply: Reply, evidence: Sequence[Evidence], statements: Sequence[Statement], bank: Bank) -> str:
    return render_text(
        "evidence.html",
        evidence=sorted(evidence, key=lambda item: not (item.is_quoted or item.statements)),
        doubtful=[each for each in statements if each.unsupported],
        workings=reply.recall.workings,
        listed=set(bank.units),
        trimmed=reply.completion.trimmed,
    )


def list_evidence(hits: Sequence[Hit], text: str, today: date) -> list[Evidence]:
    """The recalled memories, those that a reply quotes word for word first, else best first."""
    quoted = [" ".join(quote.replace("'", '"').split()) for quote in _QUOTED.findall(text)]
    rows = []
    for hit in hits:
        speaker, words = split_speaker(hit.unit)
        dated = show_times(hit.unit, today)
        sentences = {
            " ".join(part.replace("'", '"').split()) for part in split_sentences(dated.partition(": ")[2] or dated)
        }
        rows.append((any(quote in sentences for quote in quoted), hit, speaker, words))
    rows.sort(key=lambda row: (not row[0], -row[1].score))
    return [
        Evidence(number, hit.unit, speaker, words, float(hit.score), is_quoted)
        for number, (is_quoted, hit, speaker, words) in enumerate(rows, start=1)
    ]
