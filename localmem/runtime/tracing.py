"""Traces by stage for OpenTelemetry, to the collector that `server.traces` names. Nobody imports this without it.

A request is a span, and so is the end of a session; within it are the stages that the latency benchmark times (embed,
search, rerank, store, commit and so on), the backbone's answers by prompt name, and of a streamed reply the wait for
its first words and the rest. Spans hold no text and name no user. The provider is our own and not the process's global
one, so that nothing else, such as vLLM in this process, sends anything.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import ClassVar, cast

from localmem.benchmark.latency.stopwatch import STAGES, Part, Stopwatch, TimedLLM
from localmem.errors import requires
from localmem.llm.base import LLM, Pause
from localmem.types import Completion

with requires("server.traces needs {}", "traces"):
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_JOB = "remember"  # the end of a session, which no request waits for
_TIMEOUT = 5  # seconds for a collector


class Tracing(Stopwatch):
    """`wrap` makes the stages of a part spans. Start it after forking: it has a thread that sends."""

    stages: ClassVar[Mapping[str, str]] = {**STAGES, _JOB: _JOB}

    def __init__(self, url: str) -> None:
        super().__init__()
        self._provider = TracerProvider(resource=Resource.create({"service.name": "localmem"}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=_TIMEOUT)))
        self.tracer = self._provider.get_tracer("localmem")

    def close(self) -> None:
        """Send what is waiting, and stop."""
        self._provider.shutdown()

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator[trace.Span]:
        """The span of a request, which continues the client's where it has one; named when its route is known."""
        parent = TraceContextTextMapPropagator().extract(headers)
        with self.tracer.start_as_current_span(method, parent, trace.SpanKind.SERVER) as span:
            yield span

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A span within that of the request or the session's end; nothing outside of these."""
        if name != _JOB and not trace.get_current_span().is_recording():
            yield
            return
        with self.tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False):
            yield

    def wrap(self, part: Part) -> Part:
        """The same part with spans; an LLM too."""
        if callable(getattr(part, "stream", None)):
            return cast("Part", _TracedLLM(cast("LLM", part), self))
        return super().wrap(part)


class _TracedLLM(TimedLLM):
    """A call is the span `llm:<prompt name>`; a stream is `first_token`, then `decode`."""

    def __init__(self, inner: LLM, tracing: Tracing) -> None:
        super().__init__(inner, tracing)
        self._tracer = tracing.tracer

    def _timed_pieces(self, pieces: Generator[str, None, Completion]) -> Generator[str, None, Completion]:
        """The spans have the parent of the beginning, on whatever thread the stream goes on."""
        parent = trace.get_current_span()
        if not parent.is_recording():
            return (yield from pieces)
        within = trace.set_span_in_context(parent)
        span, has_words = self._tracer.start_span("first_token", within), False
        with closing(pieces):
            try:
                while True:
                    piece = next(pieces)
                    if not has_words and not isinstance(piece, Pause):
                        span.end()
                        span, has_words = self._tracer.start_span("decode", within), True
                    yield piece
            except StopIteration as end:
                completion: Completion = end.value
                return completion
            finally:
                span.end()
