"""Ollama's protocol: /api/chat and /api/generate, streamed unless a client says no, and what its clients ask first.

Requests are translated to chat requests and back. Ollama names models NAME:TAG; the tag `latest` may be left out.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter_ns
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, model_validator

from localmem.llm.remote.openai_wire import join_tool_calls
from localmem.server.chat_service import ALIAS, Json, check_model, respond
from localmem.server.dependencies import Caller, KeyOnly, RequestCaller, Services, SharedServices
from localmem.server.documents import describe_response
from localmem.server.errors import ApiError
from localmem.server.reply_documents import (
    OllamaError,
    OllamaModel,
    OllamaModels,
    OllamaReply,
    errors_as,
    stream_document,
)
from localmem.server.reply_stream import ReplyStream
from localmem.server.routes.completions import recall_body
from localmem.server.schemas import ToolCall, translate_chat
from localmem.types import Reply

_VERSION = "0.12.0"  # of the protocol that is spoken here: clients compare it
_LATEST = ":latest"
_LINES = "application/x-ndjson"
# Ollama's options by the names of OpenAI and vLLM; others, such as num_ctx, are settings of the server here.
_OPTIONS = {
    "temperature": "temperature",
    "num_predict": "max_tokens",
    "seed": "seed",
    "stop": "stop",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}


_NAMES = {**{name: f"options.{option}" for option, name in _OPTIONS.items()}, "response_format": "format"}


class _JsonRoute(APIRoute):
    """Reads a body as JSON whatever its type is, as Ollama does: `curl -d` calls it a form, other clients send none."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            others = [header for header in request.scope["headers"] if header[0] != b"content-type"]
            scope = {**request.scope, "headers": [*others, (b"content-type", b"application/json")]}
            return await handle(Request(scope, request.receive))

        return handle_json


router = APIRouter(prefix="/api", route_class=_JsonRoute, responses=errors_as(OllamaError))


class _Body(BaseModel):
    """A field that is null is one that is absent, as Ollama has it."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, fields: object) -> object:
        return {key: fields[key] for key in fields if fields[key] is not None} if isinstance(fields, dict) else fields


class OllamaMessage(_Body):
    """A message; images are base64."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    images: list[str] | None = None
    tool_calls: list[dict[str, object]] | None = None
    tool_name: str = ""
    tool_call_id: str = ""


class _Generation(_Body):
    """What chats and single prompts have in common."""

    model: str
    stream: bool = True
    format: Literal["json", ""] | dict[str, object] | None = None
    options: dict[str, object] | None = None


class OllamaChatRequest(_Generation):
    """POST /api/chat."""

    messages: list[OllamaMessage] = []
    tools: list[dict[str, object]] | None = None


class GenerateRequest(_Generation):
    """POST /api/generate. An empty prompt only loads the model."""

    prompt: str = ""
    system: str = ""
    suffix: str = ""
    context: list[int] | None = None
    raw: bool | None = None
    template: str | None = None
    images: list[str] | None = None


class ShowRequest(_Body):
    """POST /api/show; older clients say `name`."""

    model: str = ""
    name: str = ""


@router.post("/chat", **stream_document(OllamaReply, _LINES))
async def chat(body: OllamaChatRequest, caller: RequestCaller) -> Response:
    """The reply to a dialogue. Raises ApiError."""
    form = OllamaFormat(_name(body.model), is_chat=True)
    if not body.messages:
        return _loaded(caller.services, form)
    return await _respond(caller, body, translate_messages(body.messages), form, tools=body.tools)


@router.post("/generate", **stream_document(OllamaReply, _LINES))
async def generate(body: GenerateRequest, caller: RequestCaller) -> Response:
    """The reply to a prompt. Raises ApiError."""
    for name in ("suffix", "context", "raw", "template"):
        if getattr(body, name):
            raise ApiError(400, f"{name} is not supported; omit it", param=name)
    form = OllamaFormat(_name(body.model), is_chat=False)
    if not body.prompt:
        return _loaded(caller.services, form)
    system = [OllamaMessage(role="system", content=body.system)] if body.system else []
    prompt = OllamaMessage(role="user", content=body.prompt, images=body.images)
    return await _respond(caller, body, translate_messages([*system, prompt]), form)


