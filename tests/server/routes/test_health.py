"""Health and metrics, and that they contain no user and no text."""

import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from localmem.errors import StoreError
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.types import RefuseText
from tests.server.conftest import LiveServer


def read_samples(live: LiveServer) -> dict[tuple[str, frozenset[str]], float]:
    """Every sample of the page by its name and label values."""
    text = live.http().get("/metrics").text
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def chat(live: LiveServer, text: str, **more: object) -> None:
    body = {"model": "localmem", "messages": [{"role": "user", "content": text}], **more}
    assert live.http().post("/v1/chat/completions", json=body).status_code == 200


def test_live_and_ready(live: LiveServer) -> None:
    assert live.http().get("/health/live").json() == {"status": "ok"}
    for path in ("/health", "/health/ready"):
        assert live.http().get(path).json() == {"status": "ok", "store": "ok", "backbone": "ok"}


@pytest.mark.parametrize("path", ["/health", "/health/live", "/v1/models", "/api/tags", "/api/version"])
def test_monitors_may_ask_for_the_head_alone(live: LiveServer, path: str) -> None:
    answer = live.http().head(path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_not_ready_while_the_backbone_loads(live: LiveServer) -> None:
    live.services.warm.clear()
    answer = live.http().get("/health/ready")
    assert (answer.status_code, answer.json()["backbone"]) == (503, "loading")
    assert live.http().get("/health/live").status_code == 200


def test_not_ready_when_the_backbone_or_the_store_fails(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(live.runtime, "backbone_answers", lambda: False)
    monkeypatch.setattr(live.runtime.store.vectors, "encoder", fail)
    answer = live.http().get("/health/ready")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "store": "the disk is gone", "backbone": "does not answer"}


def test_requests_replies_tokens_sessions_and_jobs_are_counted(live: LiveServer) -> None:
    chat(live, "Minka is my cat.")
    chat(live, "And Bruno is my dog.", stream=True)
    live.http().get("/v1/memories/some-secret-id")
    live.http().get("/nowhere")
    samples = read_samples(live)
    route = "/v1/chat/completions"
    assert samples["localmem_requests_total", frozenset({route, "POST", "200"})] == 2
    assert samples["localmem_requests_total", frozenset({"/v1/memories/{memory_id:path}", "GET", "404"})] == 1
    assert samples["localmem_requests_total", frozenset({"other", "GET", "404"})] == 1
    assert samples["localmem_request_seconds_count", frozenset({route})] == 2
    assert samples["localmem_first_token_seconds_count", frozenset()] == 2
    assert samples["localmem_turn_stored_seconds_count", frozenset()] == 2
    assert samples["localmem_llm_calls_total", frozenset({"agent/respond"})] == 2
    assert samples["localmem_llm_tokens_total", frozenset({"agent/respond", "output"})] == 6 + 7
    assert samples["localmem_llm_trimmed_total", frozenset({"agent/respond"})] == 0
    assert samples["localmem_open_sessions", frozenset()] == 2
    assert samples["localmem_replies_in_progress", frozenset()] == 0
    assert samples["localmem_jobs", frozenset({"pending"})] == 0
    live.http().post("/v1/sessions/end")
    live.wait_until_remembered()
    assert read_samples(live)["localmem_open_sessions", frozenset()] == 0


def test_a_session_that_cannot_be_remembered_is_counted(live: LiveServer) -> None:
    chat(live, "Hello.")
    live.http().post("/v1/sessions/end")
    live.wait_until_remembered()
    journal = live.runtime.store.journal("me", "exchange_retrieval")
    chat(live, "More.")
    (session,) = live.runtime.store.sessions("me", "open")
    journal.close(session.id)
    for _ in range(3):
        journal.fail(session.id, "no")
    assert read_samples(live)["localmem_jobs", frozenset({"failed"})] == 1


def test_refused_texts_are_counted_by_prompt_and_reason(live: LiveServer) -> None:
    runtime = live.services.runtime
    journal = runtime.store.journal("default", runtime.settings.system)
    refusal = RefuseText("Minka is a cat.", "name", "rsum/update", (), datetime(2026, 3, 2, tzinfo=UTC), "Minka")
    journal.commit("by-hand", [refusal, refusal])
    assert read_samples(live)["localmem_refused_texts_total", frozenset({"rsum/update", "name"})] == 2
    assert "Minka" not in live.http().get("/metrics").text


def test_metrics_contain_no_user_and_no_text(live_with_keys: LiveServer) -> None:
    body = {"model": "localmem", "messages": [{"role": "user", "content": "Minka is my cat."}]}
    live_with_keys.http("key-of-ann-1").post("/v1/chat/completions", json=body)
    page = live_with_keys.http().get("/metrics").text
    for word in ("ann", "Minka", "key-of"):
        assert word not in page


class Healthy(BaseHTTPRequestHandler):
    """A server whose health address answers."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Nothing on stderr."""


def test_the_health_of_a_remote_backbone_is_checked_without_a_prompt() -> None:
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        llm = RemoteLLM(f"http://127.0.0.1:{server.server_port}/v1", name="any")
        assert llm.is_healthy()
        server.shutdown()
    assert not llm.is_healthy()
    llm.close()
