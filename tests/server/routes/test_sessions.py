"""Sessions and users as a whole: listing, past sessions, jobs, export and import, erasure, operators."""

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from localmem.types import Message, Unit
from tests.server.conftest import LiveServer, serving

PAST = {
    "id": "trip",
    "time": "2024-05-04T10:00:00+00:00",
    "turns": [{"role": "user", "text": "I moved to Porto."}, {"role": "assistant", "text": "How nice!"}],
}
KEYS = {"key-of-ann-1": "ann", "key-of-boss-1": {"user": "boss", "operator": True}}


@pytest.fixture
def with_operator(tmp_path: Path) -> Iterator[LiveServer]:
    """A user and an operator."""
    with serving(tmp_path / "data", server={"keys": KEYS}) as live:
        yield live


def say(http: httpx.Client, text: str, **headers: str) -> None:
    body = {"model": "localmem", "messages": [{"role": "user", "content": text}]}
    http.post("/v1/chat/completions", json=body, headers=headers).raise_for_status()


def test_sessions_are_listed_with_their_times_and_first_words(live: LiveServer) -> None:
    http = live.http()
    for text in ("My  boat\nis blue.", "x" * 100, "Hello"):
        say(http, text)
        live.clock.advance(minutes=1)
    http.post("/v1/sessions/end", json={"session": live.runtime.store.sessions("me")[0].id})
    live.wait_until_remembered()
    listed = http.get("/v1/sessions").json()
    assert [session["first_words"] for session in listed["data"]] == ["Hello", f"{'x' * 79}…", "My boat is blue."]
    assert [session["state"] for session in listed["data"]] == ["open", "open", "closed"]
    assert [session["remembered"] for session in listed["data"]] == [False, False, True]
    assert listed["data"][0]["started"] > listed["data"][1]["ended"]
    page = http.get("/v1/sessions", params={"limit": 1, "before": listed["data"][0]["id"]}).json()
    assert (page["data"], page["has_more"]) == ([listed["data"][1]], True)
    session = http.get(f"/v1/sessions/{listed['data'][2]['id']}").json()
    assert [turn["text"] for turn in session["data"]] == ["My  boat\nis blue.", "You said: My  boat\nis blue."]
    for answer in (http.get("/v1/sessions/unknown"), http.delete("/v1/sessions/unknown")):
        assert answer.status_code == 404
        assert answer.json()["error"]["message"] == "no session 'unknown'; GET /v1/sessions lists them"
    assert http.get("/v1/sessions?before=unknown").status_code == 404


def test_past_sessions_are_added_all_or_none(live: LiveServer) -> None:
    unusable = {**PAST, "id": "other", "turns": [{"role": "user", "text": "I moved\0 on."}]}
    answer = live.http().post("/v1/sessions", json={"sessions": [PAST, unusable]})
    assert (answer.status_code, "NUL" in answer.json()["error"]["message"]) == (400, True)
    assert live.log() == []


def test_words_that_are_put_away_are_not_shown(live: LiveServer) -> None:
    http = live.http()
    say(http, "My boat is blue.")
    http.post("/v1/sessions/end")
    live.wait_until_remembered()
    hidden = http.post("/v1/memories/forget", json={"text": "my boat"}).json()["hidden"]
    assert hidden
    assert "blue" not in json.dumps(http.get("/v1/sessions").json()["data"][0]["first_words"])


def test_past_sessions_are_remembered_and_sending_them_again_changes_nothing(live: LiveServer) -> None:
    http = live.http()
    unnamed = {"turns": [{"role": "user", "text": "I have a dog.", "time": "2024-06-01T09:00:00Z"}]}
    for expected in ("added", "present"):
        answer = http.post("/v1/sessions", json={"sessions": [PAST, unnamed]})
        assert answer.status_code == 202
        assert [session["status"] for session in answer.json()["data"]] == [expected] * 2
        jobs = http.get("/v1/jobs", params={"wait": 30}).json()
        assert (jobs["data"], jobs["done"]) == ([], True)
    assert live.log() == [["I moved to Porto.", ">How nice!"], ["I have a dog."]]
    (match, *_) = http.post("/v1/memories/search", json={"query": "moved to Porto"}).json()["data"]
    assert match["time"].startswith("2024-05-04")
    (job,) = http.get("/v1/jobs?session=trip").json()["data"]
    assert (job["session"], job["status"]) == ("trip", "done")
    assert http.get("/v1/jobs?session=unknown").status_code == 404


