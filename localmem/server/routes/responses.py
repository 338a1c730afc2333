"""OpenAI's POST /v1/responses, translated to chat requests and back.

A response may continue another by `previous_response_id` while this server runs. Tools of OpenAI's own servers, and
running in the background, are refused by name.
"""

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from localmem.server.chat_service import Json, respond, to_event
from localmem.server.dependencies import Caller, RequestCaller
from localmem.server.errors import ApiError
from localmem.server.reply_documents import ResponseObject, stream_document
from localmem.server.reply_stream import ReplyStream
from localmem.server.routes.completions import recall_body
from localmem.server.schemas import translate_chat
from localmem.types import Completion, Reply

_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "text"}

router = APIRouter()


class ResponsesRequest(BaseModel):
    """POST /v1/responses. `include`, `reasoning` and `truncation` change nothing here."""

    model_config = ConfigDict(extra="ignore")

    model: str
    input: Annotated[str, Field(min_length=1)] | Annotated[list[dict[str, object]], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    store: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    text: dict[str, object] | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: str | dict[str, object] | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, object] | None = None
    user: str | None = None
    background: Literal[False] | None = None
    conversation: None = None


@router.post("/v1/responses", **stream_document(ResponseObject))
async def create(body: ResponsesRequest, caller: RequestCaller) -> Response:
    """The reply to an input. Raises ApiError."""
    erasures = await asyncio.to_thread(caller.services.sessions.unlogged.count_erasures, caller.user)
    messages = [*_previous_messages(body, caller, erasures), *translate_input(body.input)]
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    fields = {
        "model": body.model,
        "messages": [*system, *messages],
        "stream": body.stream,
        "store": body.store,
        "max_completion_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "metadata": body.metadata,
        "response_format": _response_format(body.text),
        **_tool_fields(body),
    }
    form = ResponseFormat(f"resp_{uuid.uuid4().hex}", body, caller, messages, erasures)
    names = {"max_completion_tokens": "max_output_tokens", "response_format": "text"}
    return await respond(caller, translate_chat(fields, names), form)


def _previous_messages(body: ResponsesRequest, caller: Caller, erasures: int) -> Sequence[Mapping[str, object]]:
    """The dialogue to be continued; what was said before an erasure, by whatever process, may hold what is erased."""
    if body.previous_response_id is None:
        return ()
    dialogue = caller.services.sessions.dialogues.find(caller.user, body.previous_response_id)
    if dialogue is None or dialogue[0] != erasures:
        name = "previous_response_id"
        message = f"this server has no response {body.previous_response_id!r}; send the whole dialogue as input"
        raise ApiError(404, message, param=name, code="previous_response_not_found")
    return dialogue[1]


