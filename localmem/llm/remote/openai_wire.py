"""Prompts and answers in the OpenAI protocol: requests, responses and stream events. Other protocols translate into it.

Opens no connection.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar

from pydantic import AliasPath, BaseModel, Field, ValidationError

from localmem.errors import BadReply, LLMError
from localmem.llm.choice_mass import UNKNOWN, ChoiceMass, steps_to_decide
from localmem.llm.control_tokens import neutralize
from localmem.types import Choice, Message, Prompt, Usage

Parsed = TypeVar("Parsed", bound=BaseModel)

_MESSAGE_WIDTH = 400
# Fields with a value of their own in a prompt; its extra fields never replace them.
_OWN = ("messages", "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "n")
TOP_LOGPROBS = 20
# vLLM writes minus infinity, the mark of a token that the format forbids, as -9999.
_FORBIDDEN = -9000.0
# An unlisted token is assumed to be so far below the last listed one.
_UNLISTED_STEP = 1.0
CHOICE_FIELD = "answer"
# Escapes in JSON; `broken` is one of NUL or of half a character, which no store takes, nor a response.
_ESCAPES = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<broken>u0000|u[dD][89a-fA-F]..)|.)", re.DOTALL)


class Token(BaseModel):
    """A token and its log-probability."""

    token: str
    logprob: float
    values: list[int] | None = Field(None, alias="bytes")

    @classmethod
    def of(cls, raw: bytes, logprob: float) -> "Token":
        """The token of these bytes."""
        return cls(token=raw.decode(errors="replace"), logprob=logprob, bytes=list(raw))

    def raw(self) -> bytes:
        """The token's text: empty for the beginning of a character, all of it for the token that completes it."""
        return bytes(self.values) if self.values is not None else self.token.encode()


class DecodedToken(Token):
    """A token of the answer and the likeliest in its place."""

    top_logprobs: list[Token] = []


class WireUsage(BaseModel):
    """Tokens of the prompt, those of them that the prefix cache held, and tokens of the answer."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    cached_tokens: int | None = Field(None, validation_alias=AliasPath("prompt_tokens_details", "cached_tokens"))

    def usage(self) -> Usage:
        return Usage(input=self.prompt_tokens, output=self.completion_tokens or 0, cached=self.cached_tokens or 0)


class AnswerChoice(BaseModel):
    """One answer to a prompt."""

    content: str | None = Field(None, validation_alias=AliasPath("message", "content"))
    tool_calls: list[dict[str, object]] | None = Field(None, validation_alias=AliasPath("message", "tool_calls"))
    finish_reason: str | None = None
    stop_reason: object = None  # of vLLM: the stop string that came, or the id of a token
    logprobs: list[dict[str, object]] | None = Field(None, validation_alias=AliasPath("logprobs", "content"))
    tokens: list[DecodedToken] | None = Field(None, validation_alias=AliasPath("logprobs", "content"))


class Response(BaseModel):
    """A chat completion, as far as we read it."""

    choices: list[AnswerChoice]
    usage: WireUsage = WireUsage()


class Delta(BaseModel):
    """A piece of a streamed answer."""

    content: str | None = Field(None, validation_alias=AliasPath("delta", "content"))
    tool_calls: list[dict[str, object]] | None = Field(None, validation_alias=AliasPath("delta", "tool_calls"))
    finish_reason: str | None = None
    stop_reason: object = None
    logprobs: list[dict[str, object]] | None = Field(None, validation_alias=AliasPath("logprobs", "content"))


class WireError(BaseModel):
    """An error in a stream."""

    message: str
    code: int | str | None = None


class Event(BaseModel):
    """One event of a streamed chat completion; the last but one holds the usage and no choices."""

    choices: list[Delta] = []
    usage: WireUsage | None = None
    error: WireError | None = None


class TokenCount(BaseModel):
    """The answer to a request to count tokens."""

    count: int


class ServedModel(BaseModel):
    """A model or an adapter of the server."""

    id: str
    owned_by: str | None = None
    max_model_len: int | None = None


class Models(BaseModel):
    """All that the server serves."""

    data: list[ServedModel]


def parse(kind: type[Parsed], content: bytes | str) -> Parsed:
    """The server's JSON as a model of its protocol. Raises LLMError."""
    text = mend_escapes(content)
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        start = text[:_MESSAGE_WIDTH]
        raise LLMError(f"the server's answer does not follow the OpenAI protocol: {start!r}") from error


