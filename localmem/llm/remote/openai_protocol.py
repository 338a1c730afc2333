"""The OpenAI protocol as any server speaks it, and what a server can do: the base of the engines' own protocols.

What a server does not tell is tried once, with a request of a few tokens. Nothing here knows how prompts are trimmed or
what is done instead of what is missing; that is in `remote_llm`.
"""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from localmem.errors import BadSettings, LLMError
from localmem.llm.base import Ability, Pause
from localmem.llm.remote.openai_wire import (
    CHOICE_FIELD,
    Event,
    Models,
    Response,
    choice_schema,
    logprob_fields,
    parse,
    request_body,
    schema_fields,
)
from localmem.llm.remote.server_client import Broken, ServerClient
from localmem.types import JsonSchema, Message, Prompt

Headers = Mapping[str, str] | None

_CHAT = "/v1/chat/completions"
_ABILITIES: frozenset[Ability] = frozenset({"tools", "images"})
_TRIAL = "localmem-ready"  # no model writes this by itself
_TRIAL_SECONDS = 120.0  # a server may load its model first


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a server can do for a model.

    `context_length` is None where the server does not say. `choices` says how one of several options is enforced:
    by the engine itself, by a grammar, or as JSON. An answer whose schema is not `enforced` is checked, and asked for
    once more. `tokenizer` says whether the server counts tokens for others.
    """

    engine: str
    model: str
    version: str = ""
    context_length: int | None = None
    tokenizer: bool = False
    enforces_schema: bool = True
    choices: Literal["options", "grammar", "schema"] = "schema"
    logprobs: bool = False
    adapters: bool = False
    prefix_cache: Literal["counted", "used", "unknown"] = "unknown"
    abilities: frozenset[Ability] = _ABILITIES


class OpenAIProtocol:
    """Requests to one server for the model it serves as `model`; `end` is as `read_choice` has it."""

    engine: ClassVar[str] = "OpenAI-compatible server"
    health_path: ClassVar[str] = "/v1/models"
    chat_path: ClassVar[str] = _CHAT
    end: ClassVar[bytes | None] = None

    def __init__(self, client: ServerClient, model: str) -> None:
        self.client = client
        self.model = model
        client.health_path = self.health_path

    def ask(self, context_length: int | None) -> Capabilities:
        """What the server can do; `context_length` is what the user wishes, where the server leaves that to clients.

        Raises LLMError for a model that it does not serve, LLMUnavailable.
        """
        served = self.require_model()
        enforces_schema, logprobs = self._try_schema()
        abilities: set[Ability] = {*_ABILITIES, "logprobs"} if logprobs else {*_ABILITIES}
        return Capabilities(
            engine=self.engine,
            model=self.model,
            context_length=self.stated_context(served),
            enforces_schema=enforces_schema,
            logprobs=logprobs,
            abilities=frozenset(abilities),
        )

    def require_model(self) -> dict[str, int]:
        """What `models` returns. Raises LLMError for a model that the server does not serve."""
        served = self.models()
        if self.model not in served:
            raise LLMError(
                f"the server at {self.client.url} does not serve {self.model!r}; it serves {', '.join(served)}; "
                "set `model`, or `llm.served_as` where the server has another name for it"
            )
        return served

    def models(self) -> dict[str, int]:
        """The names of the server's models and adapters, with the context length, 0 where it is not stated."""
        served = parse(Models, self.client.get("/v1/models", "a request for its models").content).data
        longest = max((model.max_model_len or 0 for model in served), default=0)
        return {model.id: model.max_model_len or longest for model in served}

    def chat(self, name: str, body: Mapping[str, object], headers: Headers = None) -> Response:
        """The complete answer to the prompt called `name`."""
        response = self.read(self.client.post(self.chat_path, body, f"prompt {name!r}", headers).content)
        if not response.choices:
            raise LLMError(
                f"the server at {self.client.url} answered prompt {name!r} without choices; use an OpenAI-compatible "
                "server"
            )
        return response

    def events(
        self, name: str, body: Mapping[str, object], headers: Headers = None
    ) -> Generator[Event | Pause, None, None]:
        """The answer's events as they come, and a Pause where none has come yet. Closing it stops the decoding."""
        what = f"prompt {name!r}"
        return self.client.stream(
            self.chat_path, body, what, read=lambda lines: self.read_events(lines, what), headers=headers
        )

    def body(self, prompt: Prompt, messages: Sequence[Message], *, model: str, stream: bool) -> dict[str, object]:
        """The request for an answer to the prompt, in this protocol."""
        body = request_body(prompt, messages, model=model, stream=stream)
        if isinstance(prompt.format, JsonSchema):
            body |= schema_fields(prompt.format.schema)
        return body

    def read(self, content: bytes) -> Response:
        """A complete answer. Raises LLMError."""
        return parse(Response, content)

    def read_events(self, lines: Iterable[str], what: str) -> Iterator[Event | Pause]:
        """The events of a stream. Raises LLMError, and Broken for one that ends too early."""
        for line in lines:
            if isinstance(line, Pause):
                yield line
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:"):
                continue
            if data == "[DONE]":
                return
            event = parse(Event, data)
            if event.error:
                raise self.client.rejection(what, f"{event.error.code}: {event.error.message}")
            yield event
        raise Broken("the stream ended before the answer did")

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, where the server has a tokenizer for others."""
        raise NotImplementedError(self.engine)

    def count_messages(
        self, messages: Sequence[Mapping[str, object]], template: Mapping[str, object], tools: Sequence[object]
    ) -> int:
        """Tokens of the messages under the chat template, where the server has a tokenizer for others."""
        raise NotImplementedError(self.engine)

    def load_adapter(self, name: str, path: Path) -> str:
        """Loads the adapter in `path`; returns the name it is served under. Raises BadSettings where it cannot."""
        raise BadSettings(
            f"{self.engine} at {self.client.url} loads no adapters, {name!r} in {path} among them; merge it with "
            "`localmem distill merge --gguf`, or serve the model with vLLM"
        )

    def prefix_cache(self) -> tuple[int, int] | None:
        """Tokens that were looked up in the prefix cache so far, and hits; None if the server does not count them."""
        return None

    def stated_context(self, served: Mapping[str, int]) -> int | None:
        """The context length that the server states, in its models or elsewhere."""
        return served.get(self.model) or None

    def _try_schema(self) -> tuple[bool, bool]:
        """Whether an answer follows a schema that no model would follow by chance, and has log-probabilities."""
        prompt = Prompt("trial", (Message("user", "Say hello."),), max_tokens=32, seed=None)
        body = request_body(prompt, prompt.messages, model=self.model, stream=False)
        body |= schema_fields(choice_schema([_TRIAL, f"{_TRIAL}-too"]))
        for fields in (logprob_fields(2), {}):
            if content := self.client.probe(self.chat_path, body | fields, _TRIAL_SECONDS):
                answers = Response.model_validate(content).choices
                return any(_follows_trial(answer.content) for answer in answers), any(each.tokens for each in answers)
        return False, False


def _follows_trial(text: str | None) -> bool:
    try:
        answer = json.loads(text or "")
    except ValueError:
        return False
    return isinstance(answer, dict) and str(answer.get(CHOICE_FIELD)).startswith(_TRIAL)


def first_number(content: Mapping[str, object] | None, *keys: str) -> int | None:
    """The first of these fields that is a positive number."""
    values = (content.get(key) for key in keys) if content else ()
    return next((int(value) for value in values if isinstance(value, int | float) and value > 0), None)


class LMStudioProtocol(OpenAIProtocol):
    """LM Studio, which states the context of a loaded model at an address of its own."""

    engine = "LM Studio"

    def stated_context(self, served: Mapping[str, int]) -> int | None:
        model = self.client.probe(f"/api/v0/models/{self.model}")
        return first_number(model, "loaded_context_length", "max_context_length")


class TGIProtocol(OpenAIProtocol):
    """Hugging Face's text-generation-inference, which serves one model under any name."""

    engine = "text-generation-inference"
    health_path = "/health"

    def require_model(self) -> dict[str, int]:
        return {}

    def stated_context(self, served: Mapping[str, int]) -> int | None:
        return first_number(self.client.probe("/info"), "max_total_tokens")


class SGLangProtocol(OpenAIProtocol):
    """SGLang, whose list of models has the context length."""

    engine = "SGLang"
    health_path = "/health"
