"""Anthropic's POST /v1/messages and /v1/messages/count_tokens, translated to chat requests and back.

A key may come in the header x-api-key. A last message of the assistant is the beginning of the reply.
"""

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from localmem.errors import LLMUnavailable
from localmem.llm.base import LLM
from localmem.server.chat_service import Json, check_model, respond, to_event
from localmem.server.dependencies import KeyOnly, RequestCaller, SharedServices
from localmem.server.documents import describe_response
from localmem.server.errors import ApiError
from localmem.server.reply_documents import AnthropicError, AnthropicReply, Beta, TokenCount, errors_as, stream_document
from localmem.server.reply_stream import ReplyStream
from localmem.server.routes.completions import recall_body
from localmem.server.schemas import ToolCall, translate_chat
from localmem.types import Completion, Reply

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}

router = APIRouter(prefix="/v1/messages", responses=errors_as(AnthropicError))


class Block(BaseModel):
    """A block of a message: text, image, tool_use, tool_result or thinking; further fields are by type."""

    model_config = ConfigDict(extra="allow")

    type: str
    text: str = ""
    content: "str | list[Block] | dict[str, object] | None" = None

    def get(self, name: str) -> object:
        """A field of its type; None without it."""
        return (self.model_extra or {}).get(name)


Content = str | list[Block]


class AnthropicMessage(BaseModel):
    """A message as Anthropic's clients send it."""

    role: Literal["user", "assistant", "system"]
    content: Content


class ToolChoice(BaseModel):
    """Which tools the model may or must call."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class AnthropicTool(BaseModel):
    """A tool of the client."""

    model_config = ConfigDict(extra="ignore")

    type: str | None = None
    name: str
    description: str = ""
    input_schema: dict[str, object] | None = None


class CountRequest(BaseModel):
    """What makes up a prompt."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: Annotated[list[AnthropicMessage], Field(min_length=1)]
    system: Content = ""
    tools: list[AnthropicTool] = []
    tool_choice: ToolChoice | None = None


class MessagesRequest(CountRequest):
    """POST /v1/messages."""

    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool = False
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: int | None = None
    thinking: dict[str, object] | None = None
    output_config: dict[str, object] | None = None


@router.post("", **stream_document(AnthropicReply))
async def create(body: MessagesRequest, caller: RequestCaller, _beta: Beta = None) -> Response:
    """The reply to a dialogue. Raises ApiError."""
    if body.thinking and body.thinking.get("type") == "enabled":
        raise ApiError(400, "thinking is not supported: replies come without thoughts; omit it", param="thinking")
    fields = {
        "model": body.model,
        "messages": [*_system_messages(body.system), *(out for sent in body.messages for out in _translate(sent))],
        "max_tokens": await asyncio.to_thread(_fitting_limit, body.max_tokens, caller.services.runtime.llm),
        "stream": body.stream,
        "stop": body.stop_sequences,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "response_format": _response_format(body.output_config or {}),
        **_tool_fields(body),
    }
    stops = body.stop_sequences or ()
    form = MessageFormat(f"msg_{uuid.uuid4().hex[:24]}", caller.services.settings.model, stops)
    return await respond(caller, translate_chat(fields, {"response_format": "output_config"}), form)


@router.post("/count_tokens", dependencies=[KeyOnly], **describe_response(TokenCount))
def count_tokens(body: CountRequest, services: SharedServices, _beta: Beta = None) -> Json:
    """The tokens of what the client sends; those of the memory that a reply gets come on top. Raises ApiError."""
    check_model(services, body.model)
    messages = [*_system_messages(body.system), *(out for sent in body.messages for out in _translate(sent))]
    texts = [_text_of(message["content"]) for message in messages]
    texts += [tool.model_dump_json(exclude_none=True) for tool in body.tools]
    return {"input_tokens": sum(services.runtime.llm.count_tokens([text for text in texts if text]))}


