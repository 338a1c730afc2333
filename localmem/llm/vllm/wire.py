"""Prompts and answers in the OpenAI protocol with vLLM's extensions: requests, responses and stream events.

Opens no connection.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import AliasPath, BaseModel, Field

from localmem.errors import BadReply
from localmem.llm.base import UNKNOWN, ChoiceMass, steps_to_decide
from localmem.types import Choice, JsonSchema, Message, Prompt, Usage

# Fields with a value of their own in a prompt; its extra fields never replace them.
_OWN = ("messages", "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "n")
_TOP_LOGPROBS = 20
# vLLM writes minus infinity, the mark of a token that the format forbids, as -9999.
_FORBIDDEN = -9000.0
# An unlisted token is assumed to be so far below the last listed one.
_UNLISTED_STEP = 1.0


class Token(BaseModel):
    """A token and its log-probability."""

    token: str
    logprob: float
    values: list[int] | None = Field(None, alias="bytes")

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
    max_model_len: int | None = None


class Models(BaseModel):
    """All that the server serves."""

    data: list[ServedModel]


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
    prefill = [Message("assistant", prompt.prefill)] if prompt.prefill else []
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
    if prompt.prefill:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body | _format_fields(prompt)


def _format_fields(prompt: Prompt) -> dict[str, object]:
    match prompt.format:
        case JsonSchema(schema=schema):
            named = {"name": "answer", "schema": dict(schema), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        case Choice(options=options):
            return {
                "structured_outputs": {"choice": list(options)},
                "logprobs": True,
                "top_logprobs": _TOP_LOGPROBS,
            }
    return {}


def message_body(message: Message) -> dict[str, object]:
    """A message as servers take it; parts such as images follow the text."""
    fields = {name: value for name, value in message.fields.items() if name != "parts"}
    parts = message.fields.get("parts")
    content = [{"type": "text", "text": message.content}, *parts] if isinstance(parts, Sequence) else message.content
    return {"role": message.role, "content": content, **fields}


def finish(reason: str | None) -> Literal["stop", "length", "tool_calls"]:
    """How an answer ended."""
    return "length" if reason == "length" else "tool_calls" if reason == "tool_calls" else "stop"


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


def read_choice(prompt: Prompt, options: tuple[str, ...], answer: AnswerChoice) -> tuple[str, dict[str, float]]:
    """The decoded option, which may be incomplete in the answer, and the log-probabilities of all options."""
    mass = ChoiceMass(options)
    for token in answer.tokens or ():
        _weigh(mass, token)
    text = answer.content or ""
    option = text if text in options else mass.decision
    if option is None:
        raise BadReply(f"prompt {prompt.name!r} was answered {text!r}; the server did not enforce {list(options)}")
    return option, mass.end(option)


def _weigh(mass: ChoiceMass, token: DecodedToken) -> None:
    allowed = [top for top in token.top_logprobs if top.logprob > _FORBIDDEN]
    complete = len(allowed) < len(token.top_logprobs) or not allowed
    floor = None if complete else min(top.logprob for top in allowed) - _UNLISTED_STEP
    others = [top for top in allowed if (top.raw(), top.logprob) != (token.raw(), token.logprob)]
    pairs = [(top.raw() or UNKNOWN, top.logprob) for top in others]
    mass.step([(token.raw(), token.logprob), *pairs], token.raw(), floor=floor)


def counter(metrics: str, name: str) -> int | None:
    """A counter of a Prometheus text, summed over its labels; None where the text does not contain it."""
    lines = [line for line in metrics.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines) if lines else None
