"""Several servers of one model: the requests of one user go to one of them, and a lost one is left out for a time.

The order in which a user's requests try the servers depends on the user and the addresses alone (rendezvous hashing),
so it is the same in every process, and when a server goes, only its own users move.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import TypeVar

from localmem.errors import LLMUnavailable
from localmem.llm.remote.detection import detect
from localmem.llm.remote.openai_protocol import Capabilities, OpenAIProtocol
from localmem.llm.remote.server_client import ServerClient
from localmem.llm.remote.token_counts import TokenCounter, choose_counter
from localmem.llm.remote.vllm_protocol import VllmProtocol
from localmem.llm.tokenizer import ChatTokenizer

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
NewProtocol = Callable[[ServerClient], OpenAIProtocol]

_PAUSE = 30.0  # seconds for which a server that did not answer is left out
_UNKNOWN_CONTEXT = 4096
_CACHES = {"counted": "used, hits are counted", "used": "used", "unknown": "not known"}


class Endpoint:
    """One server; what it is and can do is asked when that is first needed.

    `tokenizer` is that of the model, where it is on this machine. `context_length` is the user's wish.
    """

    def __init__(
        self,
        client: ServerClient,
        new_protocol: NewProtocol,
        *,
        tokenizer: ChatTokenizer | None,
        context_length: int | None,
    ) -> None:
        self.client = client
        self._new_protocol = new_protocol
        self._tokenizer = tokenizer
        self._wish = context_length
        self._guard = threading.RLock()
        self._protocol: OpenAIProtocol | None = None
        self._capabilities: Capabilities | None = None
        self._counter: TokenCounter | None = None

    @property
    def protocol(self) -> OpenAIProtocol:
        """How to speak with the server. Raises LLMUnavailable."""
        with self._guard:
            if self._protocol is None:
                self._protocol = self._new_protocol(self.client)
            return self._protocol

    @property
    def capabilities(self) -> Capabilities:
        """What the server can do. Raises LLMError, LLMUnavailable."""
        with self._guard:
            if self._capabilities is None:
                self._capabilities = self.protocol.ask(self._wish)
            return self._capabilities

    @property
    def counter(self) -> TokenCounter:
        """How tokens are counted. Raises LLMError, LLMUnavailable."""
        with self._guard:
            if self._counter is None:
                has_tokenizer = self.capabilities.tokenizer
                self._counter = choose_counter(self.protocol, has_tokenizer=has_tokenizer, on_disk=self._tokenizer)
            return self._counter

    @property
    def context_length(self) -> int:
        """Tokens of prompt and answer together."""
        stated = self.capabilities.context_length or self._wish
        if stated is None:
            logger.warning(
                "the server at %s does not state its context length; %d tokens are assumed; set llm.context_length",
                self.client.url,
                _UNKNOWN_CONTEXT,
            )
            self._wish = stated = _UNKNOWN_CONTEXT
        return min(stated, self._wish or stated)

    def describe(self) -> list[tuple[str, str]]:
        """What the server can do, and what is done instead: subjects and details. Raises LLMError, LLMUnavailable."""
        able = self.capabilities
        choices = "asked for as JSON" if able.choices == "schema" else f"enforced by {able.choices}"
        weights = "with" if able.logprobs else "without"
        return [
            (self.client.url, f"{able.engine} {able.version}".strip() + f", serves {able.model}"),
            ("context", f"{self.context_length:,} tokens of prompt and answer together"),
            ("tokens", self.counter.description),
            (
                "JSON schemas",
                "enforced" if able.enforces_schema else "not enforced; answers are checked and repaired",
            ),
            ("choices", f"{choices}, {weights} log-probabilities"),
            ("adapters", "loaded at run time" if able.adapters else "not loaded; `distill merge --gguf` makes a model"),
            ("prefix cache", _CACHES[able.prefix_cache]),
            ("beyond text", ", ".join(sorted(able.abilities)) or "nothing"),
        ]


def new_detector(model: str, *, priorities: bool) -> NewProtocol:
    """Makes the protocol of whatever engine answers; vLLM alone has priorities."""

    def new_protocol(client: ServerClient) -> OpenAIProtocol:
        protocol = detect(client)
        if protocol is VllmProtocol:
            return VllmProtocol(client, model, priorities=priorities)
        return protocol(client, model)

    return new_protocol


class Endpoints:
    """The servers, at least one."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._clock = time.monotonic
        self._gone_until = dict.fromkeys((endpoint.client.url for endpoint in endpoints), -1.0)
        self._turn = itertools.count()

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    def ask(self, user: str, attempt: Callable[[Endpoint], Answer]) -> Answer:
        """The answer of the first server that is there. Raises what `attempt` does, of the last where all are gone."""
        *others, last = self.order(user)
        for endpoint in others:
            try:
                return attempt(endpoint)
            except LLMUnavailable as error:
                self.leave_out(endpoint, error)
        return attempt(last)

    def order(self, user: str) -> list[Endpoint]:
        """The servers in the order to try; without a user, each is the first in its turn."""
        if user:
            ranked = sorted(self._endpoints, key=lambda endpoint: _weight(user, endpoint.client.url))
        else:
            start = next(self._turn) % len(self._endpoints)
            ranked = [*self._endpoints[start:], *self._endpoints[:start]]
        now = self._clock()
        return sorted(ranked, key=lambda endpoint: self._gone_until[endpoint.client.url] > now)

    def leave_out(self, endpoint: Endpoint, error: LLMUnavailable) -> None:
        """The server did not answer, so others come first for a while."""
        self._gone_until[endpoint.client.url] = self._clock() + _PAUSE
        logger.warning("%s; another server takes its requests for %.0f s", error, _PAUSE)


def session_headers(user: str) -> dict[str, str]:
    """The header that keeps a user's requests on one server behind a router, without the user's name."""
    return {"x-session-id": sha256(user.encode()).hexdigest()[:32]} if user else {}


def _weight(user: str, url: str) -> bytes:
    return sha256(f"{user}\n{url}".encode()).digest()