def test_a_past_session_is_present_though_a_memory_of_it_was_erased(live: LiveServer) -> None:
    http = live.http()
    turns = [{"role": "user", "text": text} for text in ("I moved to Porto.", "I have a dog.", "I like tea.")]
    session = {**PAST, "turns": turns}
    http.post("/v1/sessions", json={"sessions": [session]})
    http.get("/v1/jobs", params={"wait": 30})
    (unit,) = [each["id"] for each in http.get("/v1/memories").json()["data"] if "dog" in each["text"]]
    http.delete(f"/v1/memories/{quote(unit)}?with_sources=true").raise_for_status()
    answer = http.post("/v1/sessions", json={"sessions": [session]})
    assert [each["status"] for each in answer.json()["data"]] == ["present"]
    assert live.log() == [["I moved to Porto.", "I like tea."]]
    for other in (turns[:2], [*turns, turns[0]], [*turns[:2], {"role": "user", "text": "I like milk."}]):
        assert http.post("/v1/sessions", json={"sessions": [{**PAST, "turns": other}]}).status_code == 409


def test_a_past_session_that_was_erased_is_added_only_on_request(live: LiveServer) -> None:
    http = live.http()
    http.post("/v1/sessions", json={"sessions": [PAST]})
    http.delete("/v1/sessions/trip").raise_for_status()
    for query, status in (("", "erased"), ("?with_erased=true", "added"), ("", "present")):
        answer = http.post(f"/v1/sessions{query}", json={"sessions": [PAST]})
        assert [each["status"] for each in answer.json()["data"]] == [status]


