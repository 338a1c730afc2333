"""Whose clock a turn is dated by: the settings' time zone, or that of a request's header."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import Clock, LiveServer, serving

EVENING = datetime(2026, 3, 2, 23, 30, tzinfo=UTC)


def say(live: LiveServer, text: str, zone: str | None = None) -> httpx.Response:
    headers = {"X-Localmem-Timezone": zone} if zone is not None else {}
    body = {"model": "localmem", "messages": [{"role": "user", "content": text}], "metadata": {"session": "s"}}
    return live.http().post("/v1/chat/completions", json=body, headers=headers)


def logged_times(live: LiveServer) -> list[str]:
    session = live.runtime.store.session("me", "s")
    return [turn.time.isoformat() for turn in session.turns if turn.role == "user"]


def test_turns_are_dated_in_the_zone_of_the_request_else_of_the_settings(tmp_path: Path) -> None:
    with serving(tmp_path / "data", clock=Clock(EVENING), chat={"timezone": "Europe/Berlin"}) as live:
        say(live, "The party is tomorrow.")
        assert "3 March 2026" in live.llm.prompts[-1].messages[0].content  # today, as the model is told
        live.clock.advance(minutes=1)
        say(live, "And what of the day after?", "America/New_York")
        assert "2 March 2026" in live.llm.prompts[-1].messages[0].content
        assert logged_times(live) == ["2026-03-03T00:30:00+01:00", "2026-03-02T18:31:00-05:00"]


@pytest.mark.parametrize("zone", ["Mars/Base", "", "CET+1; rm"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/memories/recall"])
def test_an_unknown_zone_is_refused_in_one_line_and_nothing_is_logged(live: LiveServer, zone: str, path: str) -> None:
    body: dict[str, Any] = {"model": "localmem", "messages": [{"role": "user", "content": "Hello."}]}
    body = {"text": "Hello."} if "recall" in path else body
    response = live.http().post(path, json=body, headers={"X-Localmem-Timezone": zone})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["message"].endswith("is not a time zone; give an IANA name such as Europe/Berlin")
    assert "\n" not in error["message"]
    assert (error["param"], error["code"]) == ("X-Localmem-Timezone", "invalid_timezone")
    assert live.log() == []


def test_the_hour_that_occurs_twice_and_a_clock_set_back_keep_the_order(tmp_path: Path) -> None:
    clock = Clock(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
    with serving(tmp_path / "data", clock=clock, chat={"timezone": "Europe/Berlin"}) as live:
        for minutes in (0, 60, -30):
            clock.advance(minutes=minutes)
            say(live, f"It is {minutes} minutes later.")
        assert logged_times(live) == ["2026-10-25T02:30:00+02:00", *["2026-10-25T02:30:00+01:00"] * 2]


def test_memories_tell_their_times_and_whether_they_are_over(tmp_path: Path) -> None:
    with serving(tmp_path / "data", clock=Clock(EVENING), system="evidence", retrieval={"retriever": "bm25"}) as live:
        say(live, "My cast comes off on the 12th of March.", "Asia/Tokyo")
        http, spans = live.http(), [["2026-03-12", "2026-03-12"]]
        for day, over in ((5, None), (20, "2026-03-12")):
            live.clock.time = EVENING.replace(day=day)
            recall = http.post("/v1/memories/recall", json={"text": "my cast"}).json()
            documents: list[dict[str, Any]] = [
                http.get("/v1/memories").json()["data"][0],
                http.get("/v1/memories/bank").json()["units"][0],
                http.post("/v1/memories/search", json={"query": "my cast"}).json()["data"][0],
                recall["hits"][0],
            ]
            assert [document["over_since"] for document in documents] == [over] * 4
            assert [document["spans"][0]["readings"] for document in documents] == [spans] * 4
            assert documents[0]["text"] == "User: My cast comes off on the 12th of March."
            assert ("already past" in recall["text"]) == (over is not None)
        listed = http.get("/v1/memories").json()["data"]
        history = http.get(f"/v1/memories/{listed[0]['id']}/history").json()
        assert history["unit"]["spans"][0]["readings"] == spans
