"""One core under all chat protocols: a chat request becomes a reply, as one document or streamed.

A protocol's route translates its body into a ChatRequest and gives a ReplyFormat, which writes the response; what
memory does, sessions, errors before the first word and clients that leave are the same for all.

When the client disconnects, the reply is stopped: the backbone stops, and the words so far are logged as the reply.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Coroutine
from time import perf_counter
from typing import Protocol, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from localmem.errors import LocalmemError
from localmem.llm.base import CallPiece
from localmem.server.chat_job import ChatJob
from localmem.server.dependencies import Caller, Services
from localmem.server.errors import ApiError, to_api_error
from localmem.server.reply_stream import ReplyStream
from localmem.server.schemas import MODE_HEADER, ChatRequest, parse_chat, parse_mode
from localmem.types import Reply

SESSION_HEADER = "x-localmem-session"
TRIMMED_HEADER = "x-localmem-trimmed"
ALIAS = "localmem"  # a client may ask for the model by this name, whatever is served

T = TypeVar("T")
Json = dict[str, object]

log = logging.getLogger(__name__)


class ReplyFormat(Protocol):
    """Writes one response in the form of a protocol."""

    @property
    def media_type(self) -> str:
        """That of a stream."""

    def document(self, reply: Reply, stream: ReplyStream) -> Json:
        """The whole reply."""

    def begin(self) -> str:
        """What a stream begins with."""

    def words(self, text: str) -> str:
        """Some words of a stream."""

    def call(self, piece: Json) -> str:
        """A piece of a call of tools in a stream, as OpenAI's protocol sends it; a call comes whole or in pieces."""

    def end(self, reply: Reply, stream: ReplyStream) -> str:
        """The end of a stream, with what is known only now: finish reason, usage."""

    def error(self, error: ApiError) -> str:
        """An error in the middle of a stream, which ends after it."""


async def respond(caller: Caller, body: ChatRequest, form: ReplyFormat) -> Response:
    """The reply to a chat request. Raises ApiError for one that is refused."""
    start, services, headers = perf_counter(), caller.services, caller.request.headers
    check_model(services, body.model)
    name = headers.get(SESSION_HEADER) or (body.metadata or {}).get("session")
    mode = parse_mode(headers.get(MODE_HEADER))
    chat = parse_chat(body)
    job = ChatJob(services, caller.user, body, chat, str(name) if name else None, mode, caller.time, start)
    stream = ReplyStream(services.reader, services.pool.resume)
    await start_reply(job, stream)
    try:
        if body.stream:
            return await _stream_response(caller.request, stream, job, form)
        reply = await _unless_disconnected(caller.request, stream, _read_all(stream, job))
        trimmed = reply.completion.trimmed
        own_headers = _session_header(stream) | ({TRIMMED_HEADER: str(trimmed)} if trimmed else {})
        return JSONResponse(form.document(reply, stream), headers=own_headers)
    except _Disconnected:
        return Response(status_code=499)  # nobody reads it


async def start_reply(job: ChatJob, stream: ReplyStream) -> None:
    """Have the reply made on a thread of the pool. Raises ApiError when its queue is full, StoreError."""
    job.services.sessions.expect(stream)
    if job.requested_mode != "write":
        await asyncio.to_thread(job.note_unlogged)
    job.services.pool.submit(stream.run, job.generate)


def check_model(services: Services, model: str) -> None:
    """Raises ApiError for a model that is not served here."""
    if model not in (services.settings.model, ALIAS):
        raise ApiError(
            404,
            f"model {model!r} is not served here; use {services.settings.model!r} or {ALIAS!r}",
            param="model",
            code="model_not_found",
        )


def to_event(body: Json, name: str = "") -> str:
    """A server-sent event, under a name if the protocol has names."""
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n"


def _session_header(stream: ReplyStream) -> dict[str, str]:
    return {SESSION_HEADER: stream.session} if stream.session else {}


# -- one document --------------------------------------------------------------------------------------------------


async def _read_all(stream: ReplyStream, job: ChatJob) -> Reply:
    event = await _read_first(stream, job)
    while not isinstance(event, Reply):
        event = await stream.next()
    return event


async def _read_first(stream: ReplyStream, job: ChatJob) -> str | Reply:
    event = await stream.next()
    job.services.metrics.first_token.observe(perf_counter() - job.start)
    return event


# -- streamed ------------------------------------------------------------------------------------------------------


async def _stream_response(request: Request, stream: ReplyStream, job: ChatJob, form: ReplyFormat) -> Response:
    """The response starts with the first words, so that a request that fails before them gets its proper status."""
    first = await _unless_disconnected(request, stream, _read_first(stream, job))
    headers = {**_session_header(stream), "cache-control": "no-cache", "x-accel-buffering": "no"}
    return _StoppingResponse(_events(stream, first, form), stream=stream, headers=headers, media_type=form.media_type)


async def _events(stream: ReplyStream, event: str | Reply, form: ReplyFormat) -> AsyncIterator[str]:
    yield form.begin()
    has_calls = False
    try:
        while not isinstance(event, Reply):
            if isinstance(event, CallPiece):
                has_calls = True
                yield form.call(dict(event.delta))
            elif event:
                yield form.words(event)
            event = await stream.next()
    except Exception as error:  # the status is sent; an error can only be reported in the stream
        log.warning("a stream ended early: %s", error, exc_info=not isinstance(error, LocalmemError | ApiError))
        yield form.error(to_api_error(error))
    else:
        for number, call in enumerate(() if has_calls else event.completion.tool_calls):
            yield form.call({"index": number, **call})
        yield form.end(event, stream)


class _StoppingResponse(StreamingResponse):
    """A stream; however the response ends, the reply stream is stopped."""

    def __init__(
        self, events: AsyncIterator[str], *, stream: ReplyStream, headers: dict[str, str], media_type: str
    ) -> None:
        super().__init__(events, headers=headers, media_type=media_type)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stream.stop()


# -- disconnects ---------------------------------------------------------------------------------------------------


class _Disconnected(Exception):
    """The client disconnected."""


async def _unless_disconnected(request: Request, stream: ReplyStream, work: Coroutine[object, object, T]) -> T:
    """The result of `work`. Raises _Disconnected when the client leaves first; the stream is stopped on any error."""
    result, disconnect = asyncio.create_task(work), asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait({result, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
    except BaseException:
        stream.stop()
        raise
    finally:
        result.cancel()
        disconnect.cancel()
    stream.stop()
    raise _Disconnected


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
