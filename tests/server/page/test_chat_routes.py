"""The chat: streamed replies with what was recalled, and what memory does with a message."""

import json
from datetime import timedelta
from typing import Any

import pytest

from localmem.server.page.chat_routes import list_evidence
from localmem.types import Hit, Prompt
from tests.fakes import START, unit
from tests.server.conftest import LiveServer
from tests.server.page.conftest import Visit


def _say(visit: Visit, *messages: str, mode: str = "write", session: str = "page-1") -> list[dict[str, str]]:
    dialogue = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(messages)]
    body = {"messages": dialogue, "session": session, "mode": mode}
    response = visit.http.post("/chat/reply", json=body, headers={"x-localmem-token": visit.token()})
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_a_reply_streams_and_shows_what_was_recalled(live: LiveServer, visit: Visit) -> None:
    visit.add("My sister Clara lives in Lyon.")
    *pieces, last = _say(visit, "Where does my sister Clara live?")
    assert "".join(piece["text"] for piece in pieces) == last["reply"]
    assert "Lyon" in last["html"]
    assert "/memory/note-" in last["html"]
    assert last["session"] == "page-1"
    page = visit.get("/")
    assert "Where does my sister Clara live?" in page
    assert 'data-session="page-1"' in page


def test_the_dialogue_goes_on_in_its_session_and_ends_there(live: LiveServer, visit: Visit) -> None:
    first = _say(visit, "Hello there.")[-1]["reply"]
    _say(visit, "Hello there.", first, "I have a boat.")
    assert [len(texts) for texts in live.log()] == [4]
    visit.send("/chat/end", session="page-1")
    assert live.runtime.store.sessions("me", "open") == []
    assert 'data-session="page-1"' not in visit.get("/")


@pytest.mark.parametrize("mode", ["read", "off"])
def test_what_is_not_to_be_stored_is_not(live: LiveServer, visit: Visit, mode: str) -> None:
    visit.add("My sister Clara lives in Lyon.")
    last = _say(visit, "Where does my sister Clara live?", mode=mode)[-1]
    assert ("Lyon" in last["html"]) == (mode == "read")
    assert live.log() == []


def test_an_error_is_said_in_the_stream(live: LiveServer, visit: Visit) -> None:
    def fail(_prompt: Prompt) -> str:
        raise RuntimeError("secret detail")

    live.llm.answer = fail
    (line,) = _say(visit, "Hello there.")
    assert "secret" not in line["error"]


def test_a_message_of_another_page_is_refused(live: LiveServer, visit: Visit) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "session": "page-1"}
    assert visit.http.post("/chat/reply", json=body).status_code == 403
    assert live.log() == []


def test_a_statement_shows_the_memory_it_rests_on_or_that_none_says_it(live: LiveServer, visit: Visit) -> None:
    visit.add("My sister Clara lives in Lyon.")
    live.llm.answer = lambda _: "Your sister Clara lives in Lyon. You told me that her cat Minka is ill."
    last: dict[str, Any] = _say(visit, "Where does my sister Clara live?")[-1]
    assert [{name: value for name, value in each.items() if name != "text"} for each in last["statements"]] == [
        {"number": 1},
        {"unsupported": "Minka"},
    ]
    assert "used in the reply" in last["html"]
    assert "<strong>Minka</strong>" in last["html"]


def test_a_quotation_is_marked() -> None:
    boat = unit("boat", "User: I have a boat. It is blue.")
    sea = unit("sea", "User: I like the sea.", time=START + timedelta(days=1))
    reply = 'On 2 March 2026 you said: "It is blue."'
    evidence = list_evidence([Hit(sea, 0.9), Hit(boat, 0.2)], reply, START.date())
    assert [(item.unit.id, item.is_quoted) for item in evidence] == [("boat", True), ("sea", False)]
    assert not any(item.is_quoted for item in list_evidence([Hit(boat, 0.2)], "Your boat is blue.", START.date()))
