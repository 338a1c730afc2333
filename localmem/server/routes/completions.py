"""POST /v1/chat/completions, as one JSON document or streamed.

Sampling fields that memory does not need are passed to the backbone unchanged. What was recalled is returned in the
extra field `localmem`, and the session in the header x-localmem-session. A client's system messages follow the
operator's instructions and are never remembered. The header x-localmem, or `"store": false`, says what memory does;
x-localmem-timezone names the user's time zone.

When the client disconnects, the reply is stopped: the backbone stops, and the words so far are logged as the reply.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Coroutine
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from localmem.errors import LocalmemError
from localmem.server.chat_job import ChatJob
from localmem.server.dependencies import LocalTime, Services, SharedServices, User
from localmem.server.errors import ApiError, to_api_error
from localmem.server.reply_stream import ReplyStream
from localmem.server.schemas import MODE_HEADER, ChatRequest, parse_chat, parse_mode
from localmem.types import Completion, Reply

SESSION_HEADER = "x-localmem-session"
TRIMMED_HEADER = "x-localmem-trimmed"
ALIAS = "localmem"  # a client may ask for the model by this name, whatever is served

_DONE = "data: [DONE]\n\n"

T = TypeVar("T")
Json = dict[str, object]

log = logging.getLogger(__name__)

router = APIRouter()


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """The response to one chat request; `created` is in unix seconds."""

    id: str
    created: int
    model: str

    def completion(self, reply: Reply, stream: ReplyStream) -> Json:
        """The completion as one document. The text is the model's: the log may hold the same words already."""
        message = {"role": "assistant", "content": reply.completion.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.completion.finish}
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": _usage_body(reply.completion),
            "localmem": _recall_body(reply, stream),
        }

    def first_chunk(self, *, with_usage: bool) -> str:
        """The first chunk of a stream: the role."""
        return self._chunk({"role": "assistant", "content": ""}, None, with_usage)

    def text_chunk(self, text: str, *, with_usage: bool) -> str:
        """Some words."""
        return self._chunk({"content": text}, None, with_usage)

    def last_chunks(self, reply: Reply, stream: ReplyStream, *, with_usage: bool) -> str:
        """The last chunks: finish reason and recall, the token usage if the client asked for it, and the end mark."""
        last = self._chunk({}, reply.completion.finish, with_usage, {"localmem": _recall_body(reply, stream)})
        usage = {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage_body(reply.completion)}
        return last + (_event(usage) if with_usage else "") + _DONE

    def _chunk(self, delta: Json, finish: str | None, with_usage: bool, extra: Json | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk: Json = {**self._head("chat.completion.chunk"), "choices": [choice], **(extra or {})}
        return _event({**chunk, "usage": None} if with_usage else chunk)

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def _error_event(error: ApiError) -> str:
    """An error in the middle of a stream, which OpenAI's clients raise; the stream ends after it."""
    return _event({**error.body()})


def _usage_body(completion: Completion) -> Json:
    """Tokens as OpenAI counts them, and how many were cut from the prompt to make it fit."""
    usage = completion.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "trimmed_tokens": completion.trimmed},
    }


def _recall_body(reply: Reply, stream: ReplyStream) -> Json:
    """What the reply was based on: the recalled units, what was worked out, and the memory text as the model read it.

    `mode` is what memory did with the request; `session` is None when nothing was logged.
    """
    hits = [{"id": hit.unit.id, "text": hit.unit.text, "score": float(hit.score)} for hit in reply.recall.hits]
    return {
        "session": stream.session or None,
        "mode": stream.mode,
        "recalled": hits,
        "memory": reply.recall.text,
        "workings": [asdict(working) for working in reply.recall.workings],
        "trimmed_tokens": reply.completion.trimmed,
    }


def _session_header(stream: ReplyStream) -> dict[str, str]:
    return {SESSION_HEADER: stream.session} if stream.session else {}


def _event(body: Json) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"


@router.post("/v1/chat/completions")
async def chat(body: ChatRequest, request: Request, services: SharedServices, user: User, time: LocalTime) -> Response:
    """The reply to the last message. Raises ApiError."""
    start = perf_counter()
    check_model(services, body.model)
    name = request.headers.get(SESSION_HEADER) or (body.metadata or {}).get("session")
    mode = parse_mode(request.headers.get(MODE_HEADER))
    job = ChatJob(services, user, body, parse_chat(body), str(name) if name else None, mode, time, start)
    stream = ReplyStream()
    services.pool.submit(stream.run, job.generate)
    response = ChatResponse(f"chatcmpl-{uuid.uuid4().hex}", int(services.now().timestamp()), services.settings.model)
    try:
        if body.stream:
            return await _stream_response(request, stream, job, response)
        reply = await _unless_disconnected(request, stream, _read_all(stream, job))
        trimmed = reply.completion.trimmed
        headers = _session_header(stream) | ({TRIMMED_HEADER: str(trimmed)} if trimmed else {})
        return JSONResponse(response.completion(reply, stream), headers=headers)
    except _Disconnected:
        return Response(status_code=499)  # nobody reads it


def check_model(services: Services, model: str) -> None:
    """Raises ApiError for a model that is not served here."""
    if model not in (services.settings.model, ALIAS):
        raise ApiError(
            404,
            f"model {model!r} is not served here; use {services.settings.model!r} or {ALIAS!r}",
            param="model",
            code="model_not_found",
        )


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


async def _stream_response(request: Request, stream: ReplyStream, job: ChatJob, response: ChatResponse) -> Response:
    """The response starts with the first words, so that a request that fails before them gets its proper status."""
    first = await _unless_disconnected(request, stream, _read_first(stream, job))
    headers = {**_session_header(stream), "cache-control": "no-cache", "x-accel-buffering": "no"}
    return _StoppingResponse(_events(stream, first, job, response), stream=stream, headers=headers)


async def _events(stream: ReplyStream, event: str | Reply, job: ChatJob, response: ChatResponse) -> AsyncIterator[str]:
    options = job.body.stream_options
    with_usage = bool(options and options.include_usage)
    yield response.first_chunk(with_usage=with_usage)
    try:
        while not isinstance(event, Reply):
            yield response.text_chunk(event, with_usage=with_usage)
            event = await stream.next()
    except Exception as error:  # the status is sent; an error can only be reported in the stream
        log.warning("a stream ended early: %s", error, exc_info=not isinstance(error, LocalmemError | ApiError))
        yield _error_event(to_api_error(error))
    else:
        yield response.last_chunks(event, stream, with_usage=with_usage)


class _StoppingResponse(StreamingResponse):
    """Server-sent events; however the response ends, the reply stream is stopped."""

    def __init__(self, events: AsyncIterator[str], *, stream: ReplyStream, headers: dict[str, str]) -> None:
        super().__init__(events, headers=headers, media_type="text/event-stream")
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
