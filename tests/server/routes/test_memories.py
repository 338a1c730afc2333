"""/v1/memories over HTTP: list, search, add, history, erase."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.conftest import LiveServer, serving


def chat(live: LiveServer, *texts: str) -> None:
    """One session with these words of the user, ended and remembered."""
    messages: list[dict[str, str]] = []
    for text in texts:
        messages.append({"role": "user", "content": text})
        answer = live.http().post("/v1/chat/completions", json={"model": "localmem", "messages": messages}).json()
        messages.append(answer["choices"][0]["message"])
    live.http().post("/v1/sessions/end")
    live.wait_until_remembered()


def test_units_are_listed_in_pages(live: LiveServer) -> None:
    chat(live, *(f"Number {number}." for number in range(5)))
    http = live.http()
    texts: list[str] = []
    after: dict[str, str] = {}
    page: dict[str, Any] = {"has_more": True}
    while page["has_more"]:
        page = http.get("/v1/memories", params={"limit": 2, **after}).json()
        assert len(page["data"]) <= 2
        texts += [unit["text"].splitlines()[0] for unit in page["data"]]
        after = {"after": page["data"][-1]["id"]}
    assert texts == [f"User: Number {number}." for number in range(5)]
    assert page["notes"] == {}
    assert http.get("/v1/memories", params={"after": "nothing"}).status_code == 404
    assert http.get("/v1/memories", params={"limit": 0}).status_code == 400


def test_the_memory_at_an_earlier_time(live: LiveServer) -> None:
    chat(live, "First.")
    before = live.clock.time + timedelta(seconds=1)
    live.clock.advance(days=1)
    chat(live, "Second.")
    http = live.http()
    assert len(http.get("/v1/memories").json()["data"]) == 2
    then = http.get("/v1/memories", params={"as_of": before.isoformat()}).json()["data"]
    assert [unit["text"].splitlines()[0] for unit in then] == ["User: First."]


@pytest.mark.parametrize(("zone", "count"), [("UTC", 0), ("Asia/Tokyo", 1)])
def test_a_date_is_a_day_of_the_users_clock(live: LiveServer, zone: str, count: int) -> None:
    evening = datetime(2026, 3, 2, 23, 30, tzinfo=UTC)  # the third in Tokyo
    headers, body = {"X-Localmem-Timezone": zone}, {"text": "I keep bees.", "time": evening.isoformat()}
    http = live.http()
    assert http.post("/v1/memories", json=body, headers=headers).status_code == 201
    for fields, expected in (({"since": "2026-03-03"}, count), ({"until": "2026-03-02"}, 1 - count)):
        results = http.post("/v1/memories/search", json={"query": "bees", **fields}, headers=headers)
        assert len(results.json()["data"]) == expected
    day = live.clock.time.date().isoformat()
    assert len(http.get("/v1/memories", params={"as_of": day}, headers=headers).json()["data"]) == 1 - count


@pytest.mark.parametrize("value", ["2026", "1764460800", "yesterday", "0001-01-01"])
def test_what_is_no_time_is_refused_with_the_cure(live: LiveServer, value: str) -> None:
    cure = f'is "{value}"; use a date or a time such as 2026-03-02 or 2026-03-02T18:05'
    answer = live.http().get("/v1/memories", params={"as_of": value})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, f"as_of {cure}")
    answer = live.http().post("/v1/memories/search", json={"query": "x", "until": value})
    assert answer.json()["error"]["message"] == f"until {cure}"


def test_an_unknown_field_is_refused(live: LiveServer) -> None:
    answer = live.http().post("/v1/sessions/end", json={"sesion": "s"})
    assert answer.json()["error"]["message"] == "sesion is no field of this request; remove it"


def test_search_returns_the_best_first(live: LiveServer) -> None:
    chat(live, "The garden is green.", "The piano is black.", "I like tea.")
    results = live.http().post("/v1/memories/search", json={"query": "piano black", "limit": 2}).json()["data"]
    assert len(results) == 2
    assert "piano" in results[0]["text"]
    assert results[0]["score"] > results[1]["score"]
    assert live.http().post("/v1/memories/search", json={"query": ""}).status_code == 400


def test_search_is_narrowed_by_time_and_speaker(live: LiveServer) -> None:
    chat(live, "The piano is black.")
    between = live.clock.time + timedelta(hours=1)
    live.clock.advance(days=1)
    chat(live, "The piano is white.")

    def search_texts(**scope: str) -> list[str]:
        answer = live.http().post("/v1/memories/search", json={"query": "piano", **scope})
        assert answer.status_code == 200, answer.text
        return sorted(unit["text"].splitlines()[0] for unit in answer.json()["data"])

    assert search_texts() == search_texts(speaker="User") == ["User: The piano is black.", "User: The piano is white."]
    assert search_texts(since=between.isoformat()) == ["User: The piano is white."]
    assert search_texts(until=between.isoformat()) == ["User: The piano is black."]


def test_memories_of_an_event_or_told_in_a_period(live: LiveServer) -> None:
    live.clock.advance(days=1)
    day = live.clock.time.date()
    chat(live, "The piano comes on 7 May 2031.")
    http = live.http()
    for event, text, count in (
        ("2031-05", "", 1),
        ("2031-06..", "", 0),
        ("2031", f"{day}..{day}", 1),
        ("", "2031", 0),
    ):
        periods = {"happened": event, "told": text}
        searched = http.post("/v1/memories/search", json={"query": "piano", **periods}).json()["data"]
        recalled = http.post("/v1/memories/recall", json={"text": "piano", **periods}).json()["hits"]
        listed = http.get("/v1/memories", params=periods).json()["data"]
        bank = http.get("/v1/memories/bank", params=periods).json()["units"]
        assert [len(units) for units in (searched, recalled, listed, bank)] == [count] * 4, periods
    bad = http.post("/v1/memories/search", json={"query": "piano", "told": "May"})
    assert bad.status_code == 400
    assert "'May' is not a period; write 2025, 2025-03, 2025-03-01" in bad.json()["error"]["message"]


def test_a_memory_added_by_hand_is_recalled_and_outlives_the_server(tmp_path: Path) -> None:
    with serving(tmp_path) as live:
        answer = live.http().post("/v1/memories", json={"text": " The spare key is under the blue pot. "})
        assert answer.status_code == 201
        unit = answer.json()
        assert (unit["text"], unit["kind"], unit["session"]) == ("The spare key is under the blue pot.", "note", "api")
        assert live.http().post("/v1/memories", json={"text": " "}).status_code == 400
    with serving(tmp_path) as live:
        assert live.http().get(f"/v1/memories/{unit['id']}").json() == unit
        body = {"model": "localmem", "messages": [{"role": "user", "content": "Where is the spare key?"}]}
        extra = live.http().post("/v1/chat/completions", json=body).json()["localmem"]
        assert [hit["id"] for hit in extra["recalled"]] == [unit["id"]]
        history = live.http().get(f"/v1/memories/{unit['id']}/history").json()
        assert history["unit"]["id"] == unit["id"]
        assert history["events"][0]["cause"] == f"api:{unit['id']}"


def test_a_system_without_units_takes_none_by_hand(tmp_path: Path) -> None:
    with serving(tmp_path, system="none") as live:
        answer = live.http().post("/v1/memories", json={"text": "Something."})
        assert answer.status_code == 400
        assert "'none' keeps no units" in answer.json()["error"]["message"]
        assert live.http().post("/v1/memories/search", json={"query": "x"}).json()["data"] == []


def test_the_history_of_a_unit_names_the_turns_it_came_from(live: LiveServer) -> None:
    chat(live, "My cat is Minka.")
    (unit,) = live.http().get("/v1/memories").json()["data"]
    history = live.http().get(f"/v1/memories/{quote(unit['id'])}/history").json()
    assert [turn["text"] for turn in history["sources"]] == ["My cat is Minka."]
    for answer in (live.http().get("/v1/memories/nothing/history"), live.http().delete("/v1/memories/nothing")):
        assert answer.status_code == 404
        message = answer.json()["error"]["message"]
        assert message == "no memory 'nothing'; `localmem show` or GET /v1/memories lists them"


def test_an_erased_unit_is_gone_from_store_index_and_agent(live: LiveServer) -> None:
    chat(live, "My cat is Minka.", "I like tea.")
    cat = live.http().post("/v1/memories/search", json={"query": "cat Minka"}).json()["data"][0]
    receipt = live.http().delete(f"/v1/memories/{quote(cat['id'])}", params={"with_sources": True}).json()
    assert receipt["object"] == "erasure"
    assert receipt["remaining"] == 0
    live.wait_until_remembered()
    results = live.http().post("/v1/memories/search", json={"query": "cat Minka"}).json()["data"]
    assert all("Minka" not in unit["text"] for unit in results)
    assert all("Minka" not in text for log in live.log() for text in log)  # nor does the reply that repeated it
    assert live.http().delete(f"/v1/memories/{quote(cat['id'])}").status_code == 404


def test_everything_is_erased_only_when_that_is_said(live: LiveServer) -> None:
    chat(live, "My cat is Minka.")
    chat(live, "I like tea.")
    response = live.http().delete("/v1/memories")
    assert response.status_code == 400
    assert "confirm=all" in response.json()["error"]["message"]
    assert live.http().delete("/v1/memories?confirm=yes").status_code == 400
    assert len(live.log()) == 2
    receipt = live.http().delete("/v1/memories?confirm=all").json()
    assert receipt["rows"]["turns"] == 4
    assert live.log() == []
    assert live.http().get("/v1/memories").json()["data"] == []
    chat(live, "A new history.")
    assert [log[0] for log in live.log()] == ["A new history."]


@pytest.mark.parametrize("path", ["/v1/memories?confirm=all", "/v1/memories/{unit}"])
def test_erasing_breaks_off_the_reply_that_may_tell_of_it(live: LiveServer, path: str) -> None:
    chat(live, "My cat is Minka.")
    (unit,) = live.http().get("/v1/memories").json()["data"]
    live.llm.slow(0.05)
    live.llm.answer = lambda _prompt: " ".join(["Minka"] * 500)
    body = {
        "model": "localmem",
        "messages": [{"role": "user", "content": "Minka?"}],
        "stream": True,
        "max_tokens": 500,
    }
    with live.http().stream("POST", "/v1/chat/completions", json=body) as stream:
        lines = stream.iter_lines()
        next(lines)
        assert live.http().delete(path.format(unit=quote(unit["id"]))).status_code == 200
        assert any("broken_off" in line for line in lines)
    assert live.llm.pieces_sent < 500


def test_recall_is_what_the_model_would_be_shown(live: LiveServer) -> None:
    chat(live, "The garden is green.", "The piano is black.")
    http = live.http()
    document = http.post("/v1/memories/recall", json={"text": "What colour is the piano?"}).json()
    assert document["object"] == "recall"
    assert "piano" in document["text"]
    assert {"id", "text", "score", "time"} <= document["hits"][0].keys()
    nothing = {"object": "recall", "text": "", "hits": [], "workings": []}
    past = {"text": "piano", "until": "2000-01-01T00:00:00Z"}
    assert http.post("/v1/memories/recall", json=past).json() == nothing
    past = {"text": "piano", "as_of": "2000-01-01T00:00:00Z"}
    assert http.post("/v1/memories/recall", json=past).json() == nothing
    assert http.post("/v1/memories/recall", json={"text": ""}).status_code == 400
    assert http.post("/v1/memories/recall", json={"text": "piano", "user": "ben"}).status_code == 400


def test_the_whole_memory_comes_as_one_document(live: LiveServer) -> None:
    chat(live, "The garden is green.")
    document = live.http().get("/v1/memories/bank").json()
    assert [unit["retired"] for unit in document["units"]] == [False]
    assert (document["user"], document["unread_sessions"], document["links"], document["notes"]) == ("me", 0, [], {})
    assert live.http().get("/v1/memories/bank", params={"as_of": "2000-01-01T00:00:00Z"}).json()["units"] == []


def test_what_a_text_names_is_put_away_and_restored(live: LiveServer) -> None:
    chat(live, "The garden is green.", "The piano is black.")
    http = live.http()

    def found() -> list[str]:
        results = http.post("/v1/memories/search", json={"query": "piano"}).json()["data"]
        return [unit["text"] for unit in results if "piano" in unit["text"]]

    assert found()
    answer = http.post("/v1/memories/forget", json={"text": "the colour of the piano"}).json()
    assert len(answer["hidden"]) == 2, "what was said, and the reply that repeats it"
    assert "Hidden" in answer["reply"]
    name = answer["id"]
    assert f"`localmem forget --unit {name}` / DELETE /v1/memories/{name} erases it for good" in answer["reply"]
    assert not found()
    restored = http.post("/v1/memories/restore", json={"id": answer["id"]}).json()
    assert restored["restored"] == answer["hidden"]
    assert found()
    assert http.post("/v1/memories/restore", json={"id": answer["id"]}).status_code == 404
    assert http.post("/v1/memories/forget", json={"text": "the lighthouse"}).json()["hidden"] == []
    reply = http.post("/v1/memories/forget", json={"text": "forget everything you know about me"}).json()["reply"]
    assert "`localmem forget --all --user NAME` / DELETE /v1/memories?confirm=all;" in reply


def test_a_request_to_forget_is_answered_by_memory_itself(live: LiveServer) -> None:
    chat(live, "The piano is black.")
    count = len(live.llm.prompts)
    messages = [{"role": "user", "content": "please forget what I told you about the piano"}]
    answer: dict[str, Any] = {}
    for mode, expected in (("read", "Nothing was hidden"), ("off", "Nothing was hidden"), ("write", "Hidden")):
        body = {"model": "localmem", "messages": messages}
        answer = live.http().post("/v1/chat/completions", json=body, headers={"x-localmem": mode}).json()
        assert expected in answer["choices"][0]["message"]["content"]
    assert len(live.llm.prompts) == count

    def remembers() -> bool:
        results = live.http().post("/v1/memories/search", json={"query": "piano"}).json()["data"]
        return any("black" in unit["text"] for unit in results)

    assert not remembers()
    messages += [answer["choices"][0]["message"]]
    messages += [{"role": "user", "content": "undo that"}]
    for mode, expected in (("read", "or brought back"), ("write", "It is back")):
        body = {"model": "localmem", "messages": messages}
        answer = live.http().post("/v1/chat/completions", json=body, headers={"x-localmem": mode}).json()
        assert expected in answer["choices"][0]["message"]["content"]
        assert remembers() == (mode == "write")
