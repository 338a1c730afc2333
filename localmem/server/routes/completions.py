"""OpenAI's POST /v1/chat/completions, and /v1/completions, whose prompt is one message of the user.

Sampling fields that memory does not need are passed to the backbone unchanged. What was recalled is returned in the
extra field `localmem`, and the session in the header x-localmem-session. A client's system messages follow the
operator's instructions and are never remembered. The header x-localmem, or `"store": false`, says what memory does;
x-localmem-timezone names the user's time zone.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from localmem.runtime.inspection import prompt_document, reply_document
from localmem.server.chat_service import Json, respond, to_event
from localmem.server.dependencies import RequestCaller
from localmem.server.errors import ApiError
from localmem.server.reply_documents import ChatCompletion, TextCompletion, stream_document
from localmem.server.reply_stream import ReplyStream
from localmem.server.schemas import ChatRequest, StreamOptions, translate_chat
from localmem.types import Completion, Reply

_DONE = "data: [DONE]\n\n"

router = APIRouter()


@router.post("/v1/chat/completions", **stream_document(ChatCompletion))
async def chat(body: ChatRequest, caller: RequestCaller) -> Response:
    """The reply to the last message. Raises ApiError."""
    options = body.stream_options
    wants = options or StreamOptions()
    identity = f"chatcmpl-{uuid.uuid4().hex}", caller.unix_time, caller.services.settings.model
    form = ChatFormat(*identity, bool(wants.include_usage), with_prompt=bool(wants.include_prompt))
    return await respond(caller, body, form)


class TextRequest(BaseModel):
    """POST /v1/completions. Fields that are not listed are passed to the backbone."""

    model_config = ConfigDict(extra="allow")

    model: str
    prompt: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1, max_length=1)]
    max_tokens: int | None = None
    temperature: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    suffix: str | None = None
    echo: bool | None = None
    logprobs: int | None = None
    best_of: int | None = None


@router.post("/v1/completions", **stream_document(TextCompletion))
async def complete(body: TextRequest, caller: RequestCaller) -> Response:
    """The reply to a prompt. Raises ApiError."""
    refused = {"suffix": bool(body.suffix), "echo": bool(body.echo), "logprobs": bool(body.logprobs)}
    for name, is_requested in (refused | {"best_of": (body.best_of or 1) > 1}).items():
        if is_requested:
            raise ApiError(400, f"{name} is not supported here; use /v1/chat/completions, or omit {name}", param=name)
    prompt = body.prompt if isinstance(body.prompt, str) else body.prompt[0]
    fields = body.model_dump(exclude={"prompt", *refused, "best_of"}, exclude_none=True)
    request = translate_chat({**fields, "messages": [{"role": "user", "content": prompt}]})
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    form = TextFormat(f"cmpl-{uuid.uuid4().hex}", caller.unix_time, caller.services.settings.model, with_usage)
    return await respond(caller, request, form)


@dataclass(frozen=True, slots=True)
class _CompletionFormat:
    """What both forms share; `created` is in unix seconds. A stream has the usage and prompt that a client asks for."""

    id: str
    created: int
    model: str
    with_usage: bool
    with_prompt: bool = False
    media_type: str = "text/event-stream"

    def error(self, error: ApiError) -> str:
        """An error, which OpenAI's clients raise."""
        return to_event({**error.body()})

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


