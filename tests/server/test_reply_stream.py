"""One reply between a worker thread and the event loop: order, joining, stopping, errors."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator

import pytest

from localmem.server.reply_stream import Pieces, Stopped, Talk
from localmem.types import Completion, Message, Prompt, Recall, Reply
from tests.fakes import turns


def made(text: str) -> Reply:
    turn = turns("asked", text)[1]
    return Reply(turn, Recall(), Prompt("p", (Message("user", "asked"),)), Completion(text))


def pieces(*words: str, closed: threading.Event | None = None) -> Callable[[Talk], Pieces]:
    def begin(_talk: Talk) -> Generator[str, None, Reply]:
        try:
            yield from words
            return made("".join(words))
        finally:
            if closed:
                closed.set()

    return begin


async def to_the_end(talk: Talk) -> None:
    while not isinstance(await talk.next(), Reply):
        pass


def on_loop(work: Callable[[Talk], Coroutine[object, object, object]]) -> object:
    async def run() -> object:
        return await work(Talk())

    return asyncio.run(run())


def test_words_that_wait_come_as_one_piece_and_the_reply_last() -> None:
    async def work(talk: Talk) -> None:
        await asyncio.to_thread(talk.run, pieces("a", "b", "c"))
        assert await talk.next() == "abc"
        reply = await talk.next()
        assert isinstance(reply, Reply)
        assert reply.turn.text == "abc"
        assert talk.wait(0)

    on_loop(work)


def test_a_word_is_there_as_soon_as_it_is_given() -> None:
    go = threading.Event()

    def begin(_talk: Talk) -> Generator[str, None, Reply]:
        yield "first"
        go.wait(10)
        yield " second"
        return made("first second")

    async def work(talk: Talk) -> None:
        running = asyncio.create_task(asyncio.to_thread(talk.run, begin))
        assert await talk.next() == "first"
        assert not talk.wait(0)
        go.set()
        assert await talk.next() == " second"
        assert isinstance(await talk.next(), Reply)
        await running

    on_loop(work)


def test_a_stopped_talk_closes_its_pieces_and_says_so() -> None:
    closed = threading.Event()

    def endless(_talk: Talk) -> Generator[str, None, Reply]:
        try:
            while True:
                yield "more "
        finally:
            closed.set()

    async def work(talk: Talk) -> None:
        running = asyncio.create_task(asyncio.to_thread(talk.run, endless))
        assert "more" in str(await talk.next())
        talk.stop()
        await running
        assert closed.is_set()
        with pytest.raises(Stopped):
            await to_the_end(talk)

    on_loop(work)


def test_a_talk_that_is_stopped_before_its_turn_does_not_begin() -> None:
    begun = threading.Event()

    def begin(_talk: Talk) -> Generator[str, None, Reply]:
        begun.set()
        yield "never"
        return made("never")

    async def work(talk: Talk) -> None:
        talk.stop()
        await asyncio.to_thread(talk.run, begin)
        with pytest.raises(Stopped):
            await talk.next()
        assert not begun.is_set()

    on_loop(work)


def test_what_the_reply_raises_reaches_the_loop_behind_its_words() -> None:
    def begin(_talk: Talk) -> Generator[str, None, Reply]:
        yield "some"
        raise ZeroDivisionError

    async def work(talk: Talk) -> None:
        await asyncio.to_thread(talk.run, begin)
        assert await talk.next() == "some"
        with pytest.raises(ZeroDivisionError):
            await talk.next()

    on_loop(work)


def test_a_loop_that_is_gone_does_not_hold_the_worker_up() -> None:
    kept: list[Talk] = []

    async def work(talk: Talk) -> None:
        kept.append(talk)

    on_loop(work)
    closed = threading.Event()
    kept[0].run(pieces("a", closed=closed))
    assert kept[0].wait(0)
    assert closed.is_set()
