"""Request bodies, and what they mean for a prompt. Does not depend on HTTP or the agent.

A chat request may hold fields that are not listed here: they are sampling fields of the backbone's own server and are
passed on unchanged. Fields whose result localmem could not return, such as audio, are refused instead of ignored. The
other protocols (`routes`) are translated into these requests.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localmem.chat.responder import Attachment
from localmem.errors import BadInput, LLMUnavailable, PromptTooLong
from localmem.llm.base import LLM, required_abilities
from localmem.llm.remote.openai_wire import mend_escapes
from localmem.server.errors import ApiError, describe_invalid
from localmem.types import Format, FreeText, JsonSchema, Message, Prompt

SESSION_ID = r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,99}$"
MODE_HEADER = "x-localmem"
_SAMPLING = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_FEATURES = ("tools", "tool_choice", "logprobs", "top_logprobs")
_INSTRUCTING = ("system", "developer")
_IMAGE = "[image]"  # the words of a message that is an image only

MemoryMode = Literal["off", "read", "write"]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Part(_Open):
    """One part of a message: a text, a refusal of the assistant's, or an image in OpenAI's form."""

    type: str
    text: str | None = None
    refusal: str | None = None


class SentMessage(_Open):
    """A message as OpenAI's clients send it."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[dict[str, object]] | None = None
    tool_call_id: str | None = None


class StreamOptions(_Open):
    """Options of a stream; `include_prompt` is localmem's own: the prompt as it was sent, in the last chunk."""

    include_usage: bool | None = None
    include_prompt: bool | None = None


class JsonSchemaFormat(_Open):
    """A named JSON schema."""

    model_config = ConfigDict(populate_by_name=True)

    definition: dict[str, object] = Field(alias="schema")


class ResponseFormat(_Open):
    """The format that an answer must have."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class Tool(_Open):
    """A function that the model may call."""

    type: Literal["function"]
    function: dict[str, object]


class ChatRequest(_Open):
    """POST /v1/chat/completions. Fields that are not listed are passed to the backbone."""

    model: str
    messages: Annotated[list[SentMessage], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    response_format: ResponseFormat | None = None
    metadata: dict[str, object] | None = None
    user: str | None = None
    n: Annotated[int, Field(ge=1, le=16)] | None = None
    tools: list[Tool] | None = None
    functions: list[object] | None = None
    tool_choice: object = None
    function_call: object = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    audio: object = None
    store: bool | None = None


@dataclass(frozen=True, slots=True)
class ChatInput:
    """The dialogue of a chat request without its system messages, and those joined (None without any).

    `examples` are the positions of messages that were sent under the name of an example, such as `example_user`.
    `attachments` are, by position, a message's images, and the calls and results of tools after it; -1 is that of those
    before the first message, whose question the client cut off. The reply continues `prefill`.
    """

    messages: Sequence[Message]
    instructions: str | None
    examples: frozenset[int] = frozenset()
    attachments: Mapping[int, Attachment] = field(default_factory=dict)
    prefill: str = ""


def parse_chat(request: ChatRequest) -> ChatInput:
    """The dialogue of a request. Raises ApiError for features that localmem does not support."""
    _check_features(request)
    reader = _DialogueReader()
    for number, sent in enumerate(request.messages):
        reader.add(sent, number)
    last = request.messages[-1]
    turns = (sent for sent in reversed(request.messages) if sent.role not in _INSTRUCTING)
    before = next(turns, last)  # the client's closing instructions are no turn: one of the user comes before them
    return reader.finish(before if last.role in _INSTRUCTING and before.role == "user" else last)


class _DialogueReader:
    """Tells the messages of people and assistants from those of systems and tools."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._system: list[str] = []
        self._examples: set[int] = set()
        self._attachments: dict[int, Attachment] = {}

    def add(self, sent: SentMessage, number: int) -> None:
        """The next message. Raises ApiError."""
        text, images = _read_content(sent, number)
        if sent.role in _INSTRUCTING:
            self._system += [text] if text.strip() else []
        elif sent.role == "tool" or sent.tool_calls:
            self._add_tool_message(sent, text, images)
        # A client that stopped a reply before its first word resends it empty: it was never shown.
        elif text.strip() or images:
            position = len(self._messages)
            self._messages.append(Message("user" if sent.role == "user" else "assistant", text or _IMAGE))
            if images:
                self._attachments[position] = Attachment(tuple(images))
            if sent.name and sent.name.startswith("example"):
                self._examples.add(position)

    def finish(self, last: SentMessage) -> ChatInput:
        """The dialogue, `last` being the last message of the request. Raises ApiError."""
        messages, prefill = self._messages, ""
        if last.role == "assistant" and not last.tool_calls and messages and messages[-1].role == "assistant":
            prefill = messages.pop().content
        is_answerable = last.role in ("user", "tool") or bool(prefill)
        has_text = last.role != "user" or bool(_read_content(last, 0)[0].strip() or _read_content(last, 0)[1])
        if not (is_answerable and has_text and messages and messages[-1].role == "user"):
            cure = "the last message must be from the user and contain text, or hold a tool's result after such a one"
            raise ApiError(400, cure, param="messages")
        system = "\n\n".join(self._system) if self._system else None
        return ChatInput(messages, system, frozenset(self._examples), self._attachments, prefill)

    def _add_tool_message(self, sent: SentMessage, text: str, images: Sequence[object]) -> None:
        """A call of tools or a result, perhaps with images; it goes with the last message before it."""
        fields = {"tool_call_id": sent.tool_call_id} if sent.role == "tool" else {"tool_calls": sent.tool_calls}
        parts = {"parts": tuple(images)} if images else {}
        message = Message("tool" if sent.role == "tool" else "assistant", text, {**fields, **parts})
        position = len(self._messages) - 1
        own = self._attachments.get(position, Attachment())
        self._attachments[position] = replace(own, following=(*own.following, message))


