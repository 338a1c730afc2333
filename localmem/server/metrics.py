"""What Prometheus reads: requests, replies, tokens by prompt name, jobs and sessions. No user and no text is in it.

Counts are kept here or read from the meter and the store when they are asked for; nothing is global.
"""

from collections import Counter as Tally
from collections.abc import Iterator
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localmem.runtime import ATTEMPTS, Runtime
from localmem.server.session_manager import Desk

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_EVERY = 1_000_000
_KINDS = {"input": "input_tokens", "cached": "cached_tokens", "output": "output_tokens"}


class Metrics:
    """One for the server."""

    def __init__(self, runtime: Runtime, desk: Desk) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "localmem_requests", "Answered requests.", ("route", "method", "status"), registry=self._registry
        )
        self._duration = self._histogram("localmem_request_seconds", "From request to end of answer.", "route")
        self._stored = self._histogram("localmem_turn_stored_seconds", "Until what the user said was durable.")
        self._first = self._histogram("localmem_first_token_seconds", "From request to the first words of the reply.")
        self._broken = Counter(
            "localmem_replies_broken_off", "Replies that were not given whole.", registry=self._registry
        )
        self._registry.register(_Looked(runtime, desk))

    def turn_stored(self, seconds: float) -> None:
        self._stored.observe(seconds)

    def first_words(self, seconds: float) -> None:
        self._first.observe(seconds)

    def broken_off(self) -> None:
        self._broken.inc()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests.labels(route, method, str(status)).inc()
        self._duration.labels(route).observe(seconds)

    def text(self) -> bytes:
        """The page as Prometheus reads it."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, what: str, *labels: str) -> Histogram:
        return Histogram(name, what, labels, buckets=_SECONDS, registry=self._registry)


class Counted:
    """Around the app: counts each request under the pattern of its route, so that no id gets into a label."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = perf_counter(), 499  # nobody was there to be answered

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.request(route, scope["method"], status, perf_counter() - began)


class _Looked(Collector):
    """What is looked up when the page is asked for."""

    def __init__(self, runtime: Runtime, desk: Desk) -> None:
        self._runtime = runtime
        self._desk = desk

    def describe(self) -> Iterator[Metric]:
        """Nothing is looked up while the collector is registered."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from self._spent()
        yield self._jobs()
        yield _gauge("localmem_open_sessions", "Sessions that go on.", self._open_sessions())
        yield _gauge("localmem_replies_in_progress", "Replies that are being given.", self._desk.talking())

    def _spent(self) -> Iterator[Metric]:
        calls = CounterMetricFamily("localmem_llm_calls", "Answers of the backbone.", labels=["prompt"])
        tokens = CounterMetricFamily("localmem_llm_tokens", "Tokens of the backbone.", labels=["prompt", "kind"])
        trimmed = CounterMetricFamily("localmem_llm_trimmed", "Prompts that were cut to fit.", labels=["prompt"])
        short = CounterMetricFamily("localmem_llm_cut_short", "Answers cut at their limit.", labels=["prompt"])
        for prompt, spent in self._runtime.llm.spent().items():
            calls.add_metric([prompt], spent.calls)
            trimmed.add_metric([prompt], spent.trimmed)
            short.add_metric([prompt], spent.cut_short)
            for kind, field in _KINDS.items():
                tokens.add_metric([prompt, kind], getattr(spent, field))
        yield from (calls, tokens, trimmed, short)

    def _jobs(self) -> Metric:
        jobs = self._runtime.store.pending_jobs(limit=_EVERY, attempts=_EVERY)
        tally = Tally("failed" if job.attempts >= ATTEMPTS else "pending" for job in jobs)
        family = GaugeMetricFamily("localmem_jobs", "Closed sessions that are not remembered.", labels=["state"])
        for state in ("pending", "failed"):
            family.add_metric([state], tally[state])
        return family

    def _open_sessions(self) -> int:
        store = self._runtime.store
        return sum(len(store.sessions(user, "open")) for user in store.users())


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)
