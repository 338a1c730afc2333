"""vLLM's own bench and this one before a server of exact times: both must measure them, and so agree within 5 %."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

from localmem.benchmark.latency.agreement import Row, Server, Work, rounds, rows
from localmem.llm.vllm.llm import VllmLLM

FIRST, EACH, TOKENS = 0.4, 0.05, 9  # seconds to the first token, and between tokens


class Timed(BaseHTTPRequestHandler):
    """Streams as vLLM does: an empty piece with the role, the tokens, at last the usage."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        time.sleep(FIRST)
        self._send({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for token in range(TOKENS):
            time.sleep(EACH if token else 0)
            end = "length" if token == TOKENS - 1 else None
            self._send({"choices": [{"delta": {"content": " a"}, "finish_reason": end}]})
        self._send({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": TOKENS}})
        self._chunk("data: [DONE]\n\n")
        self._chunk("")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
        """Quiet."""

    def _send(self, event: object) -> None:
        self._chunk(f"data: {json.dumps(event)}\n\n")

    def _chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
        self.wfile.flush()


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Timed) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_both_benches_measure_the_same(url: str, starter_llm_dir: Path) -> None:
    llm = VllmLLM(url, name="m", tokenizer=starter_llm_dir, context_length=2048, api_key="k")
    found = list(rounds(Work.made(8, TOKENS, 4, seed=0), llm, Server(url, "k", "m", starter_llm_dir), 2))
    llm.close()
    told: dict[str, Row] = {row.figure: row for row in rows(found)}
    for figure in ("median_ttft_ms", "median_tpot_ms", "median_e2el_ms", "request_throughput"):
        assert told[figure].ratio == pytest.approx(1, abs=0.1), told[figure]  # a token more or less would be 1/8
    assert told["median_ttft_ms"].ours == pytest.approx(1000 * FIRST, rel=0.1)
    assert told["median_tpot_ms"].ours == pytest.approx(1000 * EACH, rel=0.1)
