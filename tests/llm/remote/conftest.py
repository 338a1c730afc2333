"""A loopback server that stands for an engine: it records every request and answers as configured."""

import http.server
import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from localmem.resources import checkout_root

Json = dict[str, object]
Reply = tuple[int, object] | None

CHAT = "/v1/chat/completions"
ENGINES = (checkout_root() or Path()) / ".engines"  # made by scripts/setup_engines
WAIT = "<wait>"


@dataclass
class Peer:
    """A server: the requests it got, and how it answers. `reply` None drops the connection; a list is a stream."""

    port: int = 0
    requests: list[tuple[str, Json]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    reply: Callable[[str, Json], Reply] = lambda path, body: (200, answer("fine"))
    sent: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bodies(self, path: str = CHAT) -> list[Json]:
        return [body for requests, body in self.requests if requests == path]


def answer(text: str | None, finish: str = "stop", logprobs: object = None) -> Json:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"choices": [choice | {"logprobs": logprobs}], "usage": usage}


def stream_events(*texts: str, finish: str = "stop") -> list[str]:
    pieces: list[object] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    pieces += [{"choices": [{"delta": {"content": text}, "finish_reason": None}]} for text in texts]
    pieces += [{"choices": [{"delta": {}, "finish_reason": finish}]}]
    pieces += [{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": len(texts)}}]
    return [json.dumps(piece) for piece in pieces] + ["[DONE]"]


def refusal(message: str) -> Json:
    return {"error": {"message": message, "type": "BadRequestError", "code": 400}}


def logprob(token: str, weights: dict[str, float]) -> Json:
    """A decoded token with the likeliest twenty: those given, and others that the format forbids."""
    listed = [
        {"token": name, "logprob": math.log(weight), "bytes": list(name.encode())} for name, weight in weights.items()
    ]
    forbidden = [{"token": f"#{n}", "logprob": -9999.0, "bytes": [35, 48 + n % 10]} for n in range(20 - len(listed))]
    return {
        "token": token,
        "logprob": math.log(weights[token]),
        "bytes": list(token.encode()),
        "top_logprobs": [*listed, *forbidden],
    }


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the peer is configured."""

    protocol_version = "HTTP/1.1"
    peer: Peer

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Json) -> None:
        self.peer.requests.append((self.path, body))
        self.peer.headers.append(dict(self.headers))
        reply = self.peer.reply(self.path, body)
        if reply is None:
            self.close_connection = True
        elif isinstance(reply[1], list):
            self._stream(reply[1])
        else:
            self._send(*reply)

    def _send(self, status: int, content: object) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: list[str]) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events:
            if event == WAIT:
                self._wait()
                return
            self.wfile.write(f"data: {event}\n\n".encode())
            self.wfile.flush()

    def _wait(self) -> None:
        """Until the other side closes the connection."""
        self.peer.sent.set()
        if self.rfile.read(1) == b"":
            self.peer.hung_up.set()

    def log_message(self, *_: object) -> None:
        return


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def running_peer() -> Iterator[Peer]:
    """A server that runs inside the block."""
    peer = Peer()
    bound: type[Handler] = type("Bound", (Handler,), {"peer": peer})
    server = Server(("127.0.0.1", 0), bound)
    peer.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield peer
    server.shutdown()
    server.server_close()


@contextmanager
def greeting_peer(model: str) -> Iterator[Peer]:
    """A running server of this model that says good morning, streamed or not."""
    others: dict[str, object] = {"/v1/models": {"data": [{"id": model, "owned_by": "vllm"}]}, "/tokenize": {"count": 1}}
    with running_peer() as peer:
        peer.reply = lambda path, body: (
            200,
            stream_events("Good ", "morning.") if body.get("stream") else others.get(path, answer("Good morning.")),
        )
        yield peer


@contextmanager
def running_llama_cpp(model: Path, context: int, *template: Path) -> Iterator[str]:
    """The address of a real llama.cpp server that runs inside the block, maybe with another chat template."""
    script = Path(__file__).with_name("run_llama_cpp.py")
    command = [sys.executable, str(script), str(ENGINES), str(model), str(context), *map(str, template)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()  # the server's threads do not end by themselves


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running_peer() as peer:
        yield peer
