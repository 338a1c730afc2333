"""How many streams one server passes on at full pace: a scripted backbone, a real `localmem serve`, a lean client.

    .venv/bin/python -m tests.perf.bench_streams --streams 64 --streams 128

Three processes on one machine. The backbone sends 50 tokens a second to each stream, each at its own moment; the client
asks it directly first, which says what this machine bears, then through the server. A stream keeps pace where it takes
no longer than the backbone's own time. Bodies are read by asyncio alone, so that the client costs little.
On a crowded machine the server's processor time for a token says more than the clock.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import httpx
import psutil
import yaml

TOKENS, PACE = 100, 0.02
_WORD = "word "
_MODEL = "smollm2-135m-instruct"
_FIRST = 0.05  # seconds to the backbone's first token


# -- the backbone --------------------------------------------------------------------------------------------------


async def serve_backbone() -> None:
    """Serve on a free port, which is printed, until stdin ends."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=2048)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = next((int(line.partition(":")[2]) for line in head.splitlines() if "content-length" in line), 0)
            body = json.loads(await reader.readexactly(size)) if size else {}
            if "/v1/models" in head:
                await _send(writer, {"data": [{"id": _MODEL, "max_model_len": 8192}]})
            elif not body.get("stream"):
                choice = {"message": {"content": "word"}, "finish_reason": "stop"}
                await _send(writer, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})
            else:
                await _stream(writer, min(TOKENS, body.get("max_tokens") or TOKENS))
    writer.close()


async def _send(writer: asyncio.StreamWriter, document: object) -> None:
    content = json.dumps(document).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(content))
    writer.write(content)
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter, tokens: int) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    loop = asyncio.get_running_loop()
    start = loop.time() + _FIRST
    for number in range(tokens):
        await asyncio.sleep(start + number * PACE - loop.time())
        _write_event(writer, {"choices": [{"index": 0, "delta": {"content": _WORD}, "finish_reason": None}]})
    _write_event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    _write_event(writer, {"choices": [], "usage": usage})
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()


def _write_event(writer: asyncio.StreamWriter, event: object) -> None:
    data = f"data: {json.dumps(event)}\n\n".encode()
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


# -- the client ----------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """What the clients saw: seconds to first tokens, seconds of complete streams, tokens, errors."""

    first: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    writes: int = 0
    errors: list[str] = field(default_factory=list)

    def figures(self, seconds: float) -> dict[str, object]:
        """Percentiles in milliseconds, tokens a second, and how the streams kept pace."""
        own = _FIRST + (TOKENS - 1) * PACE
        return {
            "replies": len(self.totals),
            "errors": len(self.errors),
            "tokens_per_second": round(len(self.totals) * TOKENS / seconds),
            "pace": round(own / (sum(self.totals) / max(len(self.totals), 1)), 3),
            "first_p50_ms": _percentile(self.first, 50),
            "first_p95_ms": _percentile(self.first, 95),
            "writes_per_reply": round(self.writes / max(len(self.totals), 1)),
        }


async def load(port: int, streams: int, seconds: float) -> Load:
    """Streams that begin at moments of their own and repeat until the time is over."""
    result, end = Load(), perf_counter() + seconds
    await asyncio.gather(*(_repeat(port, number, number / streams * 2, end, result) for number in range(streams)))
    return result


async def _repeat(port: int, number: int, delay: float, end: float, result: Load) -> None:
    await asyncio.sleep(delay)
    while perf_counter() < end:
        try:
            await _ask(port, number, result)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            result.errors.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.2)


async def _ask(port: int, number: int, result: Load) -> None:
    body = {"model": _MODEL, "messages": [{"role": "user", "content": f"Question {number} {perf_counter()}"}]}
    content = json.dumps({**body, "stream": True, "max_tokens": 400}).encode()
    start = perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-of-{number:04d}\r\n"
    sizes = f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write((head + sizes).encode() + content)
    first, tail = 0.0, b""
    try:
        while data := await reader.read(65536):
            if not tail and b" 200 " not in data[:16]:
                raise ValueError(data[:200])
            if not first and (b'"content":"word' in data or b'"content": "word' in data):
                first = perf_counter() - start
            result.writes += 1
            tail = (tail + data)[-200:]
            if b"[DONE]" in tail:
                break
        if b"[DONE]" not in tail:
            raise ValueError(f"the stream broke off: {tail!r}")
    finally:
        writer.close()
    result.first.append(first)
    result.totals.append(perf_counter() - start)