def _loaded(services: Services, form: "OllamaFormat") -> Response:
    """The answer to a request without words. Raises ApiError for a model that is not served."""
    check_model(services, form.model.removesuffix(_LATEST))
    return JSONResponse(form.loaded())


async def _respond(
    caller: Caller,
    body: _Generation,
    messages: Sequence[Json],
    form: "OllamaFormat",
    tools: Sequence[object] | None = None,
) -> Response:
    sampling = {_OPTIONS[name]: value for name, value in (body.options or {}).items() if name in _OPTIONS}
    limit = sampling.get("max_tokens")
    if isinstance(limit, int) and limit < 1:  # -1 and -2: as much as fits
        del sampling["max_tokens"]
    fields = {
        **sampling,
        "model": body.model.removesuffix(_LATEST),
        "messages": messages,
        "stream": body.stream,
        "tools": tools,
        "response_format": _response_format(body.format),
    }
    return await respond(caller, translate_chat(fields, _NAMES), form)


@router.head("/tags", dependencies=[KeyOnly], include_in_schema=False)
@router.get("/tags", dependencies=[KeyOnly], **describe_response(OllamaModels))
def tags(services: SharedServices) -> Json:
    """The models that can be chatted with."""
    return {"models": [_model(services, name) for name in (ALIAS, services.settings.model)]}


@router.get("/ps", dependencies=[KeyOnly], **describe_response(OllamaModels))
def loaded_models(services: SharedServices) -> Json:
    """The models that are loaded."""
    return {"models": [_model(services, services.settings.model)] if services.warm.is_set() else []}


@router.post("/show", dependencies=[KeyOnly], **describe_response(OllamaModel))
def show(body: ShowRequest, services: SharedServices) -> Json:
    """What is known of a model. Raises ApiError for another."""
    check_model(services, (body.model or body.name).removesuffix(_LATEST))
    llm = services.runtime.llm
    abilities = {"tools": "tools", "images": "vision"}
    capabilities = ["completion", *(name for ability, name in abilities.items() if ability in llm.abilities)]
    info = {"general.architecture": ALIAS, f"{ALIAS}.context_length": llm.context_length}
    model = _model(services, services.settings.model)
    return {**model, "capabilities": capabilities, "model_info": info, "template": "", "parameters": ""}


@router.head("/version", include_in_schema=False)
@router.get("/version")
async def version() -> Json:
    """The version of Ollama whose protocol this is."""
    return {"version": _VERSION}