def test_a_job_is_done_when_a_recall_finds_its_memories(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index follows the commit, and the first time it may have to load an encoder."""
    index, is_asked = live.runtime.agent("me").memory.index, threading.Event()
    add = index.add

    def add_late(units: Sequence[Unit]) -> None:
        is_asked.wait(2)
        add(units)

    monkeypatch.setattr(index, "add", add_late)
    http = live.http()
    turns = [{"role": "user", "text": "I moved to Porto."}]
    http.post("/v1/sessions", json={"sessions": [{"time": "2024-05-04T10:00:00Z", "turns": turns}]})
    timer = threading.Timer(0.5, is_asked.set)
    timer.start()
    assert http.get("/v1/jobs", params={"wait": 30}).json()["done"]
    assert "Porto" in http.post("/v1/memories/recall", json={"text": "Where did I move to?"}).json()["text"]
    timer.join()


def test_what_is_wrong_with_past_sessions_is_said_in_the_words_of_a_request(live: LiveServer) -> None:
    for time, says in (("yesterday", "times such as 2026-03-02T18:05"), (None, "turn 1 ('When?') has no time")):
        session = {"time": time, "turns": [{"role": "user", "text": "When?"}]}
        message = live.http().post("/v1/sessions", json={"sessions": [session]}).json()["error"]["message"]
        assert message.startswith("sessions.0: ")
        assert says in message
        assert "line" not in message


def test_of_past_sessions_all_are_logged_or_none(live: LiveServer) -> None:
    http, other = live.http(), {**PAST, "turns": [{"role": "user", "text": "I moved to Faro."}]}
    undated = {"turns": [{"role": "user", "text": "When?"}]}
    backwards = {
        "turns": [
            {"role": "user", "text": "Later.", "time": "2024-06-02T09:00:00Z"},
            {"role": "user", "text": "Sooner.", "time": "2024-06-01T09:00:00Z"},
        ]
    }
    for bad, status in ((undated, 400), (backwards, 400), ({"turns": []}, 400), (other, 409)):
        assert http.post("/v1/sessions", json={"sessions": [PAST, bad]}).status_code == status
    assert live.log() == []
    http.post("/v1/sessions", json={"sessions": [PAST]})
    assert http.post("/v1/sessions", json={"sessions": [other]}).status_code == 409
    assert http.post("/v1/sessions", json={"sessions": [PAST, other]}).status_code == 409
    assert live.log() == [["I moved to Porto.", ">How nice!"]]


def test_an_export_is_imported_for_another_user(with_operator: LiveServer) -> None:
    boss, ann = with_operator.http("key-of-boss-1"), with_operator.http("key-of-ann-1")
    ann.post("/v1/sessions", json={"sessions": [PAST]})
    ann.get("/v1/jobs?wait=30")
    lines = ann.get("/v1/export").text
    assert json.loads(lines.splitlines()[0]) == {"localmem": "export", "format": 1, "user": "ann"}
    headers = {"x-localmem-user": "copy%20of%20ann"}
    answer = boss.post("/v1/import", content=lines.encode(), headers=headers)
    assert (answer.status_code, answer.json()["turns"], answer.json()["new"]) == (201, 2, True)
    assert with_operator.log("copy of ann") == with_operator.log("ann")
    assert boss.post("/v1/import", content=b"nonsense", headers=headers).status_code == 400
    assert with_operator.http("key-of-boss-1").get("/v1/export").status_code == 404


@pytest.mark.parametrize("header", ["%20", ""])
def test_an_operator_who_names_an_empty_user_is_refused(with_operator: LiveServer, header: str) -> None:
    boss = with_operator.http("key-of-boss-1")
    refused = boss.post("/v1/memories", json={"text": "I am Carl."}, headers={"x-localmem-user": header})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "X-Localmem-User is empty; name a user or leave it out"
    assert with_operator.runtime.store.users() == []


def test_an_operator_acts_for_any_user_and_nobody_else_does(with_operator: LiveServer) -> None:
    boss, ann = with_operator.http("key-of-boss-1"), with_operator.http("key-of-ann-1")
    say(boss, "I am Carl.", **{"x-localmem-user": "carl"})
    say(ann, "I am Ann.", **{"x-localmem-user": "ann"})
    body = {"model": "localmem", "messages": [{"role": "user", "content": "I am Carl, too."}]}
    refused = ann.post("/v1/chat/completions", json=body, headers={"x-localmem-user": "carl"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_operator")
    assert "X-Localmem-User" in refused.json()["error"]["message"]
    assert (with_operator.log("carl")[0][0], with_operator.log("ann")[0][0]) == ("I am Carl.", "I am Ann.")
    assert [user["id"] for user in boss.get("/v1/users").json()["data"]] == ["ann", "carl"]
    assert ann.get("/v1/users").status_code == 403
    assert ann.delete("/v1/users/carl?confirm=carl").status_code == 403
    assert boss.delete("/v1/users/carl").status_code == 400
    receipt = boss.delete("/v1/users/carl?confirm=carl").json()
    assert (receipt["rows"]["turns"], receipt["remaining"]) == (2, 0)
    assert with_operator.runtime.store.users() == ["ann"]
    assert with_operator.runtime.store.unlogged.holds("carl", Message("user", "I am Carl."))


def test_without_keys_no_other_user_is_named(live: LiveServer) -> None:
    http = live.http()
    assert http.get("/v1/memories", headers={"x-localmem-user": "ben"}).status_code == 403
    assert http.get("/v1/memories", headers={"x-localmem-user": "me"}).status_code == 200


def test_a_session_is_erased_with_what_came_from_it(live: LiveServer) -> None:
    http = live.http()
    http.post("/v1/sessions", json={"sessions": [PAST]})
    http.get("/v1/jobs?wait=30")
    receipt = http.delete("/v1/sessions/trip").json()
    assert (receipt["object"], receipt["remaining"]) == ("erasure", 0)
    assert http.get("/v1/memories").json()["data"] == []
    assert http.delete("/v1/sessions/trip").status_code == 404


def test_a_memory_is_edited_and_the_version_before_stays_in_its_history(live: LiveServer) -> None:
    http = live.http()
    unit = http.post("/v1/memories", json={"text": "I live in Porto."}).json()
    edited = http.patch(f"/v1/memories/{unit['id']}", json={"text": "I live in Faro."}).json()
    assert (edited["text"], edited["replaces"], edited["retired"]) == ("I live in Faro.", unit["id"], False)
    assert [memory["text"] for memory in http.get("/v1/memories").json()["data"]] == ["I live in Faro."]
    assert http.patch("/v1/memories/unknown", json={"text": "x"}).status_code == 404
    assert http.patch(f"/v1/memories/{edited['id']}", json={"text": " "}).status_code == 400
