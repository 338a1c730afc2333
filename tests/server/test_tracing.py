"""Traces at a collector of the test's own: spans by stage under each request, and nothing of what was said."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra traces is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from localmem.cli.options import _named_hosts
from localmem.config import load_settings
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.llm.wrappers import Background
from localmem.runtime import Runtime
from localmem.runtime.tracing import Tracing
from tests.llm.remote.conftest import running_peer, stream_events
from tests.server.conftest import Clock, CountingEncoder, LiveServer, running, serving
from tests.server.test_remote_streams import begin, stream_from, words

CLIENTS_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector:
    """What it was sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def spans(self) -> list[Span]:
        """All spans."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        thread.join()
        collector.server.server_close()


def stages_under(spans: list[Span], root: Span) -> set[str]:
    return {span.name for span in spans if span.parent_span_id == root.span_id}


def talk(live: LiveServer, text: str, *, stream: bool) -> None:
    headers = {"traceparent": f"00-{CLIENTS_TRACE}-00f067aa0ba902b7-01"} if stream else {}
    body = {"model": "localmem", "messages": [{"role": "user", "content": text}], "stream": stream}
    assert live.http().post("/v1/chat/completions", json=body, headers=headers).is_success


def test_a_request_has_a_span_for_each_stage_and_no_text(tmp_path: Path) -> None:
    with collecting() as collector:
        with (
            closing(Tracing(collector.url)) as tracing,
            serving(tmp_path, tracing=tracing, system="exchange_retrieval", user="someone") as live,
        ):
            talk(live, "Minka is my cat.", stream=False)
            live.http().post("/v1/sessions/end")
            live.wait_until_remembered("someone")
            talk(live, "Who is Minka?", stream=True)
            assert live.http().get("/v1/memories/some-secret-id").status_code == 404
        spans = collector.spans()
    roots = [span for span in spans if span.kind == Span.SPAN_KIND_SERVER]
    first, second = (span for span in roots if span.name == "POST /v1/chat/completions")
    assert {"store", "first_token", "decode"} <= stages_under(spans, first)
    assert {"embed", "search", "store", "first_token", "decode"} <= {
        span.name for span in spans if span.trace_id == second.trace_id
    }
    assert second.trace_id.hex() == CLIENTS_TRACE
    assert first.trace_id != second.trace_id
    (job,) = (span for span in spans if span.name == "remember")
    assert "commit" in stages_under(spans, job)
    (missing,) = (span for span in roots if span.name == "GET /v1/memories/{memory_id:path}")
    assert ("http.response.status_code", 404) in [(field.key, field.value.int_value) for field in missing.attributes]
    everything = b"".join(collector.bodies)
    for word in (b"Minka", b"some-secret-id", b"someone", b"cat"):
        assert word not in everything


def test_words_that_the_event_loop_passes_on_stay_in_their_trace(tmp_path: Path) -> None:
    with collecting() as collector, running_peer() as peer:
        stream_from(peer, *stream_events("Hello", " there."))
        settings = load_settings(None, {"data": tmp_path, "system": "none", "server": {"port": 0}})
        backbone = RemoteLLM(peer.url, name="m", context_length=4096)
        with (
            closing(Tracing(collector.url)) as tracing,
            closing(backbone),
            Runtime(settings, llm=backbone, encoder=CountingEncoder(), wrap=tracing.wrap) as runtime,
            running(runtime, Clock(), tracing) as (server, url),
            ExitStack() as stack,
        ):
            assert server.services.warm.wait(30)
            assert "".join(words(begin(stack, url, "Hi."))) == "Hello there."
        spans = collector.spans()
    (root,) = (span for span in spans if span.name == "POST /v1/chat/completions")
    stages = sorted((span.start_time_unix_nano, span.name) for span in spans if span.parent_span_id == root.span_id)
    assert [name for _, name in stages][-3:] == [
        "first_token",
        "decode",
        "store",
    ]  # the reply is logged after its words


def test_a_collector_that_is_gone_disturbs_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        closing(Tracing("http://127.0.0.1:9/v1/traces")) as tracing,
        serving(tmp_path, tracing=tracing, system="memory_retrieval") as live,
    ):
        talk(live, "Minka is my cat.", stream=True)
        assert live.log() == [["Minka is my cat.", ">You said: Minka is my cat."]]


def test_there_are_none_unless_a_collector_is_named(live: LiveServer) -> None:
    assert live.services.settings.server.traces is None
    assert isinstance(live.runtime.llm.inner, Background)


def test_a_server_may_reach_the_collector_of_its_settings(tmp_path: Path) -> None:
    settings = load_settings(None, {"data": tmp_path, "server": {"traces": "http://collector.example:4318/v1/traces"}})
    assert _named_hosts(settings) == ["collector.example"]
