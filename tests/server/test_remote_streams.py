"""Replies of a backbone behind a server: the event loop passes the words on, and no thread waits for them."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from localmem.config import load_settings
from localmem.llm.base import Pause
from localmem.llm.remote.line_feed import LineFeed
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.runtime import Runtime
from localmem.server.dependencies import Services
from localmem.store import Store
from tests.llm.remote.conftest import WAIT, Json, Peer, answer, running_peer, stream_events
from tests.server.conftest import Clock, CountingEncoder, running

STREAMS = 8


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running_peer() as started:
        yield started


def stream_from(peer: Peer, *events: str) -> None:
    """Let the backbone answer so; a WAIT among the events lasts until the other side hangs up."""
    others: dict[str, Json] = {"/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}, "/tokenize": {"count": 1}}
    peer.reply = lambda path, body: (200, list(events) if body.get("stream") else others.get(path, answer("fine")))


@pytest.fixture
def served(peer: Peer, tmp_path: Path) -> Iterator[tuple[str, Services]]:
    """The address of a server with two threads for replies, and its services."""
    stream_from(peer)
    server = {"port": 0, "grace_seconds": 0.2, "threads": 2, "waiting": STREAMS}
    settings = load_settings(None, {"data": tmp_path, "system": "none", "server": server})
    llm = RemoteLLM(peer.url, name="m", context_length=4096)
    with Runtime(settings, llm=llm, encoder=CountingEncoder()) as runtime, running(runtime, Clock()) as (live, url):
        assert live.services.warm.wait(30)
        yield url, live.services
    llm.close()


def begin(stack: ExitStack, url: str, text: str) -> Iterator[str]:
    """The data of a streamed reply, event by event."""
    body = {"model": "localmem", "messages": [{"role": "user", "content": text}], "stream": True}
    client = stack.enter_context(httpx.Client(base_url=url, timeout=60))
    response = stack.enter_context(client.stream("POST", "/v1/chat/completions", json=body))
    assert response.status_code == 200, response.read()
    return (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))


def words(events: Iterator[str]) -> Iterator[str]:
    for event in events:
        choices = [] if event == "[DONE]" else json.loads(event).get("choices", [])
        yield from (choice["delta"]["content"] for choice in choices if choice["delta"].get("content"))


def replies(data: Path) -> list[str]:
    """The texts of the assistant, in the store of a server that has ended."""
    with Store.open(data) as store:
        sessions = [store.session(user, info.id) for user in store.users() for info in store.sessions(user)]
    return [turn.text for each in sessions for turn in each.turns if turn.role == "assistant"]


def test_a_reply_comes_through_and_is_logged(peer: Peer, served: tuple[str, Services], tmp_path: Path) -> None:
    stream_from(peer, *stream_events("Good ", "morning, ", "Łódź."))
    with ExitStack() as stack:
        assert "".join(words(begin(stack, served[0], "Hello."))) == "Good morning, Łódź."
    served[1].sessions.end(served[1].settings.user)
    assert replies(tmp_path) == ["Good morning, Łódź."]


def test_more_streams_run_than_there_are_threads(peer: Peer, served: tuple[str, Services], tmp_path: Path) -> None:
    stream_from(peer, *stream_events("begun")[:2], WAIT)
    with ExitStack() as stack:
        streams = [words(begin(stack, served[0], f"Question {number}.")) for number in range(STREAMS)]
        assert [next(stream) for stream in streams] == ["begun"] * STREAMS
        assert served[1].sessions.count_active() == STREAMS
        served[1].sessions.stop_all()
        assert [next(stream, "end") for stream in streams] == ["end"] * STREAMS
    served[1].sessions.end(served[1].settings.user)
    assert replies(tmp_path) == ["begun"] * STREAMS


def test_a_client_that_leaves_stops_the_backbone(peer: Peer, served: tuple[str, Services], tmp_path: Path) -> None:
    stream_from(peer, *stream_events("begun")[:2], WAIT)
    with ExitStack() as stack:
        assert next(words(begin(stack, served[0], "Hello."))) == "begun"
    assert peer.hung_up.wait(30)
    served[1].sessions.end(served[1].settings.user)
    assert replies(tmp_path) == ["begun"]


def test_what_breaks_in_the_middle_is_told_and_kept(peer: Peer, served: tuple[str, Services], tmp_path: Path) -> None:
    stream_from(peer, *stream_events("begun")[:2])
    with ExitStack() as stack:
        events = list(begin(stack, served[0], "Hello."))
    assert "the stream ended before the answer did" in events[-1]
    served[1].sessions.end(served[1].settings.user)
    assert replies(tmp_path) == ["begun"]


def test_a_feed_joins_what_the_network_cut() -> None:
    text = "data: Łódź\r\n\ndata: [DONE]\n\nrest"

    class Cut(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for byte in text.encode():
                yield bytes([byte])

    @asynccontextmanager
    async def request() -> AsyncIterator[httpx.Response]:
        yield httpx.Response(200, stream=Cut())

    async def read() -> list[str]:
        feed = LineFeed(asyncio.get_running_loop(), request)
        return await asyncio.to_thread(lambda: [line for line in feed if not isinstance(line, Pause)])

    assert asyncio.run(read()) == ["data: Łódź\r", "", "data: [DONE]", "", "rest"]


def test_a_driver_that_does_not_wait_blocks_until_there_is_more() -> None:
    more, pieces = threading.Event(), list[str]()

    class Slow(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"one\n"
            await asyncio.to_thread(more.wait)
            yield b"two\n"

    @asynccontextmanager
    async def request() -> AsyncIterator[httpx.Response]:
        yield httpx.Response(200, stream=Slow())

    async def read() -> None:
        feed = LineFeed(asyncio.get_running_loop(), request)

        def take() -> None:
            for line in feed:
                pieces.append("pause" if isinstance(line, Pause) else line)
                if pieces[-1] == "one":
                    more.set()

        await asyncio.to_thread(take)

    asyncio.run(read())
    assert [line for line in pieces if line != "pause"] == ["one", "two", ""]