@dataclass(slots=True)
class MessageFormat:
    """Anthropic's messages; a stream tells its events by name. Words go into one block, each call into its own."""

    id: str
    model: str
    stops: Sequence[str] = ()
    media_type: str = "text/event-stream"
    _blocks: list[object] = field(default_factory=list, init=False)  # what each is of: the words, or a call's index

    def document(self, reply: Reply, stream: ReplyStream) -> Json:
        """The message as one document."""
        completion = reply.completion
        text: list[Json] = [{"type": "text", "text": completion.text}] if completion.text else []
        content = [*text, *map(_tool_use, completion.tool_calls)]
        return {**self._message(content, completion), "localmem": recall_body(reply, stream)}

    def begin(self) -> str:
        """The message without content; the tokens of the prompt are known at the end only."""
        message = self._message([], None)
        return to_event({"type": "message_start", "message": message}, "message_start")

    def words(self, text: str) -> str:
        """Some words."""
        start = self._begin_block("words", {"type": "text", "text": ""})
        return start + _block_delta(len(self._blocks) - 1, {"type": "text_delta", "text": text})

    def call(self, piece: Json) -> str:
        """A piece of a call."""
        function = piece.get("function")
        fields: Mapping[str, object] = function if isinstance(function, Mapping) else {}
        block = _tool_use({"id": piece.get("id"), "function": {"name": fields.get("name")}})
        start = self._begin_block(piece.get("index", 0), block)
        if not fields.get("arguments"):
            return start
        delta: Json = {"type": "input_json_delta", "partial_json": fields["arguments"]}
        return start + _block_delta(len(self._blocks) - 1, delta)

    def end(self, reply: Reply, stream: ReplyStream) -> str:
        """The reason of the stop and the usage."""
        completion = reply.completion
        body: Json = {"type": "message_delta", "delta": self._end_of(completion), "usage": _usage(completion)}
        last = to_event({**body, "localmem": recall_body(reply, stream)}, "message_delta")
        return self._end_block() + last + to_event({"type": "message_stop"}, "message_stop")

    def error(self, error: ApiError) -> str:
        """An error, which Anthropic's clients raise."""
        return to_event(error.anthropic_body(), "error")

    def _begin_block(self, what: object, block: Json) -> str:
        """The begin of a block, after the end of the one before; nothing if it is open."""
        if self._blocks and self._blocks[-1] == what:
            return ""
        before = self._end_block()
        self._blocks.append(what)
        return before + _block_start(len(self._blocks) - 1, block)

    def _end_block(self) -> str:
        return _block_stop(len(self._blocks) - 1) if self._blocks else ""

    def _message(self, content: list[Json], completion: Completion | None) -> Json:
        head: Json = {"id": self.id, "type": "message", "role": "assistant", "model": self.model}
        usage = _usage(completion or Completion(""))
        return {**head, "content": content, **self._end_of(completion), "usage": usage}

    def _end_of(self, completion: Completion | None) -> Json:
        """Why it ended; without a completion it has not."""
        if completion and completion.finish == "stop" and completion.stop in self.stops:
            return {"stop_reason": "stop_sequence", "stop_sequence": completion.stop}
        return {"stop_reason": _STOP_REASONS[completion.finish] if completion else None, "stop_sequence": None}


def _usage(completion: Completion) -> Json:
    """Tokens as Anthropic counts them: those of the prompt without what came from the cache."""
    usage = completion.usage
    cache = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": usage.cached}
    return {"input_tokens": usage.input - usage.cached, **cache, "output_tokens": usage.output}


def _tool_use(call: Mapping[str, object]) -> Json:
    own = ToolCall.read(call)
    return {"type": "tool_use", "id": own.id, "name": own.name, "input": own.arguments}


def _block_start(index: int, block: Json) -> str:
    event = "content_block_start"
    return to_event({"type": event, "index": index, "content_block": block}, event)


