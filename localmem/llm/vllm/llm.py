"""An LLM behind a vLLM server, over the OpenAI protocol.

Prompts are trimmed, routed to adapters and sent in parallel here. Requests are checked, and repeated once when the
server had gone and is back. The other modules of this package hold the format of requests, and the process of a server
of our own.
"""

import logging
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from localmem.batching import result_or_error, results_or_raise
from localmem.errors import BadSettings, LLMError, LLMUnavailable
from localmem.llm.adapters import warn_of_changes
from localmem.llm.base import ABILITIES, Ability, alternate, check, check_json, fit, route
from localmem.llm.tokenizer import ChatTokenizer, template_fields
from localmem.llm.vllm.vllm_server import VllmServer
from localmem.llm.vllm.wire import (
    Event,
    Models,
    Response,
    TokenCount,
    WireUsage,
    answer_limit,
    counter,
    finish,
    join_tool_calls,
    read_choice,
    request_body,
)
from localmem.types import Choice, Completion, Message, Prompt

logger = logging.getLogger(__name__)

Parsed = TypeVar("Parsed", bound=BaseModel)

_CHAT = "/v1/chat/completions"
_LOAD = "/v1/load_lora_adapter"
_MESSAGE_WIDTH = 400


class _Broken(Exception):
    """The server did not answer, or reported a failure of its own; another attempt may succeed."""


class VllmClient:
    """A client of the server at `url`; `timeout` is in seconds, for one answer or the pause between two pieces of it.

    A request that reaches no server is repeated once: with a `server` of ours after its restart, otherwise if its
    health address answers. A request that the server rejects is never repeated.
    """

    def __init__(self, url: str, *, api_key: str | None, server: VllmServer | None, timeout: float) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._server = server
        self._adapters: dict[str, Path] = {}
        self._adapters_at = server.starts if server else 0
        self._guard = threading.RLock()
        self._timeout = timeout
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout, connect=10.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,  # a proxy for the web must not see requests within this network
        )

    def chat(self, name: str, body: Mapping[str, object]) -> Response:
        """The complete answer to the prompt called `name`."""
        response = self._post(_CHAT, body, f"prompt {name!r}")
        parsed = _parse(Response, response.content)
        if not parsed.choices:
            raise LLMError(
                f"the server at {self.url} answered prompt {name!r} without choices; use an OpenAI-compatible server"
            )
        return parsed

    def events(self, name: str, body: Mapping[str, object]) -> Generator[Event, None, None]:
        """The answer's events as they come. Closing the generator closes the connection, and vLLM stops decoding."""
        what = f"prompt {name!r}"
        started = False
        for last in (False, True):
            try:
                self._keep_adapters()
                with self._client.stream("POST", _CHAT, json=body) as response:
                    if response.is_error:
                        response.read()
                    self._check(response, what)
                    for event in self._events_of(response, what):
                        started = True
                        yield event
                return
            except (httpx.TransportError, _Broken) as error:
                if started or last:
                    raise self._lost(error, what) from error
                self._revive(error, what)

    def tokens(self, body: Mapping[str, object]) -> int:
        return _parse(TokenCount, self._post("/tokenize", body, "a request to count tokens").content).count

    def models(self) -> dict[str, int]:
        """The names of the server's models and adapters, with the context length."""
        response = self._send(lambda: self._client.get("/v1/models"), "a request for its models")
        served = _parse(Models, response.content).data
        longest = max((model.max_model_len or 0 for model in served), default=0)
        return {model.id: model.max_model_len or longest for model in served}

    def load_adapter(self, name: str, path: Path) -> str:
        """Loads the adapter in `path` as `name`, replacing one of that name; repeated after a restart of the server.

        Returns the name that it is served under: a folder takes one slot, however many prompts it answers.
        """
        if serving := next((other for other, folder in self._adapters.items() if folder == path and other != name), ""):
            return serving
        slots = self._server.adapter_slots if self._server else None
        # Only the limit of a server of ours is known; above it, vLLM would drop adapters without an error
        if slots is not None and len({*self._adapters, name}) > slots:
            raise BadSettings(f"adapter {name!r} exceeds the server's {slots} slots; raise llm.adapter_slots")
        if name in self.models():
            self._post("/v1/unload_lora_adapter", {"lora_name": name}, f"adapter {name!r}")
        self._post(_LOAD, _adapter(name, path), f"adapter {name!r} in {path}")
        with self._guard:
            self._adapters[name] = path
        return name

    def healthy(self, seconds: float) -> bool:
        """Whether the server's health address answers within this time; never repeats a request or starts a server."""
        try:
            return self._client.get("/health", timeout=seconds).is_success
        except httpx.TransportError:
            return False

    def prefix_cache(self) -> tuple[int, int] | None:
        text = self._send(lambda: self._client.get("/metrics"), "a request for its metrics").text
        queries, hits = (counter(text, f"vllm:prefix_cache_{name}_total") for name in ("queries", "hits"))
        return None if queries is None or hits is None else (queries, hits)

    def close(self) -> None:
        self._client.close()

    def _post(self, path: str, body: Mapping[str, object], what: str) -> httpx.Response:
        return self._send(lambda: self._client.post(path, json=body), what)

    def _send(self, send: Callable[[], httpx.Response], what: str) -> httpx.Response:
        for last in (False, True):
            try:
                self._keep_adapters()
                response = send()
                self._check(response, what)
                return response
            except (httpx.TransportError, _Broken) as error:
                if last:
                    raise self._lost(error, what) from error
                self._revive(error, what)
        raise AssertionError("unreachable")

    def _check(self, response: httpx.Response, what: str) -> None:
        if response.is_success:
            return
        status = response.status_code
        reply = f"{status}: {_message(response)}"
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise _Broken(reply)
        raise LLMError(f"the server at {self.url} rejected {what} ({reply})")

    def _events_of(self, response: httpx.Response, what: str) -> Iterator[Event]:
        for line in response.iter_lines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:"):
                continue
            if data == "[DONE]":
                return
            event = _parse(Event, data.encode())
            if event.error:
                raise LLMError(f"the server at {self.url} rejected {what} ({event.error.code}: {event.error.message})")
            yield event
        raise _Broken("the stream ended before the answer did")

    def _revive(self, error: Exception, what: str) -> None:
        """Returns when another attempt may succeed, or raises LLMUnavailable."""
        if isinstance(error, httpx.ReadTimeout):  # the server is busy; a second request would only add work
            raise self._lost(error, what) from error
        logger.warning("the server at %s did not answer %s (%s); trying again", self.url, what, _reason(error))
        if self._server:
            self._server.ensure_ready()
            return
        if not self.healthy(10.0):
            raise self._lost(error, what) from error

    def _lost(self, error: Exception, what: str) -> LLMError:
        if isinstance(error, httpx.ReadTimeout):
            return LLMUnavailable(
                f"the server at {self.url} did not answer {what} within {self._timeout:.0f} s; see its log"
            )
        if isinstance(error, _Broken):
            return LLMError(f"the server at {self.url} failed at {what} ({error}); see its log")
        return LLMUnavailable(
            f"no server answers at {self.url} ({_reason(error)}); start the server or check `llm.url`"
        )

    def _keep_adapters(self) -> None:
        """Loads the adapters again after a restart, which lost them."""
        if self._server is None or self._server.starts == self._adapters_at:
            return
        with self._guard:
            starts = self._server.starts
            if starts == self._adapters_at:
                return
            self._server.ensure_ready()
            for name, path in self._adapters.items():
                self._check(self._client.post(_LOAD, json=_adapter(name, path)), f"adapter {name!r} in {path}")
            self._adapters_at = starts