@dataclass(slots=True)
class ResponseFormat:
    """Responses; their events are numbered. Words go into an item, each call of a tool into one of its own."""

    id: str
    request: ResponsesRequest
    caller: Caller
    messages: Sequence[Mapping[str, object]]
    erasures: int
    media_type: str = "text/event-stream"
    _item: str = field(default_factory=lambda: f"msg_{uuid.uuid4().hex}", init=False)
    _text: list[str] = field(default_factory=list, init=False)
    _calls: dict[object, Json] = field(default_factory=dict, init=False)  # the items of calls by their indexes
    _numbers: Iterator[int] = field(default_factory=count, init=False)

    def document(self, reply: Reply, stream: ReplyStream) -> Json:
        """The response as one document."""
        completion = reply.completion
        self._remember(completion)
        words = [self._message(completion.text, _status_of(completion))] if completion.text else []
        body = self._body([*words, *map(_call_item, completion.tool_calls)], completion)
        return {**body, "localmem": recall_body(reply, stream)}

    def begin(self) -> str:
        """The response without output."""
        return "".join(
            self._event(f"response.{event}", response=self._body([], None)) for event in ("created", "in_progress")
        )

    def words(self, text: str) -> str:
        """Some words."""
        if self._calls:  # words after a call come with the whole response
            return ""
        start = "" if self._text else self._begin_message()
        self._text.append(text)
        return start + self._text_event("response.output_text.delta", delta=text, logprobs=[])

    def call(self, piece: Json) -> str:
        """A piece of a call; the item before it ends where it begins a call."""
        number, function = piece.get("index", 0), piece.get("function")
        fields: Mapping[str, object] = function if isinstance(function, Mapping) else {}
        events = ""
        if number not in self._calls:
            events = self._end_item()
            call = {**piece, "function": {"name": fields.get("name"), "arguments": ""}}
            self._calls[number] = {**_call_item(call), "arguments": ""}
            begun = {**self._calls[number], "status": "in_progress"}
            events += self._event("response.output_item.added", output_index=self._last_index, item=begun)
        item, words = self._calls[number], str(fields.get("arguments") or "")
        item["arguments"] = f"{item['arguments']}{words}"
        place = {"item_id": item["id"], "output_index": self._last_index}
        return events + (self._event("response.function_call_arguments.delta", **place, delta=words) if words else "")

    def end(self, reply: Reply, stream: ReplyStream) -> str:
        """The end of the last item, and the response as a whole."""
        completion = reply.completion
        self._remember(completion)
        words = [self._message(completion.text, _status_of(completion))] if completion.text else []
        body = {**self._body([*words, *self._calls.values()], completion), "localmem": recall_body(reply, stream)}
        return self._end_item(_status_of(completion)) + self._event(f"response.{body['status']}", response=body)

    def error(self, error: ApiError) -> str:
        """An error, which OpenAI's clients raise."""
        return self._event("error", code=error.code, message=error.message, param=error.param)

    def _begin_message(self) -> str:
        item = self._message("", "in_progress", [])
        part: Json = {"type": "output_text", "text": "", "annotations": []}
        return self._event("response.output_item.added", output_index=0, item=item) + self._text_event(
            "response.content_part.added", part=part
        )

    def _end_message(self, text: str, status: str) -> str:
        part: Json = {"type": "output_text", "text": text, "annotations": []}
        item = self._message(text, status)
        return (
            self._text_event("response.output_text.done", text=text, logprobs=[])
            + self._text_event("response.content_part.done", part=part)
            + self._event("response.output_item.done", output_index=0, item=item)
        )

    @property
    def _last_index(self) -> int:
        return bool(self._text) + len(self._calls) - 1

    def _end_item(self, status: str = "completed") -> str:
        """The end of the item that is open, with its status if it is a message."""
        if not self._calls:
            return self._end_message("".join(self._text), status) if self._text else ""
        item, index = list(self._calls.values())[-1], self._last_index
        place = {"item_id": item["id"], "output_index": index, "arguments": item["arguments"], "name": item["name"]}
        return self._event("response.function_call_arguments.done", **place) + self._event(
            "response.output_item.done", output_index=index, item=item
        )

    def _text_event(self, name: str, **fields: object) -> str:
        return self._event(name, item_id=self._item, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, /, **fields: object) -> str:
        return to_event({"type": kind, "sequence_number": next(self._numbers), **fields}, kind)

    def _message(self, text: str, status: str, content: Sequence[Json] | None = None) -> Json:
        parts = [{"type": "output_text", "text": text, "annotations": []}] if content is None else content
        return {"type": "message", "id": self._item, "status": status, "role": "assistant", "content": parts}

    def _body(self, output: Sequence[Json], completion: Completion | None) -> Json:
        """The response so far; None while it is in progress."""
        status = "in_progress" if completion is None else _status_of(completion)
        own = self.request.model_dump(exclude={"input", "stream", "background", "conversation", "model"})
        defaults = {"parallel_tool_calls": True, "tool_choice": "auto", "store": True, "metadata": {}, "tools": []}
        return {
            **own,
            **{name: value for name, value in defaults.items() if own[name] is None},
            "text": own["text"] or {"format": {"type": "text"}},
            "id": self.id,
            "object": "response",
            "created_at": self.caller.unix_time,
            "model": self.caller.services.settings.model,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "output": list(output),
            "usage": _usage(completion) if completion else None,
        }

    def _remember(self, completion: Completion) -> None:
        """Let a later request continue here, unless the client wants nothing stored."""
        if self.request.store is not False:
            calls: Json = {"tool_calls": list(completion.tool_calls)} if completion.tool_calls else {}
            reply: Json = {"role": "assistant", "content": completion.text, **calls}
            dialogue = self.erasures, (*self.messages, reply)
            self.caller.services.sessions.dialogues.add(self.caller.user, self.id, dialogue)