def mend_escapes(content: bytes | str) -> str:
    """A server's JSON, with U+FFFD for what is no character in its texts."""
    text = content.decode(errors="replace") if isinstance(content, bytes) else content
    return _ESCAPES.sub(lambda escape: r"\ufffd" if escape["broken"] else escape[0], text) if "\\u" in text else text


def answer_limit(prompt: Prompt) -> int:
    """The most tokens of an answer. A choice is decided long before it is complete, if its characters are bytes."""
    if not isinstance(prompt.format, Choice):
        return prompt.max_tokens
    options = prompt.format.options
    if all(option.isascii() for option in options):
        return steps_to_decide(options)
    return 1 + max(len(option.encode()) for option in options)


def request_body(prompt: Prompt, messages: Iterable[Message], *, model: str, stream: bool) -> dict[str, object]:
    """The body of a chat completion request."""
    prefill = [Message("assistant", neutralize(prompt.prefill))] if prompt.prefill else []
    body: dict[str, object] = {name: value for name, value in prompt.extra.items() if name not in _OWN}
    body |= {
        "model": model,
        "messages": [message_body(message) for message in (*messages, *prefill)],
        "temperature": prompt.temperature,
        "stream": stream,
    }
    if not prompt.open_ended:  # without a limit the server allows what its context leaves
        body["max_tokens"] = answer_limit(prompt)
    if prompt.seed is not None:
        body["seed"] = prompt.seed
    if prompt.stop and not isinstance(prompt.format, Choice):
        body["stop"] = list(prompt.stop)
    if stream:
        body["stream_options"] = {"include_usage": True}
    return body


def schema_fields(schema: Mapping[str, object]) -> dict[str, object]:
    """The fields of a request whose answer follows a JSON schema."""
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": dict(schema), "strict": True},
        }
    }


def logprob_fields(count: int = TOP_LOGPROBS) -> dict[str, object]:
    """The fields of a request for the log-probabilities of the likeliest tokens."""
    return {"logprobs": True, "top_logprobs": count}


def message_body(message: Message) -> dict[str, object]:
    """A message as servers take it; parts such as images follow the text."""
    fields = {name: value for name, value in message.fields.items() if name != "parts"}
    parts = message.fields.get("parts")
    content = [{"type": "text", "text": message.content}, *parts] if isinstance(parts, Sequence) else message.content
    return {"role": message.role, "content": content, **fields}


def template_body(
    messages: Sequence[Mapping[str, object]], template: Mapping[str, object], tools: Sequence[object]
) -> dict[str, object]:
    """The fields of a request that applies the chat template."""
    body: dict[str, object] = {"messages": list(messages), "chat_template_kwargs": dict(template)}
    return body | {"tools": list(tools)} if tools else body


def finish(reason: str | None) -> Literal["stop", "length", "tool_calls"]:
    """How an answer ended."""
    return "length" if reason == "length" else "tool_calls" if reason == "tool_calls" else "stop"


def stop_string(reason: object) -> str:
    """The stop string that ended an answer, "" for none and where a server does not say so."""
    return reason if isinstance(reason, str) else ""


