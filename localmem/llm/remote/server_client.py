"""One client of one server over HTTP: requests, streams, what is tried again, and errors in one line.

Knows no engine and no protocol; those are in the modules beside it.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import httpx

from localmem.errors import LLMError, LLMUnavailable, without_passwords
from localmem.llm.base import Pause
from localmem.llm.remote.line_feed import current_reader, split_lines

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Json = Mapping[str, object]

_MESSAGE_WIDTH = 400
_PROBE_SECONDS = 10.0
_AWAY = (502, 503, 504)  # a gateway without its server, or a server that is still loading its model


class Broken(Exception):
    """The server did not answer, or reported a failure of its own; another attempt may succeed."""


class OwnServer(Protocol):
    """A server that this program started, and can start again."""

    @property
    def starts(self) -> int:
        """How often it was started."""

    @property
    def adapter_slots(self) -> int:
        """How many adapter folders it holds at a time."""

    def ensure_ready(self) -> None:
        """Returns when it answers, after a restart if need be. Raises LLMUnavailable."""


class ServerClient:
    """A client of the server at `url`; `timeout` is in seconds, for one answer or the pause between two pieces of it.

    A request that reaches no server is repeated once: with a `server` of ours after its restart, otherwise if its
    health address answers. A request that the server rejects is never repeated. `prepare` is called before each
    request, and `health_path` is the address that answers when the server is well.
    """

    def __init__(self, url: str, *, api_key: str | None, server: OwnServer | None, timeout: float) -> None:
        url = url.rstrip("/").removesuffix("/v1")
        self.url = without_passwords(url)
        self.server = server
        self.health_path = "/health"
        self.prepare: Callable[[], None] = lambda: None
        self._timeout = timeout
        options: dict[str, Any] = {
            "base_url": url,
            "headers": {"Authorization": f"Bearer {api_key}"} if api_key else {},
            "timeout": httpx.Timeout(timeout, connect=10.0),
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=64),
            "trust_env": False,  # a proxy for the web must not see requests within this network
            # Made once, as reading the machine's certificates takes long; without https nothing is verified.
            "verify": httpx.create_ssl_context(trust_env=False) if url.startswith("https") else False,
        }
        self._client = httpx.Client(**options)
        self._new_async_client = partial(httpx.AsyncClient, **options)

    def get(self, path: str, what: str) -> httpx.Response:
        """The response to a GET request. Raises LLMError, LLMUnavailable."""
        return self._send(lambda: self._client.get(path), what)

    def post(self, path: str, body: Json, what: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """The response to a POST request. Raises LLMError, LLMUnavailable."""
        return self._send(lambda: self._client.post(path, json=body, headers=headers), what)

    def post_once(self, path: str, body: Json, what: str) -> None:
        """As `post`, but without `prepare` and never repeated."""
        self._check(self._client.post(path, json=body), what)

    def probe(self, path: str, body: Json | None = None, seconds: float = _PROBE_SECONDS) -> dict[str, object] | None:
        """The JSON object at an address that the server may lack; None without one. Raises LLMUnavailable."""
        try:
            method = "GET" if body is None else "POST"
            response = self._client.request(method, path, json=body, timeout=httpx.Timeout(seconds, connect=10.0))
            content = response.json() if response.is_success else None
        except httpx.TransportError as error:
            raise self._lost(error, f"a request for {path}") from error
        except ValueError:
            return None
        return content if isinstance(content, dict) else None

    def stream(
        self,
        path: str,
        body: Json,
        what: str,
        *,
        read: Callable[[Iterable[str]], Iterable[Item]],
        headers: Mapping[str, str] | None = None,
    ) -> Generator[Item, None, None]:
        """What `read` makes of the lines of the answer, as they come; it raises Broken when they end too early.

        Where an event loop reads for this thread, there are Pauses among the lines. Closing the generator closes the
        connection, and the server stops decoding.
        """
        started = False
        for last in (False, True):
            try:
                self.prepare()
                with self._send_stream(path, body, headers) as (response, lines):
                    self._check(response, what)
                    for item in read(lines):
                        started = started or not isinstance(item, Pause)
                        yield item
                return
            except (httpx.TransportError, Broken) as error:
                if started or last:
                    raise self._lost(error, what) from error
                self._revive(error, what)

    @contextmanager
    def _send_stream(
        self, path: str, body: Json, headers: Mapping[str, str] | None
    ) -> Iterator[tuple[httpx.Response, Iterable[str]]]:
        """A response, with its body where it is an error, and its lines as they come."""
        if reader := current_reader():
            feed = reader.read_lines(
                self, self._new_async_client, lambda client: client.stream("POST", path, json=body, headers=headers)
            )
            try:
                yield feed.response(), feed
            finally:
                feed.close()
            return
        with self._client.stream("POST", path, json=body, headers=headers) as response:
            if response.is_error:
                response.read()
            yield response, split_lines(response.iter_bytes())

    def rejection(self, what: str, reason: str) -> LLMError:
        """The error for a request that the server rejects."""
        return LLMError(f"the server at {self.url} rejected {what} ({reason})")

    def is_healthy(self, seconds: float) -> bool:
        """Whether the server's health address answers within this time, even that there is none; starts nothing."""
        try:
            return self._client.get(self.health_path, timeout=seconds).status_code < httpx.codes.INTERNAL_SERVER_ERROR
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._client.close()

    def _send(self, send: Callable[[], httpx.Response], what: str) -> httpx.Response:
        for last in (False, True):
            try:
                self.prepare()
                response = send()
                self._check(response, what)
                return response
            except (httpx.TransportError, Broken) as error:
                if last:
                    raise self._lost(error, what) from error
                self._revive(error, what)
        raise AssertionError("unreachable")

    def _check(self, response: httpx.Response, what: str) -> None:
        if response.is_success:
            return
        status = response.status_code
        reply = f"{status}: {_message(response)}"
        if status in _AWAY:
            raise Broken(reply, "away")
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise Broken(reply)
        raise self.rejection(what, reply)

    def _revive(self, error: Exception, what: str) -> None:
        """Returns when another attempt may succeed, or raises LLMUnavailable."""
        if isinstance(error, httpx.ReadTimeout):  # the server is busy; a second request would only add work
            raise self._lost(error, what) from error
        logger.warning("the server at %s did not answer %s (%s); trying again", self.url, what, _reason(error))
        if self.server:
            self.server.ensure_ready()
            return
        if not self.is_healthy(10.0):
            raise self._lost(error, what) from error

    def _lost(self, error: Exception, what: str) -> LLMError:
        if isinstance(error, httpx.ReadTimeout):
            return LLMUnavailable(
                f"the server at {self.url} did not answer {what} within {self._timeout:.0f} s; see its log"
            )
        if isinstance(error, Broken):
            kind = LLMUnavailable if "away" in error.args[1:] else LLMError
            return kind(f"the server at {self.url} failed at {what} ({error.args[0]}); see its log")
        return LLMUnavailable(
            f"no server answers at {self.url} ({_reason(error)}); start the server or check `llm.url`"
        )


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
    return str(error.args[0] if isinstance(error, Broken) else error) or type(error).__name__