class ToolCall(NamedTuple):
    """A call of a tool; `arguments` as an object. What a model wrote that is no JSON object is under `arguments`."""

    id: str
    name: str
    arguments: dict[str, object]

    @classmethod
    def read(cls, call: Mapping[str, object]) -> "ToolCall":
        """A call in OpenAI's form, or Ollama's, which has no id."""
        function = call.get("function")
        fields = function if isinstance(function, Mapping) else {}
        arguments = fields.get("arguments") or {}
        try:
            value = json.loads(mend_escapes(arguments)) if isinstance(arguments, str) else arguments
        except ValueError:
            value = arguments
        identity = str(call.get("id") or f"call_{uuid.uuid4().hex[:12]}")
        own = dict(value) if isinstance(value, Mapping) else {"arguments": value}
        return cls(identity, str(fields.get("name") or ""), own)

    def body(self) -> dict[str, object]:
        """The call in OpenAI's form."""
        function = {"name": self.name, "arguments": json.dumps(self.arguments, ensure_ascii=False)}
        return {"id": self.id, "type": "function", "function": function}


def translate_chat(fields: Mapping[str, object], names: Mapping[str, str] = MappingProxyType({})) -> ChatRequest:
    """The chat request that another protocol's means. Raises ApiError for a value that is wrong in it.

    `names` are those of the other protocol where they differ.
    """
    try:
        return ChatRequest.model_validate(fields)
    except ValidationError as error:
        paths = [(names.get(str(each["loc"][0]), each["loc"][0]), *each["loc"][1:]) for each in error.errors()]
        problems = [{**each, "loc": path} for each, path in zip(error.errors(), paths, strict=True)]
        raise describe_invalid(problems) from error


def parse_mode(header: str | None) -> MemoryMode | None:
    """What memory is to do with a request by its header; None without it. Raises ApiError for any other word.

    `write` recalls and stores, `read` recalls, `off` does neither.
    """
    mode = header.strip().lower() if header is not None else None
    if mode is not None and mode not in get_args(MemoryMode):
        message = f"X-Localmem is {header!r}; use off, read or write"
        raise ApiError(400, message, param="X-Localmem", code="invalid_memory_mode")
    return cast(MemoryMode | None, mode)