def join_tool_calls(pieces: Iterable[Mapping[str, object]]) -> tuple[dict[str, object], ...]:
    """The calls whose pieces were streamed, in the order of their indexes."""
    calls: dict[object, dict[str, dict[str, str]]] = {}
    for piece in pieces:
        index, function = piece.get("index", 0), piece.get("function")
        call = calls.setdefault(index, {"head": {}, "function": {"name": "", "arguments": ""}})
        call["head"] |= {name: str(piece[name]) for name in ("id", "type") if piece.get(name)}
        for name, words in function.items() if isinstance(function, Mapping) else ():
            if name in call["function"] and words:
                call["function"][name] += words
    return tuple({"type": "function", **call["head"], "function": call["function"]} for call in calls.values())


def read_choice(
    prompt: Prompt, options: tuple[str, ...], answer: AnswerChoice, *, end: bytes | None = None
) -> tuple[str, dict[str, float]]:
    """The decoded option, which may be incomplete in the answer, and the log-probabilities of all options.

    A server that reports log-probabilities before it forbids anything lists tokens that the options do not allow. Then
    `end` is the one token that ends an answer; otherwise every token that continues no option does.
    """
    mass = ChoiceMass(options)
    for token in answer.tokens or ():
        _weigh(mass, token, end)
    text = answer.content or ""
    option = text if text in options else mass.decision
    if option is None:
        raise BadReply(f"prompt {prompt.name!r} was answered {text!r}; the server did not enforce {list(options)}")
    return option, mass.end(option)


def choice_schema(options: Sequence[str]) -> dict[str, object]:
    """The JSON schema of an answer that is one of these options, for servers that take no list of options."""
    fields = {CHOICE_FIELD: {"type": "string", "enum": list(options)}}
    return {"type": "object", "properties": fields, "required": [CHOICE_FIELD], "additionalProperties": False}


def weigh_schema_choice(options: tuple[str, ...], option: str, tokens: Iterable[DecodedToken]) -> dict[str, float]:
    """The log-probabilities of the options in an answer that follows their schema: `option` is the one decoded.

    Of the tokens count those from the opening quote of the option on, which may be in one token with the colon.
    """
    quoted = {json.dumps(each, ensure_ascii=False): each for each in options}
    mass, has_begun, value = ChoiceMass(tuple(quoted)), False, b""
    for token in tokens:
        if not has_begun and b":" not in token.raw():
            continue
        value_token = token if has_begun else _map_token(token, lambda raw: raw.partition(b":")[2])
        has_begun, read_part = True, partial(_value_part, begins=not value)
        _weigh(mass, _map_token(value_token, read_part), b"")
        value += read_part(value_token.raw())
    weights = mass.end(json.dumps(option, ensure_ascii=False))
    return {each: weights[name] for name, each in quoted.items()}


def _map_token(token: DecodedToken, part: Callable[[bytes], bytes]) -> DecodedToken:
    """A token and its rivals with a part of their texts."""
    rivals = [Token.of(part(top.raw()), top.logprob) for top in token.top_logprobs]
    decoded = Token.of(part(token.raw()), token.logprob)
    return DecodedToken(**decoded.model_dump(by_alias=True), top_logprobs=rivals)


def _value_part(raw: bytes, *, begins: bool) -> bytes:
    """Without what stands around the quoted option."""
    value = raw.lstrip() if begins else raw
    end = value.find(b'"', 1 if begins else 0)
    return value if end < 0 else value[: end + 1]


def _weigh(mass: ChoiceMass, token: DecodedToken, end: bytes | None) -> None:
    allowed = [top for top in token.top_logprobs if top.logprob > _FORBIDDEN]
    complete = len(allowed) < len(token.top_logprobs) or not allowed
    floor = None if complete else min(top.logprob for top in (token, *allowed)) - _UNLISTED_STEP
    others = [top for top in allowed if (top.raw(), top.logprob) != (token.raw(), token.logprob)]
    if end is not None:
        others = [top for top in others if top.raw() and (top.raw() == end or mass.continues(top.raw()))]
    pairs = [(top.raw() or UNKNOWN, top.logprob) for top in others]
    mass.step([(token.raw(), token.logprob), *pairs], token.raw(), floor=floor)
