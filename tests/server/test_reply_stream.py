"""A reply between a worker thread and the event loop: order, joining, stopping, errors."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator

import pytest

from localmem.server.reply_stream import Pieces, ReplyStream, Stopped
from localmem.types import Completion, Message, Prompt, Recall, Reply
from tests.fakes import turns


def reply_of(text: str) -> Reply:
    turn = turns("question", text)[1]
    return Reply(turn, Recall(), Prompt("p", (Message("user", "question"),)), Completion(text))


def pieces(*words: str, closed: threading.Event | None = None) -> Callable[[ReplyStream], Pieces]:
    def start(_stream: ReplyStream) -> Generator[str, None, Reply]:
        try:
            yield from words
            return reply_of("".join(words))
        finally:
            if closed:
                closed.set()

    return start


async def read_to_end(stream: ReplyStream) -> None:
    while not isinstance(await stream.next(), Reply):
        pass


def run_on_loop(work: Callable[[ReplyStream], Coroutine[object, object, object]]) -> object:
    async def run() -> object:
        return await work(ReplyStream())

    return asyncio.run(run())


def test_queued_words_come_as_one_piece_and_the_reply_last() -> None:
    async def work(stream: ReplyStream) -> None:
        await asyncio.to_thread(stream.run, pieces("a", "b", "c"))
        assert await stream.next() == "abc"
        reply = await stream.next()
        assert isinstance(reply, Reply)
        assert reply.turn.text == "abc"
        assert stream.wait(0)

    run_on_loop(work)


def test_a_word_arrives_at_once() -> None:
    go = threading.Event()

    def start(_stream: ReplyStream) -> Generator[str, None, Reply]:
        yield "first"
        go.wait(10)
        yield " second"
        return reply_of("first second")

    async def work(stream: ReplyStream) -> None:
        running = asyncio.create_task(asyncio.to_thread(stream.run, start))
        assert await stream.next() == "first"
        assert not stream.wait(0)
        go.set()
        assert await stream.next() == " second"
        assert isinstance(await stream.next(), Reply)
        await running

    run_on_loop(work)


def test_a_stopped_stream_closes_its_generator() -> None:
    closed = threading.Event()

    def endless(_stream: ReplyStream) -> Generator[str, None, Reply]:
        try:
            while True:
                yield "more "
        finally:
            closed.set()

    async def work(stream: ReplyStream) -> None:
        running = asyncio.create_task(asyncio.to_thread(stream.run, endless))
        assert "more" in str(await stream.next())
        stream.stop()
        await running
        assert closed.is_set()
        with pytest.raises(Stopped):
            await read_to_end(stream)

    run_on_loop(work)


def test_a_client_hears_of_a_stop_before_the_words_are_saved() -> None:
    stopped, saved = threading.Event(), threading.Event()

    def start(_stream: ReplyStream) -> Generator[str, None, Reply]:
        try:
            yield "first"
            stopped.wait(10)
            yield " second"
            return reply_of("first second")
        finally:
            saved.wait(10)

    async def work(stream: ReplyStream) -> None:
        running = asyncio.create_task(asyncio.to_thread(stream.run, start))
        assert await stream.next() == "first"
        stream.stop()
        stopped.set()
        with pytest.raises(Stopped):
            await read_to_end(stream)
        assert not stream.wait(0)
        saved.set()
        await running
        assert stream.wait(0)

    run_on_loop(work)


def test_a_stream_that_is_stopped_before_its_turn_does_not_start() -> None:
    started = threading.Event()

    def start(_stream: ReplyStream) -> Generator[str, None, Reply]:
        started.set()
        yield "never"
        return reply_of("never")

    async def work(stream: ReplyStream) -> None:
        stream.stop()
        await asyncio.to_thread(stream.run, start)
        with pytest.raises(Stopped):
            await stream.next()
        assert not started.is_set()

    run_on_loop(work)


def test_an_error_reaches_the_loop_after_the_words() -> None:
    def start(_stream: ReplyStream) -> Generator[str, None, Reply]:
        yield "some"
        raise ZeroDivisionError

    async def work(stream: ReplyStream) -> None:
        await asyncio.to_thread(stream.run, start)
        assert await stream.next() == "some"
        with pytest.raises(ZeroDivisionError):
            await stream.next()

    run_on_loop(work)


def test_a_closed_loop_does_not_block_the_worker() -> None:
    streams: list[ReplyStream] = []

    async def work(stream: ReplyStream) -> None:
        streams.append(stream)

    run_on_loop(work)
    closed = threading.Event()
    streams[0].run(pieces("a", closed=closed))
    assert streams[0].wait(0)
    assert closed.is_set()