def _percentile(values: list[float], rank: int) -> float:
    ordered = sorted(values)
    return round(1000 * ordered[max(0, -(-rank * len(ordered) // 100) - 1)], 1) if ordered else 0.0


# -- the whole -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def started_server(
    backbone: int, folder: Path, system: str, more: dict[str, Any]
) -> AsyncIterator[tuple[int, psutil.Process]]:
    """A real `localmem serve` before the backbone; its port and process."""
    keys = {f"key-of-{number:04d}": {"user": f"user{number:04d}"} for number in range(512)}
    server = {"port": 0, "keys": keys, "threads": 128, "waiting": 512, **more}
    settings = {"model": _MODEL, "system": system, "data": str(folder), "llm": {"url": f"http://127.0.0.1:{backbone}"}}
    (folder / "settings.yaml").write_text(yaml.safe_dump({**settings, "server": server}))
    command = [sys.executable, "-m", "localmem", "serve", "--config", str(folder / "settings.yaml")]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    lines: list[str] = []
    try:
        while "serving http://" not in "".join(lines):
            lines.append((await process.stderr.readline()).decode())
            if not lines[-1]:
                raise click.ClickException("".join(lines))
        port = int(lines[-1].partition("http://")[2].partition("/")[0].rpartition(":")[2])
        drain = asyncio.create_task(process.stderr.read())
        async with httpx.AsyncClient(trust_env=False) as client:
            while (await client.get(f"http://127.0.0.1:{port}/health")).status_code != httpx.codes.OK:
                await asyncio.sleep(0.2)
        await load(port, 1, 1.0)
        yield port, psutil.Process(process.pid)
        drain.cancel()
    finally:
        process.terminate()
        await process.wait()


def _cpu_seconds(server: psutil.Process) -> float:
    """What the server and its workers have used."""
    times = [process.cpu_times() for process in (server, *server.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


async def measure(streams: tuple[int, ...], seconds: float, system: str, more: dict[str, Any]) -> None:
    """Print the figures of each number of streams, at the backbone itself and through the server."""
    command = [sys.executable, "-m", "tests.perf.bench_streams", "--backbone"]
    with (
        tempfile.TemporaryDirectory(prefix="localmem-streams-") as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as backbone,
    ):
        assert backbone.stdout is not None
        backbone_port = int(backbone.stdout.readline())
        async with started_server(backbone_port, Path(folder), system, more) as (port, server):
            for count in streams:
                for name, where in (("backbone", backbone_port), ("localmem", port)):
                    start, spent = perf_counter(), _cpu_seconds(server)
                    result = await load(where, count, seconds)
                    figures = result.figures(perf_counter() - start)
                    cost = 1e6 * (_cpu_seconds(server) - spent) / max(TOKENS * len(result.totals), 1)
                    machine = {"server_cpu_us_per_token": round(cost), "load": round(os.getloadavg()[0], 1)}
                    click.echo(json.dumps({"at": name, "streams": count, **figures, **machine}))
                    if result.errors:
                        click.echo(result.errors[0], err=True)
        backbone.terminate()


@click.command()
@click.option("--streams", multiple=True, type=int, default=(64, 128), show_default=True)
@click.option("--seconds", default=15.0, show_default=True)
@click.option("--system", default="none", show_default=True)
@click.option("--workers", default=1, show_default=True)
@click.option("--backbone", is_flag=True, hidden=True)
def main(streams: tuple[int, ...], seconds: float, system: str, workers: int, backbone: bool) -> None:
    """Measure. Close what else uses the processor."""
    if backbone:
        asyncio.run(serve_backbone())
        return
    asyncio.run(measure(streams, seconds, system, {"workers": workers} if workers > 1 else {}))


if __name__ == "__main__":
    main()
