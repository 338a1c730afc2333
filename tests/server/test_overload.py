"""The bound of the queue: what fits waits, what does not is refused at once and leaves nothing behind."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localmem.server.errors import ApiError
from localmem.server.overload import ReplyPool
from localmem.types import Prompt
from tests.server.conftest import LiveServer, serving

CHAT = "/v1/chat/completions"


def _body(text: str) -> dict[str, object]:
    return {"model": "localmem", "messages": [{"role": "user", "content": text}]}


def _wait_until(live: LiveServer, condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        live.pause.wait(0.05)
    raise AssertionError("timed out")


def test_a_full_queue_refuses_and_is_open_again_when_replies_end() -> None:
    pool, release = ReplyPool(threads=1, waiting=1), threading.Event()
    ran, refused = threading.Event(), threading.Event()
    pool.submit(release.wait)
    pool.submit(ran.set)
    with pytest.raises(ApiError, match="1 replies are in progress and 1 requests wait") as refusal:
        pool.submit(refused.set)
    assert refusal.value.status == 429
    assert refusal.value.headers is not None
    assert int(refusal.value.headers["Retry-After"]) >= 1
    release.set()
    assert ran.wait(60)
    pool.shutdown()
    assert pool._count == 0
    assert not refused.is_set()


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/api/chat"])
def test_overload_is_429_on_every_protocol_and_nothing_of_it_is_logged(path: str, tmp_path: Path) -> None:
    release = threading.Event()

    def answer(prompt: Prompt) -> str:
        assert release.wait(60)
        return f"You said: {prompt.messages[-1].content}"

    with serving(tmp_path, server={"threads": 1, "waiting": 1}) as live, ThreadPoolExecutor(2) as clients:
        live.llm.answer = answer
        first = clients.submit(live.http().post, CHAT, json=_body("one"))
        _wait_until(live, lambda: len(live.llm.prompts) == 1)
        second = clients.submit(live.http().post, CHAT, json=_body("two"))
        _wait_until(live, lambda: live.services.pool._count == 2)
        refused = live.http().post(path, json=_body("three") | {"max_tokens": 9})
        release.set()
        assert (first.result().status_code, second.result().status_code) == (200, 200)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "server.waiting" in refused.text
        assert sorted(session[0] for session in live.log()) == ["one", "two"]
        assert live.http().post(path, json=_body("four") | {"max_tokens": 9}).status_code == 200