def _status_of(completion: Completion) -> str:
    """The status of a response and of its words."""
    return "incomplete" if completion.finish == "length" else "completed"


def _call_item(call: Mapping[str, object]) -> Json:
    function = call.get("function")
    fields = function if isinstance(function, Mapping) else {}
    named = {"name": fields.get("name"), "arguments": fields.get("arguments")}
    head: Json = {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", "call_id": call.get("id")}
    return {**head, **named, "status": "completed"}


def _usage(completion: Completion) -> Json:
    usage = completion.usage
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }


# -- to a chat request ---------------------------------------------------------------------------------------------


def translate_input(items: str | Sequence[Mapping[str, object]]) -> list[Json]:
    """The input as messages; calls of tools become one with the words before them. Raises ApiError for other items."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[Json] = []
    calls: list[Json] = []  # of the last message
    for number, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            if not (messages and messages[-1]["role"] == "assistant"):
                messages.append({"role": "assistant", "content": ""})
            calls = calls if "tool_calls" in messages[-1] else []
            calls.append({"id": item.get("call_id"), "type": "function", "function": function})
            messages[-1]["tool_calls"] = calls
        elif kind == "function_call_output":
            output = _content(item.get("output"), number)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
        elif kind == "message":
            messages.append({"role": item.get("role"), "content": _content(item.get("content"), number)})
        elif kind != "reasoning":
            raise ApiError(400, f"input {number} is of type {kind!r}, which is not supported", param=f"input.{number}")
    return messages


def _content(content: object, number: int) -> object:
    """A text, or parts in the form of chat messages. Raises ApiError."""
    if not isinstance(content, list):
        return content
    parts: list[Json] = []
    for part in content:
        fields = part if isinstance(part, Mapping) else {}
        kind = str(fields.get("type"))
        if kind in _PARTS:
            parts.append({"type": "text", "text": fields.get("text") or fields.get("refusal") or ""})
        elif kind == "input_image" and fields.get("image_url"):
            parts.append({"type": "image_url", "image_url": {"url": fields["image_url"]}})
        else:
            message = f"input {number} has a part of type {kind!r}; only texts and images by URL are supported"
            raise ApiError(400, message, param=f"input.{number}.content")
    return parts


def _response_format(text: Mapping[str, object] | None) -> Json | None:
    form = (text or {}).get("format")
    if not isinstance(form, Mapping):
        return None
    if form.get("type") != "json_schema":
        return dict(form)
    return {"type": "json_schema", "json_schema": {"name": form.get("name"), "schema": form.get("schema")}}


def _tool_fields(body: ResponsesRequest) -> Json:
    tools: list[Json] = []
    for tool in body.tools or ():
        if tool.get("type") != "function":
            kind = tool.get("type")
            raise ApiError(400, f"the tool {kind!r} runs on OpenAI's servers; send functions", param="tools")
        tools.append({"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}})
    if not tools:
        return {}
    choice = body.tool_choice
    if isinstance(choice, Mapping):
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    fields: Json = {"tools": tools, "tool_choice": choice}
    return fields | ({} if body.parallel_tool_calls is None else {"parallel_tool_calls": body.parallel_tool_calls})
