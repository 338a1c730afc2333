"""Ollama's own protocol (/api/chat): it alone sets the context length and how long the model stays loaded.

Through Ollama's OpenAI addresses a prompt beyond the server's default context, often 4,096 tokens, is cut in silence,
from its beginning. Here every request carries the context that prompts are trimmed to, and what the server really
allotted is read before the first one. Requests and answers are translated from and to the form of `openai_wire`.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from localmem.errors import LLMError
from localmem.llm.base import Ability, Pause
from localmem.llm.remote.openai_protocol import Capabilities, OpenAIProtocol, first_number
from localmem.llm.remote.openai_wire import TOP_LOGPROBS, Event, Response, answer_limit, mend_escapes, message_body
from localmem.llm.remote.server_client import Broken
from localmem.llm.tokenizer import template_fields
from localmem.types import Choice, JsonSchema, Message, Prompt

logger = logging.getLogger(__name__)

# A model's own limit is often 131,072 tokens, whose memory few machines have; `llm.context_length` sets another.
DEFAULT_CONTEXT = 8192

_KEEP_ALIVE = "30m"
_LOAD_SECONDS = 300.0
_WITH_LOGPROBS = (0, 12, 11)  # the first version that reports log-probabilities
_ABILITIES: Mapping[str, Ability] = {"tools": "tools", "vision": "images"}  # by Ollama's names
_OPTIONS = {  # sampling fields, by their names in the OpenAI protocol and its extensions
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repeat_penalty",
}


class OllamaProtocol(OpenAIProtocol):
    """An Ollama server. `context_length` is set by `ask`, and every request carries it."""

    engine = "Ollama"
    health_path = "/api/version"
    chat_path = "/api/chat"

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401  # those of the base class
        super().__init__(*arguments)
        self._context_length = DEFAULT_CONTEXT

    def ask(self, context_length: int | None) -> Capabilities:
        model = self.client.probe("/api/show", {"model": self.model})
        if model is None:
            self.require_model()
        version = str((self.client.probe("/api/version") or {}).get("version") or "")
        logprobs = _numbers(version) >= _WITH_LOGPROBS
        self._context_length = self._load_model(_chosen_context(model or {}, context_length))
        names = cast("list[str]", (model or {}).get("capabilities") or [])
        abilities = {ability for name, ability in _ABILITIES.items() if name in names}
        return Capabilities(
            engine=self.engine,
            model=self.model,
            version=version,
            context_length=self._context_length,
            logprobs=logprobs,
            prefix_cache="used",
            abilities=frozenset(abilities | ({"logprobs"} if logprobs else set())),
        )

    def models(self) -> dict[str, int]:
        listed = cast("list[dict[str, object]]", (self.client.probe("/api/tags") or {}).get("models") or [])
        names = [str(model.get("name")) for model in listed]
        return dict.fromkeys((*names, *(name.removesuffix(":latest") for name in names)), 0)

    def body(self, prompt: Prompt, messages: Sequence[Message], *, model: str, stream: bool) -> dict[str, object]:
        options: dict[str, object] = {"num_ctx": self._context_length, "temperature": prompt.temperature}
        options["num_predict"] = answer_limit(prompt)
        options |= {_OPTIONS[name]: value for name, value in prompt.extra.items() if name in _OPTIONS}
        if prompt.seed is not None:
            options["seed"] = prompt.seed
        if prompt.stop and not isinstance(prompt.format, Choice):
            options["stop"] = list(prompt.stop)
        body: dict[str, object] = {
            "model": model,
            "messages": [_message(message) for message in messages],
            "stream": stream,
            "options": options,
            "keep_alive": _KEEP_ALIVE,
        }
        if isinstance(prompt.format, JsonSchema):
            body["format"] = dict(prompt.format.schema)
        return body | _further_fields(prompt)

    def read(self, content: bytes) -> Response:
        answer = _read_object(content)
        choice = {"message": _read_message(answer), "finish_reason": _reason(answer), **_logprobs(answer)}
        return Response.model_validate({"choices": [choice], "usage": _usage(answer)})

    def read_events(self, lines: Iterable[str], what: str) -> Iterator[Event | Pause]:
        calls = 0
        for line in filter(str.strip, lines):
            answer = _read_object(line)
            if error := answer.get("error"):
                raise self.client.rejection(what, str(error))
            is_last = bool(answer.get("done"))
            reason = _reason(answer) if is_last else None
            delta = _read_message(answer, calls)
            calls += len(cast("list[object]", delta["tool_calls"] or []))
            choice = {"delta": delta, "finish_reason": reason, **_logprobs(answer)}
            yield Event.model_validate({"choices": [choice], "usage": _usage(answer) if is_last else None})
            if is_last:
                return
        raise Broken("the stream ended before the answer did")

    def _load_model(self, context: int) -> int:
        """Loads the model with this context, and returns what the server has given it."""
        body = {"model": self.model, "messages": [], "keep_alive": _KEEP_ALIVE, "options": {"num_ctx": context}}
        self.client.probe(self.chat_path, body, _LOAD_SECONDS)
        running = cast("list[dict[str, object]]", (self.client.probe("/api/ps") or {}).get("models") or [])
        sizes = {str(model.get("name")): first_number(model, "context_length") for model in running}
        allotted = sizes.get(self.model) or sizes.get(f"{self.model}:latest") or context
        if allotted < context:
            logger.warning(
                "Ollama gave %s a context of %d tokens instead of %d; prompts are trimmed to that; give it more "
                "memory, or lower llm.context_length",
                self.model,
                allotted,
                context,
            )
        return min(context, allotted)


def _chosen_context(model: Mapping[str, object], wish: int | None) -> int:
    """The user's choice, else the Modelfile's, else a usual size; never more than the model has."""
    info = model.get("model_info")
    facts = info if isinstance(info, Mapping) else {}
    most = first_number(facts, f"{facts.get('general.architecture')}.context_length")
    stated = re.search(r"^num_ctx\s+(\d+)", str(model.get("parameters") or ""), re.MULTILINE)
    context = wish or (int(stated[1]) if stated else DEFAULT_CONTEXT)
    return min(context, most) if most else context


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _further_fields(prompt: Prompt) -> dict[str, object]:
    fields: dict[str, object] = {}
    if tools := prompt.extra.get("tools"):
        fields["tools"] = tools
    if prompt.extra.get("logprobs"):
        fields |= {"logprobs": True, "top_logprobs": prompt.extra.get("top_logprobs", TOP_LOGPROBS)}
    thinking = template_fields(prompt.extra).get("enable_thinking")
    if isinstance(thinking, bool):
        fields["think"] = thinking
    return fields


def _message(message: Message) -> dict[str, object]:
    """A message in Ollama's form: images beside the text without their data: prefix, arguments as objects."""
    body = message_body(message)
    parts = message.fields.get("parts")
    if isinstance(parts, Sequence):
        images = [str(part["image_url"]["url"]) for part in parts if "image_url" in part]
        body |= {"content": message.content, "images": [image.rpartition("base64,")[2] for image in images]}
    calls = message.fields.get("tool_calls")
    if isinstance(calls, Sequence):
        body["tool_calls"] = [{"function": _function(call["function"])} for call in calls]
    return body


