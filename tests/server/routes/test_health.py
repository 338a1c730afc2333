"""Health and metrics: what a watcher sees, and that no user and no word of theirs is in it."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from localmem.errors import StoreError
from localmem.llm.vllm.llm import VllmLLM
from tests.server.conftest import House


def numbers(house: House) -> dict[tuple[str, frozenset[str]], float]:
    """Every sample of the page by its name and label values."""
    text = house.http().get("/metrics").text
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def chat(house: House, text: str, **more: object) -> None:
    body = {"model": "localmem", "messages": [{"role": "user", "content": text}], **more}
    assert house.http().post("/v1/chat/completions", json=body).status_code == 200


def test_live_and_ready(house: House) -> None:
    assert house.http().get("/health/live").json() == {"status": "ok"}
    assert house.http().get("/health/ready").json() == {"status": "ok", "store": "ok", "backbone": "ok"}


def test_not_ready_while_the_backbone_loads(house: House) -> None:
    house.services.warm.clear()
    answer = house.http().get("/health/ready")
    assert (answer.status_code, answer.json()["backbone"]) == (503, "loading")
    assert house.http().get("/health/live").status_code == 200


def test_not_ready_when_the_backbone_or_the_store_went_away(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> list[str]:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(house.runtime, "backbone_answers", lambda: False)
    monkeypatch.setattr(house.runtime.store, "users", gone)
    answer = house.http().get("/health/ready")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "store": "the disk is gone", "backbone": "does not answer"}


def test_requests_replies_tokens_sessions_and_jobs_are_counted(house: House) -> None:
    chat(house, "Minka is my cat.")
    chat(house, "And Bruno is my dog.", stream=True)
    house.http().get("/v1/memories/some-secret-id")
    house.http().get("/nowhere")
    seen = numbers(house)
    route = "/v1/chat/completions"
    assert seen["localmem_requests_total", frozenset({route, "POST", "200"})] == 2
    assert seen["localmem_requests_total", frozenset({"/v1/memories/{memory_id:path}", "GET", "404"})] == 1
    assert seen["localmem_requests_total", frozenset({"other", "GET", "404"})] == 1
    assert seen["localmem_request_seconds_count", frozenset({route})] == 2
    assert seen["localmem_first_token_seconds_count", frozenset()] == 2
    assert seen["localmem_turn_stored_seconds_count", frozenset()] == 2
    assert seen["localmem_llm_calls_total", frozenset({"agent/respond"})] == 2
    assert seen["localmem_llm_tokens_total", frozenset({"agent/respond", "output"})] == 6 + 7
    assert seen["localmem_llm_trimmed_total", frozenset({"agent/respond"})] == 0
    assert seen["localmem_open_sessions", frozenset()] == 2
    assert seen["localmem_replies_in_progress", frozenset()] == 0
    assert seen["localmem_jobs", frozenset({"pending"})] == 0
    house.http().post("/v1/sessions/end")
    house.remembered()
    assert numbers(house)["localmem_open_sessions", frozenset()] == 0


def test_a_session_that_cannot_be_remembered_shows(house: House) -> None:
    chat(house, "Hello.")
    house.http().post("/v1/sessions/end")
    house.remembered()
    journal = house.runtime.store.journal("me", "exchange_retrieval")
    chat(house, "More.")
    (session,) = house.runtime.store.sessions("me", "open")
    journal.close(session.id)
    for _ in range(3):
        journal.fail(session.id, "no")
    assert numbers(house)["localmem_jobs", frozenset({"failed"})] == 1


def test_no_user_and_no_word_is_in_the_metrics(keyed: House) -> None:
    body = {"model": "localmem", "messages": [{"role": "user", "content": "Minka is my cat."}]}
    keyed.http("key-of-ann-1").post("/v1/chat/completions", json=body)
    page = keyed.http().get("/metrics").text
    for word in ("ann", "Minka", "key-of"):
        assert word not in page


class Healthy(BaseHTTPRequestHandler):
    """A server whose health address answers."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Nothing on stderr."""


def test_whether_a_backbone_behind_a_server_answers_is_seen_without_asking_it_anything() -> None:
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        llm = VllmLLM(f"http://127.0.0.1:{server.server_port}/v1", name="any")
        assert llm.is_healthy()
        server.shutdown()
    assert not llm.is_healthy()
    llm.close()