def _block_delta(index: int, delta: Json) -> str:
    event = "content_block_delta"
    return to_event({"type": event, "index": index, "delta": delta}, event)


def _block_stop(index: int) -> str:
    return to_event({"type": "content_block_stop", "index": index}, "content_block_stop")


# -- to a chat request ---------------------------------------------------------------------------------------------


def _system_messages(system: Content) -> list[Json]:
    text = system if isinstance(system, str) else "\n\n".join(block.text for block in system)
    return [{"role": "system", "content": text}] if text else []


def _translate(sent: AnthropicMessage) -> Iterator[Json]:
    """A message as OpenAI's messages: results of tools become messages of their own, before the words."""
    if isinstance(sent.content, str) or sent.role == "system":
        text = sent.content if isinstance(sent.content, str) else "\n\n".join(block.text for block in sent.content)
        yield {"role": sent.role, "content": text}
        return
    for block in sent.content:
        if block.type == "tool_result":
            own = block.content
            result = [part for each in own for part in _parts(each)] if isinstance(own, list) else own
            yield {"role": "tool", "tool_call_id": str(block.get("tool_use_id")), "content": result}
    parts = [part for block in sent.content for part in _parts(block)]
    calls = [_tool_call(block) for block in sent.content if block.type == "tool_use"]
    if calls:
        yield {"role": "assistant", "content": _text_of(parts), "tool_calls": calls}
    elif parts:
        yield {"role": sent.role, "content": parts}


def _parts(block: Block) -> Iterator[Json]:
    """The texts and images of a block. Raises ApiError for what is neither, nor a call, a result or a thought."""
    if block.type == "text":
        yield {"type": "text", "text": block.text}
    elif block.type == "image":
        source = block.get("source")
        fields = source if isinstance(source, Mapping) else {}
        if not (fields.get("url") or fields.get("data")):
            kind = fields.get("type")
            raise ApiError(400, f"an image's source is {kind!r}; send its url, or its data in base64", param="messages")
        url = fields.get("url") or f"data:{fields.get('media_type')};base64,{fields.get('data')}"
        yield {"type": "image_url", "image_url": {"url": url}}
    elif block.type not in ("tool_use", "tool_result", "thinking", "redacted_thinking"):
        raise ApiError(400, f"a block of type {block.type!r} is not supported; send text or images", param="messages")


def _tool_call(block: Block) -> Json:
    arguments = block.get("input")
    fields = dict(arguments) if isinstance(arguments, Mapping) else {}
    return ToolCall(str(block.get("id")), str(block.get("name")), fields).body()


def _text_of(content: object) -> str:
    """The texts of a content in any of its forms."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else []
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def _fitting_limit(requested: int, llm: LLM) -> int:
    """At most half of the context: clients must send a limit, and do not know that of this model."""
    try:
        return min(requested, llm.context_length // 2)
    except LLMUnavailable:  # the reply will say so, and what the user said is stored
        return requested


def _response_format(config: Mapping[str, object]) -> Json | None:
    form = config.get("format")
    if not isinstance(form, Mapping):
        return None
    return {"type": form.get("type"), "json_schema": {"name": "answer", "schema": form.get("schema")}}


def _tool_fields(body: CountRequest) -> Json:
    """Tools and the choice among them, in OpenAI's form. Raises ApiError for tools of Anthropic's own servers."""
    tools = []
    for tool in body.tools:
        if tool.input_schema is None:
            kind = tool.type or tool.name
            raise ApiError(400, f"the tool {kind!r} runs on Anthropic's servers; send tools of yours", param="tools")
        function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
        tools.append({"type": "function", "function": function})
    choice = body.tool_choice
    if choice is None or not tools:
        return {"tools": tools}
    named = {"type": "function", "function": {"name": choice.name}}
    chosen: Json = {"tools": tools, "tool_choice": _CHOICES.get(choice.type, named)}
    return chosen | ({"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {})