@dataclass(slots=True)
class OllamaFormat:
    """Ollama's responses: JSON lines, the last of which has the numbers; durations are in nanoseconds."""

    model: str
    is_chat: bool
    media_type: str = _LINES
    _start: int = field(default_factory=perf_counter_ns)
    _call: list[Json] = field(default_factory=list)  # the pieces of the call that is not whole yet

    def document(self, reply: Reply, stream: ReplyStream) -> Json:
        """The reply as one document."""
        return {**self._piece(reply.completion.text, reply.completion.tool_calls), **self._last(reply, stream)}

    def begin(self) -> str:
        """Nothing comes before the words."""
        return ""

    def words(self, text: str) -> str:
        """Some words."""
        return _line({**self._piece(text), "done": False})

    def call(self, piece: Json) -> str:
        """The call before this one, whole: Ollama's arguments are objects."""
        before = self._take_call() if self._call and self._call[0].get("index") != piece.get("index") else ""
        self._call.append(piece)
        return before

    def end(self, reply: Reply, stream: ReplyStream) -> str:
        """The last call of a tool, then the numbers."""
        return self._take_call() + _line({**self._piece(""), **self._last(reply, stream)})

    def error(self, error: ApiError) -> str:
        """An error, which Ollama's clients raise."""
        return _line({"error": error.message})

    def loaded(self) -> Json:
        """The answer to a request without words."""
        return {**self._piece(""), "done": True, "done_reason": "load"}

    def _take_call(self) -> str:
        calls, self._call = join_tool_calls(self._call), []
        return _line({**self._piece("", calls), "done": False}) if calls else ""

    def _piece(self, text: str, calls: Sequence[Mapping[str, object]] = ()) -> Json:
        head: Json = {"model": self.model, "created_at": datetime.now(UTC).isoformat().replace("+00:00", "Z")}
        if not self.is_chat:
            return {**head, "response": text}
        message: Json = {"role": "assistant", "content": text}
        own = [_to_ollama_call(call) for call in calls]
        return {**head, "message": {**message, "tool_calls": own} if own else message}

    def _last(self, reply: Reply, stream: ReplyStream) -> Json:
        usage, duration = reply.completion.usage, perf_counter_ns() - self._start
        return {
            "done": True,
            "done_reason": "length" if reply.completion.finish == "length" else "stop",
            "total_duration": duration,
            "load_duration": 0,
            "prompt_eval_count": usage.input,
            "prompt_eval_duration": 0,
            "eval_count": usage.output,
            "eval_duration": duration,
            "localmem": recall_body(reply, stream),
        }


def translate_messages(messages: Sequence[OllamaMessage]) -> list[Json]:
    """The messages in OpenAI's form. A result belongs to the call of its id, else of its name, else to the next one."""
    translated: list[Json] = []
    waiting: list[ToolCall] = []
    for message in messages:
        body: Json = {"role": message.role, "content": message.content}
        if message.images:
            body["content"] = [{"type": "text", "text": message.content}, *map(_image, message.images)]
        if message.tool_calls:
            calls = [ToolCall.read(call) for call in message.tool_calls]
            waiting = list(calls)
            body["tool_calls"] = [call.body() for call in calls]
        if message.role == "tool":
            body["tool_call_id"] = _take_waiting(waiting, message)
        translated.append(body)
    return translated


def _take_waiting(waiting: list[ToolCall], result: OllamaMessage) -> str:
    """The id of the call that the result belongs to, which waits no longer."""
    named = [call for call in waiting if call.id == result.tool_call_id]
    named = named or [call for call in waiting if call.name == result.tool_name] or waiting
    if not named:
        return f"call_{uuid.uuid4().hex[:12]}"
    call = named[0]
    waiting.remove(call)
    return call.id


def _to_ollama_call(call: Mapping[str, object]) -> Json:
    own = ToolCall.read(call)
    return {"id": own.id, "function": {"name": own.name, "arguments": own.arguments}}


def _image(data: str) -> Json:
    """An image as a URL; its type is told by how its base64 begins."""
    starts = {"/9j/": "jpeg", "R0lG": "gif", "UklG": "webp"}
    kind = next((kind for start, kind in starts.items() if data.startswith(start)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def _response_format(form: str | Mapping[str, object] | None) -> Json | None:
    if not form:
        return None
    if isinstance(form, str):
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(form)}}


def _name(model: str) -> str:
    return model if ":" in model else model + _LATEST


def _model(services: Services, name: str) -> Json:
    started = datetime.fromtimestamp(services.started, UTC).isoformat().replace("+00:00", "Z")
    details = {"format": "", "family": ALIAS, "families": [ALIAS], "parameter_size": "", "quantization_level": ""}
    names: Json = {"name": _name(name), "model": _name(name), "modified_at": started}
    digest = hashlib.sha256(_name(name).encode()).hexdigest()  # of no file: `ollama list` cuts it and crashes without
    return {**names, "size": 0, "digest": digest, "details": details}


def _line(body: Json) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n"
