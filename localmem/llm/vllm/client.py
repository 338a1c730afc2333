"""VllmClient: requests to a vLLM server, checked, and repeated once when the server had gone and is back.

Covers HTTP and the server's addresses; of prompts it only uses the name, for errors.
"""

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from localmem.errors import BadSettings, LLMError, LLMUnavailable
from localmem.llm.vllm.vllm_server import VllmServer
from localmem.llm.vllm.wire import Event, Models, Response, TokenCount, counter

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

    def load_adapter(self, name: str, path: Path) -> None:
        """Loads the adapter in `path` as `name`, replacing one of that name; repeated after a restart of the server."""
        self._check_limit(name)
        if name in self.models():
            self._unload(name)
        self._post(_LOAD, _adapter(name, path), f"adapter {name!r} in {path}")
        with self._guard:
            self._adapters[name] = path

    def unload_adapter(self, name: str) -> None:
        with self._guard:
            self._adapters.pop(name, None)
        self._unload(name)

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

    def _check_limit(self, name: str) -> None:
        """Only the limit of a server of ours is known; above it, vLLM would drop adapters without an error."""
        if self._server is None:
            return
        served = {*self._server.adapters, *self._adapters, name}
        if len(served) > self._server.adapter_limit:
            raise BadSettings(
                f"adapter {name!r} exceeds the server's limit of {self._server.adapter_limit}; "
                "unload one or raise the limit"
            )

    def _unload(self, name: str) -> None:
        self._post("/v1/unload_lora_adapter", {"lora_name": name}, f"adapter {name!r}")

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
