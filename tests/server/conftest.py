"""A real server on a loopback port, with a scripted backbone, an encoder without weights and a settable clock."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from openai import OpenAI

from localmem.config import load_settings
from localmem.llm.base import ABILITIES, CallPiece
from localmem.llm.scripted import ScriptedLLM
from localmem.runtime import Runtime
from localmem.server.dependencies import Services
from localmem.server.listen import Server
from localmem.server.local_access import open_listener
from localmem.systems import no_wrap
from localmem.types import Completion, Prompt, Turn, Usage
from tests.fakes import START, WordEncoder
from tests.waiting import wait_until

if TYPE_CHECKING:
    from localmem.runtime.tracing import Tracing

KEYS = {"key-of-ann-1": "ann", "key-of-ann-2": "ann", "key-of-ben-1": "ben"}
STARTER_PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.3}  # of its replies, by the manifest


class CountingEncoder(WordEncoder):
    """An encoder whose tokens are words."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


class Backbone(ScriptedLLM):
    """Records its prompts and progress; answers with `answer`, which a test may change.

    After a question it calls the tools in `calls`, if there are any; a stream has them in `call_pieces`.
    """

    def __init__(self) -> None:
        super().__init__(self._say)
        self.answer: Callable[[Prompt], str] = lambda prompt: f"You said: {prompt.messages[-1].content}"
        self.calls: tuple[Mapping[str, object], ...] = ()
        self.call_pieces: tuple[Mapping[str, object], ...] = ()
        self.prompts: list[Prompt] = []
        self.pieces_sent = 0
        self.finished = threading.Event()

    def slow(self, per_token: float = 0.02) -> None:
        self._per_token = per_token

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        self.prompts.append(prompt)
        self.pieces_sent = 0
        self.finished.clear()
        if self.calls and prompt.messages[-1].role == "user":
            yield from map(CallPiece, self.call_pieces)
            return Completion("", "tool_calls", Usage(9, 5), tool_calls=self.calls)
        pieces = super().stream(prompt)
        try:
            while True:
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    completion: Completion = end.value
                    return completion
                self.pieces_sent += 1
                yield piece
        finally:
            pieces.close()
            self.finished.set()

    def _say(self, prompt: Prompt) -> str:
        return self.answer(prompt)


@dataclass
class LiveServer:
    """A running server and its parts."""

    url: str
    runtime: Runtime
    services: Services
    llm: Backbone
    encoder: CountingEncoder
    clock: "Clock"
    clients: ExitStack = field(default_factory=ExitStack)
    pause: threading.Event = field(default_factory=threading.Event)

    def openai(self, key: str = "any", **more: object) -> OpenAI:
        """The official client."""
        return self.clients.enter_context(OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, **more))  # type: ignore[arg-type]

    def http(self, key: str | None = None) -> httpx.Client:
        """Plain HTTP."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return self.clients.enter_context(httpx.Client(base_url=self.url, headers=headers, timeout=30))

    def log(self, user: str = "me") -> list[list[str]]:
        """The texts of each stored session; the assistant's start with >."""
        store = self.runtime.store
        sessions = [store.session(user, info.id) for info in store.sessions(user)]
        return [[_format_turn(turn) for turn in session.turns] for session in sessions]

    def wait_until_remembered(self, user: str = "me") -> None:
        """Wait until every closed session of the user is remembered."""
        system = self.runtime.settings.system
        wait_until(lambda: not (self.runtime.waiting_jobs(user) or self.runtime.store.pending_sessions(user, system)))


class Clock:
    """A time of day that a test moves."""

    def __init__(self, now: datetime = START) -> None:
        self.time = now

    def __call__(self) -> datetime:
        return self.time

    def advance(self, **time: float) -> None:
        self.time += timedelta(**time)


def _format_turn(turn: Turn) -> str:
    return f"{'>' if turn.role == 'assistant' else ''}{turn.text}"


@contextmanager
def serving(
    data: Path, *, clock: Clock | None = None, tracing: "Tracing | None" = None, **flags: object
) -> Iterator[LiveServer]:
    """A server over this data directory until the block is left."""
    server_flags = {"port": 0, "grace_seconds": 0.2, **flags.pop("server", {})}  # type: ignore[dict-item]
    settings = load_settings(None, {"data": data, "server": server_flags, "llm": {"backend": "transformers"}, **flags})
    llm, encoder, clock = Backbone(), CountingEncoder(), clock or Clock()
    wrap = tracing.wrap if tracing else no_wrap
    with (
        Runtime(settings, llm=llm, encoder=wrap(encoder), wrap=wrap) as runtime,
        running(runtime, clock, tracing) as (server, url),
    ):
        assert server.services.warm.wait(240)
        live = LiveServer(url, runtime, server.services, llm, encoder, clock)
        with live.clients:
            yield live


@contextmanager
def running(runtime: Runtime, clock: Clock, tracing: "Tracing | None" = None) -> Iterator[tuple[Server, str]]:
    """The server of this runtime on a thread, and its address."""
    up = threading.Event()
    with open_listener(runtime.settings.server.host, runtime.settings.server.port) as listener:
        server = Server(runtime, lambda _line: up.set(), now=clock, tracing=tracing)
        thread = threading.Thread(target=server.run_on, args=(listener,), name="server")
        thread.start()
        try:
            assert up.wait(30)
            yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    """One user, no keys."""
    with serving(tmp_path / "data") as open_server:
        yield open_server


@pytest.fixture
def able(live: LiveServer) -> LiveServer:
    """One user, and a backbone that can do all that a prompt may ask for."""
    live.llm.abilities = ABILITIES
    return live


@pytest.fixture
def live_with_keys(tmp_path: Path) -> Iterator[LiveServer]:
    """Two users, three keys."""
    with serving(tmp_path / "data", server={"keys": KEYS}) as open_server:
        yield open_server