def apply_options(request: ChatRequest, chat: ChatInput, prompt: Prompt) -> Prompt:
    """The reply's prompt with the request's sampling fields and tools. Without a seed the backbone picks one."""
    stops = [request.stop] if isinstance(request.stop, str) else request.stop
    limit = request.max_completion_tokens or request.max_tokens
    return replace(
        prompt,
        max_tokens=limit or prompt.max_tokens,
        open_ended=prompt.open_ended and limit is None,
        temperature=prompt.temperature if request.temperature is None else request.temperature,
        seed=request.seed,
        stop=prompt.stop if stops is None else (*prompt.stop, *(stop for stop in stops if stop)),
        format=_format(request.response_format),
        extra={**prompt.extra, **extra_fields(request)},
        prefill=chat.prefill,
    )


def extra_fields(request: ChatRequest) -> dict[str, object]:
    """What only the backbone's own server understands: further sampling fields, tools, log-probabilities."""
    fields = request.model_dump(include={*_SAMPLING, *_FEATURES}, exclude_none=True)
    if not request.tools:
        fields = {name: value for name, value in fields.items() if not name.startswith("tool")}
    fields = {name: value for name, value in fields.items() if value is not False}
    return {**{key: value for key, value in (request.model_extra or {}).items() if value is not None}, **fields}


def check_backbone(request: ChatRequest, chat: ChatInput, llm: LLM) -> None:
    """Raises ApiError for what the backbone cannot do, before anything is stored."""
    attached = [message for own in chat.attachments.values() for message in own.messages(Message("user", ""))]
    probe = apply_options(request, chat, Prompt("chat/reply", (Message("user", ""), *attached)))
    limit, is_plain = request.max_completion_tokens or request.max_tokens, isinstance(probe.format, FreeText)
    if not limit and is_plain and not required_abilities(probe):
        return  # a backbone that is not loaded need not be for a plain request
    try:
        llm.check(probe)
    except LLMUnavailable:
        return  # the reply will say so, and what the user said is stored
    except PromptTooLong as error:
        message = f"the request asks for {limit} tokens of a context of {llm.context_length}; ask for fewer"
        param = "max_completion_tokens" if request.max_completion_tokens else "max_tokens"
        raise ApiError(400, message, param=param, code="bad_input") from error
    except BadInput as error:
        missing = sorted(required_abilities(probe).difference(llm.abilities))
        param = next((name for name in missing if name in ("logprobs", "tools")), "messages")
        raise ApiError(400, str(error), param=param if missing else "response_format", code="unsupported") from error


def _read_content(message: SentMessage, number: int) -> tuple[str, list[dict[str, object]]]:
    """The text of a message, and its images. Raises ApiError for any other part."""
    if message.role == "function":
        raise ApiError(400, f"message {number} has role 'function'; use tools in place of functions", param="messages")
    if not isinstance(message.content, list):
        return message.content or "", []
    texts, images = [], []
    for part in message.content:
        text = {"text": part.text, "refusal": part.refusal}.get(part.type)
        if part.type == "image_url":
            images.append(part.model_dump(exclude_none=True))
        elif text is not None:
            texts.append(text)
        else:
            complaint = f"message {number} has a part of type {part.type!r}; only text and image_url are supported"
            raise ApiError(400, complaint, param=f"messages.{number}.content")
    return "\n".join(texts), images


def _format(requested: ResponseFormat | None) -> Format:
    if requested is None or requested.type == "text":
        return FreeText()
    if requested.type == "json_object":
        return JsonSchema({"type": "object"}, may_be_cut=True)
    if requested.json_schema is None:
        raise ApiError(400, "response_format json_schema needs json_schema.schema", param="response_format")
    return JsonSchema(requested.json_schema.definition, may_be_cut=True)


def _check_features(request: ChatRequest) -> None:
    _format(request.response_format)
    unsupported = {
        "functions": bool(request.functions),
        "modalities": request.modalities not in (None, [], ["text"]),
        "audio": request.audio is not None,
    }
    for name, is_requested in unsupported.items():
        if is_requested:
            raise ApiError(
                400, f"{name} is not supported: replies are text and calls of tools; omit {name}", param=name
            )
