"""Request bodies, and what they mean for a prompt. Does not depend on HTTP or the agent.

A chat request may hold fields that are not listed here: they are sampling fields of the backbone's own server and are
passed on unchanged. Fields whose result localmem could not return (tools, several choices, log-probabilities) are
refused instead of ignored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field

from localmem.server.errors import ApiError
from localmem.types import Format, FreeText, JsonSchema, Message, Prompt

SESSION_ID = r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,99}$"
MODE_HEADER = "x-localmem"

MemoryMode = Literal["off", "read", "write"]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Part(_Open):
    """One part of a message; only those of type text can be used."""

    type: str
    text: str | None = None


class SentMessage(_Open):
    """A message as OpenAI's clients send it."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None


class StreamOptions(_Open):
    """Options of a stream."""

    include_usage: bool | None = None


class JsonSchemaFormat(_Open):
    """A named JSON schema."""

    model_config = ConfigDict(populate_by_name=True)

    definition: dict[str, object] = Field(alias="schema")


class ResponseFormat(_Open):
    """The format that an answer must have."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class ChatRequest(_Open):
    """POST /v1/chat/completions. Fields that are not listed are passed to the backbone."""

    model: str
    messages: Annotated[list[SentMessage], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    response_format: ResponseFormat | None = None
    metadata: dict[str, object] | None = None
    user: str | None = None
    n: int | None = None
    tools: list[object] | None = None
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
    """

    messages: Sequence[Message]
    instructions: str | None
    examples: frozenset[int] = frozenset()


def parse_chat(request: ChatRequest) -> ChatInput:
    """The dialogue of a request. Raises ApiError for features that localmem does not support."""
    _check_abilities(request)
    texts = [(message.role, _text(message, number)) for number, message in enumerate(request.messages)]
    system = [text for role, text in texts if role in ("system", "developer") and text.strip()]
    # A client that stopped a reply before its first word resends it empty: it was never shown.
    dialogue = [
        (Message(role, text), sent.name)
        for (role, text), sent in zip(texts, request.messages, strict=True)
        if role in ("user", "assistant") and text.strip()
    ]
    last_role, last_text = texts[-1]
    if last_role != "user" or not last_text.strip():
        raise ApiError(400, "the last message must be from the user and contain text", param="messages")
    examples = (index for index, (_, name) in enumerate(dialogue) if name and name.startswith("example"))
    messages = [message for message, _ in dialogue]
    return ChatInput(messages, "\n\n".join(system) if system else None, frozenset(examples))


def parse_mode(header: str | None) -> MemoryMode | None:
    """What memory is to do with a request by its header; None without it. Raises ApiError for any other word.

    `write` recalls and stores, `read` recalls, `off` does neither.
    """
    mode = header.strip().lower() if header is not None else None
    if mode is not None and mode not in get_args(MemoryMode):
        message = f"X-Localmem is {header!r}; use off, read or write"
        raise ApiError(400, message, param="X-Localmem", code="invalid_memory_mode")
    return cast(MemoryMode | None, mode)


def apply_sampling(request: ChatRequest, prompt: Prompt) -> Prompt:
    """The reply's prompt with the request's sampling fields. Without a seed the backbone picks one."""
    stops = [request.stop] if isinstance(request.stop, str) else request.stop
    limit = request.max_completion_tokens or request.max_tokens
    extra = {key: value for key, value in (request.model_extra or {}).items() if value is not None}
    return replace(
        prompt,
        max_tokens=limit or prompt.max_tokens,
        open_ended=prompt.open_ended and limit is None,
        temperature=prompt.temperature if request.temperature is None else request.temperature,
        seed=request.seed,
        stop=prompt.stop if stops is None else (*prompt.stop, *(stop for stop in stops if stop)),
        format=_format(request.response_format),
        extra={**prompt.extra, **extra},
    )


def _text(message: SentMessage, number: int) -> str:
    if message.role in ("tool", "function"):
        raise ApiError(400, f"message {number} has role {message.role!r}; tools are not supported", param="messages")
    if not isinstance(message.content, list):
        return message.content or ""
    for part in message.content:
        if part.type != "text" or part.text is None:
            raise ApiError(
                400,
                f"message {number} has a part of type {part.type!r}; only text is supported, remove it",
                param=f"messages.{number}.content",
            )
    return "\n".join(part.text or "" for part in message.content)


def _format(requested: ResponseFormat | None) -> Format:
    if requested is None or requested.type == "text":
        return FreeText()
    if requested.type == "json_object":
        return JsonSchema({"type": "object"})
    if requested.json_schema is None:
        raise ApiError(400, "response_format json_schema needs json_schema.schema", param="response_format")
    return JsonSchema(requested.json_schema.definition)


def _check_abilities(request: ChatRequest) -> None:
    _format(request.response_format)
    unsupported = {
        "n": request.n not in (None, 1),
        "tools": bool(request.tools),
        "functions": bool(request.functions),
        "logprobs": bool(request.logprobs),
        "modalities": request.modalities not in (None, [], ["text"]),
        "audio": request.audio is not None,
    }
    for name, is_requested in unsupported.items():
        if is_requested:
            raise ApiError(400, f"{name} is not supported: replies are one text; omit {name}", param=name)