class ChatFormat(_CompletionFormat):
    """Chat completions."""

    __slots__ = ()

    def document(self, reply: Reply, stream: ReplyStream) -> Json:
        """The completion as one document. The text is the model's: the log may hold the same words already."""
        completions = (reply.completion, *stream.alternatives)
        return {
            **self._head("chat.completion"),
            "choices": [_choice(index, completion) for index, completion in enumerate(completions)],
            "usage": usage_body(completions),
            "localmem": recall_body(reply, stream),
        }

    def begin(self) -> str:
        """The first chunk: the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def words(self, text: str) -> str:
        """Some words."""
        return self._chunk({"content": text})

    def call(self, piece: Json) -> str:
        """A piece of a call."""
        return self._chunk({"tool_calls": [piece]})

    def end(self, reply: Reply, stream: ReplyStream) -> str:
        """The last chunks: further choices, finish reason and recall, the usage if asked for, the end mark."""
        chunks = []
        for index, other in enumerate(stream.alternatives, start=1):
            head = self._chunk({"role": "assistant", "content": other.text}, index=index)
            chunks += [head, self._calls(index, other), self._last(index, other)]
        completions = (reply.completion, *stream.alternatives)
        usage = {**self._head("chat.completion.chunk"), "choices": [], "usage": usage_body(completions)}
        prompt = {"prompt": prompt_document(reply.prompt)} if self.with_prompt else {}
        last = self._last(0, reply.completion, {"localmem": {**recall_body(reply, stream), **prompt}})
        return "".join(chunks) + last + (to_event(usage) if self.with_usage else "") + _DONE

    def _calls(self, index: int, completion: Completion) -> str:
        calls = [{"index": number, **call} for number, call in enumerate(completion.tool_calls)]
        return self._chunk({"tool_calls": calls}, index=index) if calls else ""

    def _last(self, index: int, completion: Completion, extra: Json | None = None) -> str:
        return self._chunk({}, index=index, end=completion, extra=extra)

    def _chunk(self, delta: Json, *, index: int = 0, end: Completion | None = None, extra: Json | None = None) -> str:
        finish, logprobs = (end.finish, _logprobs(end)) if end else (None, None)
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        chunk: Json = {**self._head("chat.completion.chunk"), "choices": [choice], **(extra or {})}
        return to_event({**chunk, "usage": None} if self.with_usage else chunk)


class TextFormat(_CompletionFormat):
    """Completions of a text, as ChatFormat has those of a chat."""

    __slots__ = ()

    def document(self, reply: Reply, stream: ReplyStream) -> Json:
        """The completion as one document."""
        completions = (reply.completion, *stream.alternatives)
        choices = [_text_choice(index, each.text, each.finish) for index, each in enumerate(completions)]
        return {**self._body(choices), "usage": usage_body(completions), "localmem": recall_body(reply, stream)}

    def begin(self) -> str:
        """Nothing comes before the words."""
        return ""

    def words(self, text: str) -> str:
        """Some words."""
        return to_event(self._body([_text_choice(0, text, None)]))

    def call(self, piece: Json) -> str:
        """Nothing: a completion of a text has no tools."""
        return ""

    def end(self, reply: Reply, stream: ReplyStream) -> str:
        """Further choices, the finish reasons, the usage if asked for, the end mark."""
        last = [_text_choice(index, each.text, each.finish) for index, each in enumerate(stream.alternatives, start=1)]
        usage = {**self._body([]), "usage": usage_body((reply.completion, *stream.alternatives))}
        body = self._body([_text_choice(0, "", reply.completion.finish), *last])
        return to_event(body) + (to_event(usage) if self.with_usage else "") + _DONE

    def _body(self, choices: Sequence[Json]) -> Json:
        return {**self._head("text_completion"), "choices": list(choices)}


def _text_choice(index: int, text: str, finish: str | None) -> Json:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}


def _choice(index: int, completion: Completion) -> Json:
    message: Json = {"role": "assistant", "content": completion.text, "refusal": None}
    if completion.tool_calls:
        message |= {"content": completion.text or None, "tool_calls": list(completion.tool_calls)}
    return {"index": index, "message": message, "logprobs": _logprobs(completion), "finish_reason": completion.finish}


def _logprobs(completion: Completion) -> Mapping[str, object] | None:
    return {"content": list(completion.logprobs), "refusal": None} if completion.logprobs else None


def usage_body(completions: Sequence[Completion]) -> Json:
    """Tokens as OpenAI counts them, and how many were cut from the prompt to make it fit."""
    first, output = completions[0], sum(completion.usage.output for completion in completions)
    return {
        "prompt_tokens": first.usage.input,
        "completion_tokens": output,
        "total_tokens": first.usage.input + output,
        "prompt_tokens_details": {"cached_tokens": first.usage.cached, "trimmed_tokens": first.trimmed},
    }


def recall_body(reply: Reply, stream: ReplyStream) -> Json:
    """What the reply was based on, and what memory did: `mode` with the request; `session` is None without a log."""
    own = {"session": stream.session or None, "mode": stream.mode, "trimmed_tokens": reply.completion.trimmed}
    return {**own, **reply_document(reply)}