def _function(function: Mapping[str, object]) -> dict[str, object]:
    return {"name": function.get("name"), "arguments": json.loads(str(function.get("arguments") or "{}"))}


def _read_object(content: bytes | str) -> dict[str, Any]:
    text = mend_escapes(content)
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not ("message" in answer or "error" in answer):
        raise LLMError(f"the server's answer does not follow Ollama's protocol: {text[:400]!r}")
    return answer


def _read_message(answer: Mapping[str, Any], calls_before: int = 0) -> dict[str, object]:
    """A message in OpenAI's form; its calls are numbered after those of the messages before it."""
    message = answer.get("message") or {}
    calls = [
        {
            "index": index,
            "id": str(call.get("id") or f"call_{index}"),
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": json.dumps(call["function"].get("arguments") or {}, ensure_ascii=False),
            },
        }
        for index, call in enumerate(message.get("tool_calls") or (), start=calls_before)
    ]
    return {"content": message.get("content"), "tool_calls": calls or None}


def _reason(answer: Mapping[str, Any]) -> str:
    calls = (answer.get("message") or {}).get("tool_calls")
    return "tool_calls" if calls else str(answer.get("done_reason") or "stop")


def _logprobs(answer: Mapping[str, Any]) -> dict[str, object]:
    tokens = answer.get("logprobs")
    return {"logprobs": {"content": tokens}} if tokens else {}


def _usage(answer: Mapping[str, Any]) -> dict[str, object]:
    return {"prompt_tokens": answer.get("prompt_eval_count") or 0, "completion_tokens": answer.get("eval_count") or 0}
