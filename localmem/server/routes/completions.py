"""POST /v1/chat/completions, whole and streamed.

Knows the wire, the desk and HTTP. What a client sends and memory does not need goes to the backbone as it is; what was
recalled comes back in the extra field `localmem`, and the session in the header x-localmem-session. A client's system
messages stand behind the operator's instructions and are never remembered.

When the client hangs up, the talk is stopped: the backbone stops, and the words given until then are kept as the reply.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from localmem.chat.prefetch import heard_ahead
from localmem.errors import LocalmemError
from localmem.server.dependencies import Services, Shared, User
from localmem.server.errors import Problem, problem_of
from localmem.server.reply_stream import Pieces, Talk
from localmem.server.responses import Answer, failure
from localmem.server.schemas import Asked, ChatRequest, adjusted, asked, session_named
from localmem.server.session_manager import Heard
from localmem.types import Reply

SESSION_HEADER = "x-localmem-session"
ALIAS = "localmem"  # a client may ask for the model by this name, whatever is served

T = TypeVar("T")

log = logging.getLogger(__name__)

router = APIRouter()


@dataclass(frozen=True, slots=True)
class _Request:
    """One chat request, understood. `began` is a reading of perf_counter."""

    services: Services
    user: str
    body: ChatRequest
    asked: Asked
    named: str | None
    began: float


@router.post("/v1/chat/completions")
async def chat(body: ChatRequest, request: Request, shared: Shared, user: User) -> Response:
    """The reply to the last message. Raises Problem."""
    began = perf_counter()
    check_model(shared, body.model)
    named = session_named(request.headers.get(SESSION_HEADER), body.metadata)
    wanted = _Request(shared, user, body, asked(body), named, began)
    talk = Talk()
    shared.pool.submit(talk.run, partial(_pieces, wanted))
    answer = Answer(f"chatcmpl-{uuid.uuid4().hex}", int(shared.now().timestamp()), shared.settings.model)
    try:
        if body.stream:
            return await _streamed(request, talk, wanted, answer)
        reply = await _unless_left(request, talk, _whole(talk, wanted))
        return JSONResponse(answer.whole(reply, talk.session), headers={SESSION_HEADER: talk.session})
    except _Left:
        return Response(status_code=499)  # nobody reads it


def check_model(services: Services, model: str) -> None:
    """Raises Problem for a model that is not served here."""
    if model not in (services.settings.model, ALIAS):
        raise Problem(
            404,
            f"the model {model!r} is not served here; ask for {services.settings.model!r} or {ALIAS!r}",
            param="model",
            code="model_not_found",
        )


def _pieces(wanted: _Request, talk: Talk) -> Pieces:
    """On a worker thread: the user's turn is made durable while memory is asked, then the reply is given."""
    services, instructions = wanted.services, _instructions(wanted)

    def hear(announce: Callable[[Heard], None]) -> Heard:
        started = perf_counter()
        heard = services.desk.hear(wanted.user, wanted.asked.messages, wanted.named, talk, announce)
        services.metrics.turn_stored(perf_counter() - started)
        return heard

    try:
        heard, ready = heard_ahead(hear, lambda said: said.agent.prepare(said.dialogue, instructions))
        return (
            yield from heard.agent.reply(
                heard.dialogue.id,
                dialogue=heard.dialogue,
                instructions=instructions,
                adjust=partial(adjusted, wanted.body),
                ready=ready,
            )
        )
    except BaseException:
        if talk.session:  # else nothing was heard
            services.metrics.broken_off()
        raise
    finally:
        services.desk.done(wanted.user, talk)


def _instructions(wanted: _Request) -> str | None:
    """The operator's words, then the client's; None leaves the agent its own."""
    if wanted.asked.instructions is None:
        return None
    own = wanted.services.settings.chat.instructions
    return "\n\n".join(filter(None, (own, wanted.asked.instructions)))


# -- whole ---------------------------------------------------------------------------------------------------------


async def _whole(talk: Talk, wanted: _Request) -> Reply:
    event = await _first(talk, wanted)
    while not isinstance(event, Reply):
        event = await talk.next()
    return event


async def _first(talk: Talk, wanted: _Request) -> str | Reply:
    event = await talk.next()
    wanted.services.metrics.first_words(perf_counter() - wanted.began)
    return event


# -- streamed ------------------------------------------------------------------------------------------------------


async def _streamed(request: Request, talk: Talk, wanted: _Request, answer: Answer) -> Response:
    """The stream begins with the first words, so that a request that fails before them has its proper status."""
    first = await _unless_left(request, talk, _first(talk, wanted))
    events = _events(talk, first, wanted, answer)
    headers = {SESSION_HEADER: talk.session, "cache-control": "no-cache", "x-accel-buffering": "no"}
    return _Stream(events, talk=talk, headers=headers)


async def _events(talk: Talk, event: str | Reply, wanted: _Request, answer: Answer) -> AsyncIterator[str]:
    options = wanted.body.stream_options
    with_usage = bool(options and options.include_usage)
    yield answer.opening(with_usage=with_usage)
    try:
        while not isinstance(event, Reply):
            yield answer.piece(event, with_usage=with_usage)
            event = await talk.next()
    except Exception as error:  # the status is sent; an error can only be told in the stream
        log.warning("a stream ended early: %s", error, exc_info=not isinstance(error, LocalmemError | Problem))
        yield failure(problem_of(error))
    else:
        yield answer.ending(event, talk.session, with_usage=with_usage)


class _Stream(StreamingResponse):
    """Server-sent events; however the response ends, the talk does too."""

    def __init__(self, events: AsyncIterator[str], *, talk: Talk, headers: dict[str, str]) -> None:
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._talk = talk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._talk.stop()


# -- hanging up ----------------------------------------------------------------------------------------------------


class _Left(Exception):
    """The client hung up."""


async def _unless_left(request: Request, talk: Talk, work: Coroutine[object, object, T]) -> T:
    """The result of `work`. Raises _Left when the client hangs up before there is one; the talk ends with any error."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
    except BaseException:
        talk.stop()
        raise
    finally:
        working.cancel()
        leaving.cancel()
    talk.stop()
    raise _Left


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