def _parse(kind: type[Parsed], content: bytes) -> Parsed:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        start = content[:_MESSAGE_WIDTH].decode(errors="replace")
        raise LLMError(f"the server's answer does not follow the OpenAI protocol: {start!r}") from error


def _adapter(name: str, path: Path) -> dict[str, str]:
    return {"lora_name": name, "lora_path": str(path)}


def _message(response: httpx.Response) -> str:
    try:
        message = response.json()
    except ValueError:
        message = response.text
    for key in ("error", "message"):
        if isinstance(message, dict):
            message = message.get(key, message)
    return " ".join(str(message).split())[:_MESSAGE_WIDTH]


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


# A prompt of n bytes has at most n tokens, plus a few of the template; a prompt below that need not be counted.
_TEMPLATE_TOKENS = 512
_MESSAGE_TOKENS = 32
_BACKGROUND = 1  # the priority of background prompts; vLLM serves lower numbers first, and has 0 as its default


class VllmLLM:
    """The model that the server at `url` serves under `name`.

    `tokenizer` is a folder with the model's tokenizer; without it the server counts tokens. `context_length` None asks
    the server. With `server`, a server of ours, a request that does not reach it waits for its restart. At most
    `concurrency` prompts of one `generate` run at a time; `timeout` is in seconds, for one answer. A server of ours
    supports priorities, another one if `priorities` is set: without support it may reject a prompt that has one.
    """

    abilities: Collection[Ability] = ABILITIES

    def __init__(
        self,
        url: str,
        *,
        name: str,
        tokenizer: Path | None = None,
        context_length: int | None = None,
        api_key: str | None = None,
        server: VllmServer | None = None,
        concurrency: int = 64,
        timeout: float = 600.0,
        priorities: bool = False,
    ) -> None:
        self.name = name
        self._tokenizer = ChatTokenizer(tokenizer) if tokenizer else None
        self._context_length = context_length
        self._concurrency = concurrency
        self._has_priorities = priorities or server is not None
        self._client = VllmClient(url, api_key=api_key, server=server, timeout=timeout)
        self._adapters: Mapping[str, str] = {}
        self._guard = threading.Lock()

    @property
    def context_length(self) -> int:
        if self._context_length is None:
            served = self._client.models()
            if self.name not in served:
                raise LLMError(
                    f"the server at {self._client.url} does not serve {self.name!r}; it serves {', '.join(served)}"
                )
            self._context_length = served[self.name]
        return self._context_length

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        attempt = partial(result_or_error, self._complete)
        if len(prompts) < 2:
            return results_or_raise(list(map(attempt, prompts)))
        workers = min(self._concurrency, len(prompts))
        pool = ThreadPoolExecutor(workers, thread_name_prefix="vllm")
        try:
            return results_or_raise(list(pool.map(attempt, prompts)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        if isinstance(prompt.format, Choice):  # decided by its first tokens, so there is nothing to stream
            completion = self._complete(prompt)
            yield completion.text
            return completion
        fitted, trimmed = self._fit(prompt)
        pieces: list[str] = []
        call_pieces: list[dict[str, object]] = []
        logprobs: list[dict[str, object]] = []
        reason: str | None = None
        usage = WireUsage()
        with closing(self._client.events(prompt.name, self._body(fitted, stream=True))) as events:
            for event in events:
                usage = event.usage or usage
                for choice in event.choices[:1]:
                    reason = choice.finish_reason or reason
                    call_pieces += choice.tool_calls or ()
                    logprobs += choice.logprobs or ()
                    if choice.content:
                        pieces.append(choice.content)
                        yield choice.content
        text, calls = "".join(pieces), join_tool_calls(call_pieces)
        if not calls:
            check_json(prompt, text)
        return Completion(text, finish(reason), usage.usage(), None, trimmed, calls, tuple(logprobs))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        if self._tokenizer:
            return self._tokenizer.count_tokens(texts)
        return [
            self._client.tokens({"model": self.name, "prompt": text, "add_special_tokens": False}) for text in texts
        ]

    def load_adapter(self, name: str, path: Path) -> None:
        """Loads a LoRA adapter, in a folder that the server can read, for prompts called `name` or `name/...`."""
        warn_of_changes(path, self._tokenizer.template_sha256 if self._tokenizer else None)
        served = self._client.load_adapter(name, path)
        with self._guard:
            self._adapters = {**self._adapters, name: served}

    def is_healthy(self) -> bool:
        """Whether the server answers now; takes at most two seconds and starts nothing."""
        return self._client.healthy(2.0)

    def prefix_cache(self) -> tuple[int, int] | None:
        """Tokens that the server looked up in its prefix cache so far, and hits; None if it has no such counters."""
        return self._client.prefix_cache()

    def close(self) -> None:
        self._client.close()

    def _complete(self, prompt: Prompt) -> Completion:
        fitted, trimmed = self._fit(prompt)
        response = self._client.chat(prompt.name, self._body(fitted, stream=False))
        answer = response.choices[0]
        usage = response.usage.usage()
        if isinstance(prompt.format, Choice):
            option, choices = read_choice(prompt, prompt.format.options, answer)
            return Completion(option, "stop", usage, choices, trimmed)
        text, calls = answer.content or "", tuple(answer.tool_calls or ())
        if not calls:
            check_json(prompt, text)
        reason = finish(answer.finish_reason)
        return Completion(text, reason, usage, None, trimmed, calls, tuple(answer.logprobs or ()))

    def _body(self, prompt: Prompt, *, stream: bool) -> dict[str, object]:
        model = route(self._adapters, prompt.name) or self.name
        body = request_body(prompt, alternate(prompt.messages), model=model, stream=stream)
        return body | {"priority": _BACKGROUND} if self._has_priorities and prompt.background else body

    def _fit(self, prompt: Prompt) -> tuple[Prompt, int]:
        check(prompt, self.abilities)
        limited = replace(prompt, max_tokens=answer_limit(prompt))
        if self._tokenizer is None and self._surely_fits(limited):
            return limited, 0
        fields = template_fields(prompt.extra)
        return fit(limited, self.context_length, lambda messages: self._count(messages, fields))

    def _surely_fits(self, prompt: Prompt) -> bool:
        most = sum(len(message.content.encode()) + _MESSAGE_TOKENS for message in prompt.messages)
        return _TEMPLATE_TOKENS + most + prompt.max_tokens <= self.context_length

    def _count(self, messages: Sequence[Message], fields: Mapping[str, object]) -> int:
        if self._tokenizer:
            return len(self._tokenizer.encode(messages, fields))
        merged = [{"role": message.role, "content": message.content} for message in alternate(messages)]
        body = {"model": self.name, "messages": merged, "chat_template_kwargs": dict(fields)}
        return self._client.tokens(body)
