"""A request body above the limit: refused with 413, not read further, and nothing of it stored."""

import asyncio
import gzip
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from localmem.server.body_limit import BodyLimit, is_too_deep
from tests.server.conftest import LiveServer, serving


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LiveServer]:
    """A server that takes bodies of up to 4 kB."""
    with serving(tmp_path / "data", server={"max_body_kb": 4}) as live:
        yield live


def body_of(size: int) -> bytes:
    """A chat request of exactly this many bytes."""
    frame = '{"model": "localmem", "messages": [{"role": "user", "content": "%s"}]}'
    return (frame % ("x" * (size - len(frame) + 2))).encode()


def post(live: LiveServer, content: bytes | Iterator[bytes]) -> tuple[int, dict[str, str | None]]:
    answer = live.http().post("/v1/chat/completions", content=content, headers={"content-type": "application/json"})
    return answer.status_code, answer.json().get("error", {})


def test_a_body_up_to_the_limit_is_served_and_a_larger_one_refused(small: LiveServer) -> None:
    assert post(small, body_of(4096))[0] == 200
    status, error = post(small, body_of(4097))
    assert (status, error["code"], error["type"]) == (413, "request_too_large", "invalid_request_error")
    assert error["message"] == "the body has more than 4 kB; send less, or raise server.max_body_kb"
    assert [len(log) for log in small.log()] == [2]


def test_a_body_of_unknown_length_is_refused_as_well(small: LiveServer) -> None:
    content = body_of(9000)
    status, error = post(small, (content[start : start + 1000] for start in range(0, len(content), 1000)))
    assert (status, error["code"]) == (413, "request_too_large")
    assert small.log() == []


def test_a_compressed_body_is_refused_by_name(live: LiveServer) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = live.http().post("/v1/chat/completions", content=gzip.compress(body_of(200)), headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"]["message"] == "the body is encoded as 'gzip'; send it without content-encoding"
    same = {**headers, "content-encoding": "identity"}
    assert live.http().post("/v1/chat/completions", content=body_of(200), headers=same).status_code == 200


def test_the_limit_holds_for_every_route(small: LiveServer) -> None:
    assert small.http().post("/v1/memories", json={"text": "x" * 5000}).status_code == 413
    assert small.http().get("/v1/memories").json()["data"] == []


def read(chunks: list[bytes], headers: list[tuple[bytes, bytes]]) -> tuple[int, int]:
    """The status of a request to an app that reads its body of these chunks, and how many of them were read."""
    count = 0

    async def receive() -> Message:
        nonlocal count
        count += 1
        return {"type": "http.request", "body": chunks[count - 1], "more_body": count < len(chunks)}

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive())["more_body"]:
            pass

    async def ignore(_message: Message) -> None:
        """Nothing is sent."""

    try:
        asyncio.run(BodyLimit(app, max_bytes=10)({"type": "http", "headers": headers}, receive, ignore))
    except HTTPException as error:
        return error.status_code, count
    return 200, count


def test_no_more_is_read_than_the_limit() -> None:
    chunks = [b"12345"] * 4
    assert read(chunks[:2], []) == (200, 2)
    assert read(chunks, []) == (413, 3)
    assert read(chunks, [(b"content-length", b"20")]) == (413, 0)


def test_a_body_that_is_too_deep_or_in_another_encoding_is_refused_at_every_door(live: LiveServer) -> None:
    deep = b'{"model": "localmem", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    doors = ("/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/memories", "/v1/sessions", "/v1/import", "/mcp")
    for path in doors:
        for content, complaint in ((deep, "more than 100 levels"), ('{"text": "x"}'.encode("utf-16"), "not UTF-8")):
            answer = live.http().post(path, content=content, headers={"content-type": "application/json"})
            assert (answer.status_code, complaint in answer.text) == (400, True), (path, answer.text)
    assert live.log() == []


@pytest.mark.parametrize(
    ("body", "is_deep"),
    [
        (b"[" * 100 + b"]" * 100, False),
        (b"[" * 101 + b"]" * 101, True),
        (b'[{"a":' * 51, True),
        (b"[]" * 500, False),
        (b'["' + b"[" * 500 + b'"]', False),
        (b'["\\"' + b"[" * 500 + b'"]', False),
        ((b"[" + b"[" * 99 + b"]" * 99) * 101, True),
        (b"]" * 500, False),
    ],
)
def test_only_nested_brackets_outside_of_strings_count(body: bytes, is_deep: bool) -> None:
    assert is_too_deep(body) is is_deep


def test_a_slow_body_is_refused_and_slow_headers_end_the_connection(tmp_path: Path) -> None:
    with serving(tmp_path / "data", server={"slow_seconds": 0.2}) as live:
        address = urlsplit(live.url)
        head = b"POST /v1/memories HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        for sent, answer in ((head + b"content-length: 99\r\n\r\n{", b"408"), (head, b""), (b"", b"")):
            with socket.create_connection((address.hostname, address.port), timeout=20) as client:
                client.sendall(sent)
                assert client.recv(12)[-3:] == answer
        with socket.create_connection((address.hostname, address.port), timeout=20) as client:
            client.sendall(head + b"x: " + b"y" * 70_000)
            assert client.recv(1) == b""
        assert live.http().post("/v1/memories", json={"text": "I ski."}).status_code == 201


HALVES = (r'"\ud83d"', r'"\ud83d\ud83d\ude00"', r'"\ude00"')
WHOLE = r'"NaN \ud83d\ude00 \\ud83d \"Infinity\""'


@pytest.mark.parametrize("value", [*HALVES, "NaN", "-Infinity", WHOLE])
def test_what_python_reads_and_json_has_not_is_refused(live: LiveServer, value: str) -> None:
    """A response that repeats it could not be written."""
    body = f'{{"model": "localmem", "input": "Hello", "metadata": {{"a": {value}}}}}'
    answer = live.http().post("/v1/responses", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == (200 if value == WHOLE else 400)
