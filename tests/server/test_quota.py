"""Quotas of a user: what is refused, with which status, reason and cure, and what stays possible."""

from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import LiveServer, serving


def chat(live: LiveServer, text: str, key: str | None = None, **headers: str) -> httpx.Response:
    body = {"model": "localmem", "messages": [{"role": "user", "content": text}]}
    return live.http(key).post("/v1/chat/completions", json=body, headers=headers)


def error(answer: httpx.Response) -> tuple[int, str, str]:
    body = answer.json()["error"]
    return answer.status_code, body["code"], body["message"]


def test_turns_of_a_day_are_counted_for_each_user_until_they_are_a_day_old(tmp_path: Path) -> None:
    keys = {"key-of-ann-1": "ann", "key-of-ben-1": "ben"}
    with serving(tmp_path, system="none", server={"keys": keys, "quota": {"turns_per_day": 2}}) as live:
        assert chat(live, "One.", "key-of-ann-1").is_success
        live.clock.advance(hours=1)
        assert chat(live, "Two.", "key-of-ann-1").is_success
        answer = chat(live, "Three.", "key-of-ann-1")
        assert error(answer)[:2] == (429, "quota_turns")
        assert "2 turns within 24 hours, and 2 are the most" in error(answer)[2]
        assert "raise server.quota.turns_per_day" in error(answer)[2]
        assert answer.headers["retry-after"] == str(23 * 3600)
        assert chat(live, "One of mine.", "key-of-ben-1").is_success
        assert chat(live, "Not stored.", "key-of-ann-1", **{"x-localmem": "off"}).is_success
        live.clock.advance(hours=23, seconds=1)
        assert chat(live, "Three.", "key-of-ann-1").is_success
        texts = [text for session in live.log("ann") for text in session if not text.startswith(">")]
        assert texts == ["One.", "Two.", "Three."]


def test_units_are_limited_at_every_door_and_erasing_makes_room(tmp_path: Path) -> None:
    with serving(tmp_path, system="exchange_retrieval", server={"quota": {"units": 2}}) as live:
        http = live.http()
        first = http.post("/v1/memories", json={"text": "Minka is a cat."}).json()["id"]
        assert http.post("/v1/memories", json={"text": "Bruno is a dog."}).is_success
        past = {"sessions": [{"time": "2024-05-04T10:00:00Z", "turns": [{"role": "user", "text": "Hello."}]}]}
        doors: Mapping[str, Mapping[str, object]] = {
            "/v1/memories": {"text": "Rex is a dog."},
            "/v1/sessions": past,
            "/mem0/v3/memories/add/": {"messages": [{"role": "user", "content": "Rex is a dog."}], "user_id": ""},
        }
        for path, body in doors.items():
            status, code, message = error(http.post(path, json=body))
            assert (status, code) == (403, "quota_units"), path
            assert message.startswith("the memory holds 2 units, and 2 are the most of a user; erase some, send")
        assert error(chat(live, "Rex is a dog."))[1] == "quota_units"
        assert live.log() == []
        assert chat(live, "Who is Minka?", **{"x-localmem": "read"}).is_success
        assert http.delete(f"/v1/memories/{first}").is_success
        assert chat(live, "Rex is a dog.").is_success


def test_megabytes_are_those_of_all_texts_in_bytes(tmp_path: Path) -> None:
    with serving(tmp_path, system="none", server={"quota": {"megabytes": 0.01}}) as live:
        assert chat(live, "ł" * 2000).is_success  # with the reply 8,000 bytes
        assert 8000 <= live.runtime.store.lookups.text_size("me") < 8100
        assert error(live.http().post("/v1/import", content="x" * 3000))[1] == "quota_megabytes"
        assert chat(live, "y" * 1500).is_success
        status, code, message = error(chat(live, "More."))
        assert (status, code) == (403, "quota_megabytes")
        assert message.startswith("the texts take 0.0 MB, and 0.01 are the most of a user; erase some")


def test_no_quota_counts_nothing(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("text_size", "turn_times"):
        monkeypatch.delattr(type(live.runtime.store.lookups), name)
    assert chat(live, "Hello.").is_success
