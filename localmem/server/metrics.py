"""Metrics for Prometheus: requests, replies, tokens and refused texts by prompt name, jobs and sessions.

They name no user and no text. Counts are kept here, or read from the meter and the store when the page is requested;
nothing is global.
"""

import logging
from collections import Counter as StateCounts
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from localmem.runtime import MAX_ATTEMPTS, Runtime
from localmem.server.response_status import ResponseStatus
from localmem.server.session_manager import SessionManager

if TYPE_CHECKING:
    from localmem.runtime.tracing import Tracing

log = logging.getLogger("localmem.access")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_KINDS = {"input": "input_tokens", "cached": "cached_tokens", "output": "output_tokens"}


class Metrics:
    """The counters of one server. `turn_stored` and `first_token` observe seconds."""

    def __init__(self, runtime: Runtime, sessions: SessionManager) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "localmem_requests", "Answered requests.", ("route", "method", "status"), registry=self._registry
        )
        self._durations = self._histogram("localmem_request_seconds", "From request to end of response.", "route")
        self.turn_stored = self._histogram("localmem_turn_stored_seconds", "Time to log the user's turn durably.")
        self.first_token = self._histogram("localmem_first_token_seconds", "From request to first token.")
        self.chats = Counter(
            "localmem_chat_requests", "Chat requests by what memory did.", ("mode",), registry=self._registry
        )
        self.client_tasks = Counter(
            "localmem_client_tasks", "Chat requests of clients' own, not stored.", ("kind",), registry=self._registry
        )
        self.broken_off = Counter("localmem_replies_broken_off", "Replies that ended early.", registry=self._registry)
        self._registry.register(_StateCollector(runtime, sessions))

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request under the pattern of its route, and record its duration."""
        self._requests.labels(route, method, str(status)).inc()
        self._durations.labels(route).observe(seconds)

    def text(self) -> bytes:
        """The metrics page."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, description: str, *labels: str) -> Histogram:
        return Histogram(name, description, labels, buckets=_SECONDS, registry=self._registry)


class RequestCounter:
    """Middleware: counts each request under the pattern of its route, so that no id gets into a label.

    With `logs` it also logs a line for each.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, *, logs: bool = False) -> None:
        self._app = app
        self._metrics = metrics
        self._logs = logs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = perf_counter(), ResponseStatus(send)
        try:
            await self._app(scope, receive, status)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            seconds = perf_counter() - start
            self._metrics.observe_request(route, scope["method"], status.value, seconds)
            if self._logs:
                log.info("%s %s %s %.0f ms", scope["method"], route, status.value, 1000 * seconds)


class RequestTracer:
    """Middleware: each request is a span, with the pattern of its route and its status."""

    def __init__(self, app: ASGIApp, tracing: "Tracing") -> None:
        self._app, self._tracing = app, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        status = ResponseStatus(send)
        with self._tracing.request(scope["method"], Headers(scope=scope)) as span:
            try:
                await self._app(scope, receive, status)
            finally:
                route = getattr(scope.get("route"), "path", "other")
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", status.value)


class _StateCollector(Collector):
    """State that is read when the page is requested."""

    def __init__(self, runtime: Runtime, sessions: SessionManager) -> None:
        self._runtime = runtime
        self._sessions = sessions

    def describe(self) -> Iterator[Metric]:
        """Registering the collector reads nothing."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from self._usage()
        yield self._refusal_counts()
        yield self._jobs()
        store = self._runtime.store
        count = sum(store.lookups.with_open_sessions().values())
        yield GaugeMetricFamily("localmem_open_sessions", "Open sessions.", count)
        yield GaugeMetricFamily("localmem_replies_in_progress", "Replies in progress.", self._sessions.count_active())

    def _usage(self) -> Iterator[Metric]:
        calls = CounterMetricFamily("localmem_llm_calls", "Answers of the backbone.", labels=["prompt"])
        tokens = CounterMetricFamily("localmem_llm_tokens", "Tokens of the backbone.", labels=["prompt", "kind"])
        trimmed = CounterMetricFamily("localmem_llm_trimmed", "Prompts cut to fit the context.", labels=["prompt"])
        short = CounterMetricFamily("localmem_llm_cut_short", "Answers cut at their limit.", labels=["prompt"])
        for prompt, usage in self._runtime.llm.usage().items():
            calls.add_metric([prompt], usage.calls)
            trimmed.add_metric([prompt], usage.trimmed)
            short.add_metric([prompt], usage.cut_short)
            for kind, field in _KINDS.items():
                tokens.add_metric([prompt, kind], getattr(usage, field))
        yield from (calls, tokens, trimmed, short)

    def _refusal_counts(self) -> Metric:
        refused = CounterMetricFamily(
            "localmem_refused_texts", "Texts of the backbone that did not become memory.", labels=["prompt", "reason"]
        )
        for (prompt, reason), count in sorted(dict(self._runtime.store.refusals).items()):
            refused.add_metric([prompt, reason], count)
        return refused

    def _jobs(self) -> Metric:
        jobs = self._runtime.store.pending_jobs(attempts=None)
        counts = StateCounts("failed" if job.attempts >= MAX_ATTEMPTS else "pending" for job in jobs)
        family = GaugeMetricFamily("localmem_jobs", "Closed sessions that are not yet remembered.", labels=["state"])
        for state in ("pending", "failed"):
            family.add_metric([state], counts[state])
        return family
