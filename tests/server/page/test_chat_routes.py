"""The chat: streamed replies with what was recalled, and what memory does with a message."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from localmem.bank import Bank
from localmem.server.page.reply_support import list_evidence, support_reply
from localmem.types import CUT, Completion, Hit, Message, Prompt, Recall, Reply, Turn
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
    assert "".join(piece["text"] for piece in pieces) == "You said: Where does my sister Clara live?"
    assert "Lyon" in last["html"]
    assert "/memory/note-" in last["html"]
    assert last["session"] == "page-1"
    page = visit.get("/")
    assert "Where does my sister Clara live?" in page
    assert 'data-session="page-1"' in page


def test_the_dialogue_goes_on_in_its_session_and_ends_there(live: LiveServer, visit: Visit) -> None:
    _say(visit, "Hello there.")
    _say(visit, "Hello there.", "You said: Hello there.", "I have a boat.")
    assert [len(texts) for texts in live.log()] == [4]
    assert "That chat is over" in visit.send("/chat/end", session="page-1").text
    assert live.runtime.store.sessions("me", "open") == []
    assert 'data-session="page-1"' not in visit.get("/")


@pytest.mark.parametrize("mode", ["read", "off"])
def test_what_is_not_to_be_stored_is_not(live: LiveServer, visit: Visit, mode: str) -> None:
    visit.add("My sister Clara lives in Lyon.")
    last = _say(visit, "Where does my sister Clara live?", mode=mode)[-1]
    assert ("Lyon" in last["html"]) == (mode == "read")
    assert live.log() == []


def test_a_message_that_cannot_be_read_is_said_so_in_words(visit: Visit) -> None:
    headers = {"x-localmem-token": visit.token(), "content-type": "application/json"}
    response = visit.http.post("/chat/reply", content="{", headers=headers)
    assert response.status_code == 400
    assert "the body is not valid JSON: Expecting property name" in response.text


def test_an_error_is_said_in_the_stream(live: LiveServer, visit: Visit) -> None:
    def fail(_prompt: Prompt) -> str:
        raise RuntimeError("secret detail")

    live.llm.answer = fail
    (line,) = _say(visit, "Hello there.")
    assert "secret" not in line["error"]
    assert line["session"] == "page-1"  # the message is stored, so it is not to be sent again


def test_a_message_without_a_reply_is_asked_again_and_only_its_last_reply_is_shown(
    live: LiveServer, visit: Visit
) -> None:
    for answer in ("It is blue.", "It is green."):
        live.llm.answer = lambda _, answer=answer: answer  # type: ignore[misc]
        _say(visit, "Describe a boat.")
    assert live.log() == [["Describe a boat.", ">It is blue.", ">It is green."]]
    page = visit.get("/")
    assert "It is green." in page
    assert "It is blue." not in page


def test_a_reply_that_broke_off_is_marked(live: LiveServer, visit: Visit) -> None:
    turns = [Turn("page-1.0", "user", "User", "Hi.", START), Turn(f"page-1.1{CUT}", "assistant", "A", "He", START)]
    live.runtime.store.journal("me", live.runtime.settings.system).add_turns("page-1", turns)
    assert "This reply was broken off.</p>\n</article>" in re.sub(r"\n+", "\n", visit.get("/"))
    assert "broken off" in visit.get("/sessions/page-1")


@pytest.mark.parametrize("action", ["never", "erase"])
def test_an_opened_dialogue_shows_what_was_recalled_until_that_is_put_away(
    live: LiveServer, visit: Visit, action: str
) -> None:
    live.llm.answer = lambda _: "Your sister Clara lives in Lyon."
    name = visit.add("My sister Clara lives in Lyon.")
    _say(visit, "Where does my sister Clara live?")
    page = visit.get("/")
    assert f'href="/memory/{name}"' in page
    assert '"number": 1' in page
    visit.send(f"/memory/{name}/{action}")
    assert 'class="evidence"' not in visit.get("/")


def test_what_an_erased_reply_rested_on_is_not_shown_beside_another(live: LiveServer, visit: Visit) -> None:
    visit.add("My sister Clara lives in Lyon.")
    live.llm.answer = lambda _: "Your sister Clara lives in Lyon. You told me that her cat Minka is ill."
    _say(visit, "Where does my sister Clara live?")
    live.services.sessions.on_erasure.clear()  # another process erased it, and replied since
    visit.send("/sessions/page-1/erase")
    turns = [Turn("page-1.0", "user", "User", "Hi.", START), Turn("page-1.1", "assistant", "A", "Good morning.", START)]
    live.runtime.store.journal("me", live.runtime.settings.system).add_turns("page-1", turns)
    page = visit.get("/")
    assert "Good morning." in page
    assert "Minka" not in page
    assert 'class="evidence"' not in page


def test_who_was_logged_out_is_told_so_in_place_of_the_log_in(live_with_keys: LiveServer) -> None:
    visit = Visit(live_with_keys.http())
    body = {"messages": [{"role": "user", "content": "hi"}], "session": "page-1"}
    response = visit.http.post("/chat/reply", json=body)
    assert response.status_code == 401
    assert "You are logged out" in response.text
    search = visit.http.get("/memory?q=boat", headers={"hx-request": "true"})
    assert search.headers["hx-redirect"] == "/login"


def test_a_message_of_another_page_is_refused(live: LiveServer, visit: Visit) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "session": "page-1"}
    assert visit.http.post("/chat/reply", json=body).status_code == 403
    assert live.log() == []


def test_a_statement_shows_the_memory_it_rests_on_or_that_none_says_it(live: LiveServer, visit: Visit) -> None:
    visit.add("My sister Clara lives in Lyon.")
    live.llm.answer = lambda _: "Your sister Clara lives in Lyon. You told me that her cat Minka is ill."
    last: dict[str, Any] = _say(visit, "Where does my sister Clara live?")[-1]
    assert [(each["number"], each["unsupported"]) for each in last["statements"]] == [(1, ""), (None, "Minka")]
    assert "used in the reply" in last["html"]
    assert "<strong>Minka</strong>" in last["html"]


def test_a_quotation_is_marked() -> None:
    boat = unit("boat", "User: I have a boat. It is blue.")
    sea = unit("sea", "User: I like the sea.", time=START + timedelta(days=1))
    reply = 'On 2 March 2026 you said: "It is blue."'
    evidence = list_evidence([Hit(sea, 0.9), Hit(boat, 0.2)], reply, START.date())
    assert [(item.unit.id, item.is_quoted) for item in evidence] == [("boat", True), ("sea", False)]
    assert not any(item.is_quoted for item in list_evidence([Hit(boat, 0.2)], "Your boat is blue.", START.date()))


@pytest.mark.parametrize(("said", "is_quoted"), [("It is blue and old.", True), ("It is red.", False)])
def test_a_quotation_of_the_open_chat_is_told_from_one_of_memory(said: str, is_quoted: bool) -> None:
    text = 'On 2 March 2026 you said: "It is … old."'
    prompt = Prompt("agent/respond", (Message("user", said),))
    reply = Reply(Turn("s.1", "assistant", "Assistant", text, START), Recall(), prompt, Completion(text))
    support = support_reply(reply)
    assert support.quotes_chat == is_quoted
    assert ("Quoted from this chat." in support.render(Bank())) == is_quoted
