"""The memory's pages: find, edit, pin, hide, undo and erase, by forms alone."""

import re
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from localmem.types import AddLink, Link, Session, Turn
from tests.fakes import START
from tests.server.conftest import LiveServer, serving
from tests.server.page.conftest import Visit


def _remember(live: LiveServer, *texts: str, name: str = "s1") -> None:
    pairs = [
        turn
        for number, text in enumerate(texts)
        for turn in (
            Turn(f"{name}.{2 * number}", "user", "User", text, START + timedelta(minutes=number)),
            Turn(f"{name}.{2 * number + 1}", "assistant", "Assistant", "Noted.", START + timedelta(minutes=number)),
        )
    ]
    live.runtime.agent("me").writer.read([Session(name, tuple(pairs))])


def _recall(live: LiveServer, text: str) -> str:
    return str(live.http().post("/v1/memories/recall", json={"text": text}).json()["text"])


def _results(page: str) -> str:
    return page.partition('id="results"')[2].partition("</section>")[0]


def test_the_list_is_searched_by_words_and_filtered(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.", "I play the cello on Sundays.")
    assert "Clara" in visit.get("/memory")
    by_word = _results(visit.get("/memory?q=CELLO"))
    assert "cello" in by_word
    assert "Clara" not in by_word
    assert "Clara" in _results(visit.get("/memory?q=sister+Clara&by=meaning"))
    assert "Clara" not in _results(visit.get("/memory?until=2026-01-01"))
    assert "Clara" in _results(visit.get("/memory?session=s1&kind=statement"))
    assert "Nothing" in _results(visit.get("/memory?state=pinned"))
    assert visit.http.get("/memory?since=yesterday").status_code == 400


def test_what_meaning_cannot_search_is_searched_by_words_and_said_so(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.", "I play the cello on Sundays.", "I keep bees.")
    visit.send("/memory/s1.4@u0/never")
    live.clock.advance(days=30)
    past = _results(visit.get("/memory?q=cello&by=meaning&as_of=2026-03-10"))
    assert "cello" in past
    assert "Clara" not in past
    assert "Searched by words" in past
    hidden = _results(visit.get("/memory?q=bees&by=meaning&state=aside"))
    assert "I keep bees." in hidden
    assert "Searched by words" in hidden
    assert "Nothing matches these filters." in _results(visit.get("/memory?session=none"))


def test_a_search_by_meaning_looks_for_more_where_a_filter_leaves_little(live: LiveServer, visit: Visit) -> None:
    _remember(live, *(f"I paid {number} euros for lamps." for number in range(60)))
    _remember(live, "I keep bees.", name="s2")
    live.runtime.agent("me").memory.index.search(["euros lamps"], 100)
    assert "bees" in _results(visit.get("/memory?q=paid+euros+lamps&by=meaning&session=s2"))
    answers = _results(visit.get("/memory?q=paid+euros+lamps&by=meaning&kind=statement&session=s1"))
    assert answers.count("<article") == 40


def test_a_filter_that_lets_all_through_changes_nothing_of_a_search_by_meaning(live: LiveServer, visit: Visit) -> None:
    _remember(live, *(f"I live in Berlin with my cat Tom. He eats {number} fish." for number in range(3)))
    address = "/memory?q=cat&by=meaning"
    results = _results(visit.get(address))
    assert results.count("<article") == 3
    assert _results(visit.get(f"{address}&session=s1")) == results


@pytest.mark.parametrize("system", ["full_history", "rsum"])
def test_a_system_without_an_index_is_searched_by_words(tmp_path: Path, system: str) -> None:
    with serving(tmp_path, system=system) as live:
        visit = Visit(live.http())
        _remember(live, "My cat Tom eats fish.")
        page = visit.get("/memory?q=cat&by=meaning")
        assert 'value="meaning"' not in page
        assert ("My cat Tom" in _results(page)) == (system == "full_history")
        assert f"Searched by words: the system {system} has no index of meanings." in page


def test_a_part_of_a_long_message_stands_apart_and_outlives_an_edit(live: LiveServer, visit: Visit) -> None:
    _remember(live, " ".join(f"This is sentence {number} of what I wrote about my garden." for number in range(200)))
    page = visit.get("/memory/s1.0@u1")
    assert re.search(r"<span>part 2 of \d+</span>", page)
    assert "User (part" not in page
    edited = visit.send("/memory/s1.0@u1/edit", text="It was about my garden.").url.path
    page = visit.get(edited)
    assert "It was about my garden.</h1>" in page
    assert re.search(r"<span>part 2 of \d+</span>", page)


def test_what_is_no_more_in_use_is_not_edited_and_leads_to_what_replaced_it(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.")
    newer = visit.send("/memory/s1.0@u0/edit", text="My sister Clara lives in Turin.").url.path
    response = visit.send("/memory/s1.0@u0/edit", text="My sister Clara lives in Bonn.")
    assert response.status_code == 409
    assert "You wrote: My sister Clara lives in Bonn." in response.text
    assert f'href="{newer}"' in response.text


def test_a_text_for_a_memory_that_was_erased_meanwhile_is_shown(live: LiveServer, visit: Visit) -> None:
    name = visit.add("My sister Clara lives in Lyon.")
    visit.send(f"/memory/{name}/erase")
    response = visit.send(f"/memory/{name}/edit", text="My sister Clara lives in Bonn.")
    assert response.status_code == 404
    assert "it may have been erased. You wrote: My sister Clara lives in Bonn." in response.text


def test_what_another_tab_erased_is_said_plainly(visit: Visit) -> None:
    name = visit.add("My sister Clara lives in Lyon.")
    visit.send(f"/memory/{name}/erase")
    response = visit.send(f"/memory/{name}/erase")
    assert response.status_code == 404
    assert f"there is no memory '{name}'; it may have been erased" in unescape(response.text)


@pytest.mark.parametrize("address", ["/chat/end", "/memory/none/pin", "/memory/none/edit", "/sessions/none/erase"])
def test_the_address_of_a_form_says_that_it_is_no_page(visit: Visit, address: str) -> None:
    response = visit.http.get(address, headers={"accept": "text/html"})
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert f"'{address}' takes POST, not GET; go back to the page that leads there." in unescape(response.text)


def test_a_notice_is_gone_once_its_change_was_taken_back(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.")
    response = visit.send("/memory/s1.0@u0/pin")
    assert "every recall shows it" in response.text
    visit.send("/memory/s1.0@u0/undo", cause=response.url.params["undo"])
    assert 'class="done"' not in visit.get(str(response.url))


def test_lines_are_stored_with_plain_ends(live: LiveServer, visit: Visit) -> None:
    visit.add("My locker:\r\nnumber 77")
    (unit,) = live.runtime.agent("me").memory.bank.units.values()
    assert unit.text == "My locker:\nnumber 77"


def test_a_memory_shows_its_turn_and_history(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.")
    page = visit.get("/memory/s1.0@u0")
    assert "Where it comes from" in page
    assert "/sessions/s1#s1.0" in page
    assert "Remembered" in page
    _remember(live, "My sister Clara lives in Turin.", name="s2")
    change = AddLink(Link("s2.0@u0", "s1.0@u0", "supersedes", 0.7), START)
    live.runtime.agent("me").writer.commit("test", [change])
    assert "Linked: superseded by a later memory (70%)" in visit.get("/memory/s1.0@u0")


def test_an_edit_changes_what_is_recalled_and_can_be_undone(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.")
    response = visit.send("/memory/s1.0@u0/edit", text="My sister Clara lives in Turin.")
    assert "Saved" in response.text
    assert "Turin" in _recall(live, "Where does my sister Clara live?")
    assert "Lyon" not in _recall(live, "Where does my sister Clara live?")
    assert "Lyon" in _results(visit.get("/memory?state=aside"))
    edited = response.url.path
    assert "Lyon" in visit.get(edited)
    visit.send(f"{edited}/undo", cause=f"edit:{edited.removeprefix('/memory/')}", to="s1.0@u0")
    assert "Lyon" in _recall(live, "Where does my sister Clara live?")
    assert "Turin" not in _recall(live, "Where does my sister Clara live?")


def test_a_pinned_memory_is_always_recall(live: LiveServer, visit: Visit) -> None:
    _remember(live, "I am allergic to walnuts.", "My sister Clara lives in Lyon.")
    assert "walnuts" not in _recall(live, "Tell me a joke.")
    visit.send("/memory/s1.0@u0/pin")
    assert "walnuts" in _recall(live, "Tell me a joke.")
    assert "walnuts" in _results(visit.get("/memory?state=pinned"))
    visit.send("/memory/s1.0@u0/unpin")
    assert "walnuts" not in _recall(live, "Tell me a joke.")


@pytest.mark.parametrize("action", ["never", "forget"])
def test_what_is_put_away_is_not_recalled_until_that_is_undone(live: LiveServer, visit: Visit, action: str) -> None:
    _remember(live, "My sister Clara lives in Lyon.")
    page = visit.send(f"/memory/s1.0@u0/{action}").text
    assert "Lyon" not in _recall(live, "Where does my sister Clara live?")
    cause = re.search(r'name="cause" value="(hide:\w+)"', page)
    assert cause
    visit.send("/memory/s1.0@u0/undo", cause=cause[1])
    assert "Lyon" in _recall(live, "Where does my sister Clara live?")


def test_an_erasure_shows_its_receipt_and_leaves_nothing(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.", "I play the cello on Sundays.")
    edited = visit.send("/memory/s1.0@u0/edit", text="My sister Clara lives in Turin.").url.path
    page = visit.send(f"{edited}/erase", sources="on").text
    assert "0 remain" in page
    assert "messages" in page
    assert not re.search(r"<td>(batches|embeddings|turns)<|unit ", page)
    everything = "\n".join(live.runtime.store.export("me"))
    assert "Clara" not in everything
    assert "cello" in everything


def test_what_is_hidden_or_replaced_can_be_erased_at_its_page(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.")
    visit.send("/memory/s1.0@u0/forget")
    page = visit.get("/memory/s1.0@u0")
    assert "Erase for good" in page
    assert "What it should say" not in page
    visit.send("/memory/s1.0@u0/erase", sources="on")
    assert "Clara" not in "\n".join(live.runtime.store.export("me"))


def test_an_error_leads_back_to_where_the_person_was(visit: Visit) -> None:
    address, origin = "/memory/gone", str(visit.http.base_url).rstrip("/")
    for before, link in {
        "": "/memory",
        f"{origin}/memory?q=boat": "/memory?q=boat",
        f"{origin}/memory/gone/erase": "/memory",
        f"{origin}//elsewhere.example": "/memory",
        "http://elsewhere.example/x": "/memory",
    }.items():
        response = visit.http.get(address, headers={"referer": before})
        assert response.status_code == 404
        assert "<h1>Not found</h1>" in response.text
        assert f'href="{link}">Go back</a>' in response.text
    assert "Go back" not in visit.http.get("/nowhere", headers={"accept": "text/html"}).text


def test_a_day_in_the_past_shows_the_memory_of_then(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.")
    live.clock.advance(days=30)
    visit.add("I have a boat.")
    assert "boat" in _results(visit.get("/memory"))
    past = _results(visit.get("/memory?as_of=2026-03-10"))
    assert "boat" not in past
    assert "Clara" in past
    assert "As it was" in past


def test_texts_are_escaped_and_nothing_is_inline(live: LiveServer, visit: Visit) -> None:
    name = visit.add('<script>alert(1)</script> & "quotes"')
    for address in ("/memory", f"/memory/{name}", "/why?q=script", "/memory?q=%3Cb%3E"):
        response = visit.http.get(address)
        assert "<script>alert" not in response.text
        assert "<b>" not in response.text
        policy = response.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert " style=" not in response.text
        assert not re.search(r"<script>|<style|\son\w+=", response.text)


def test_a_form_without_the_token_changes_nothing(live: LiveServer, visit: Visit) -> None:
    name = visit.add("I have a boat.")
    for token in ("", "0" * 64):
        response = visit.http.post(f"/memory/{name}/erase", data={"token": token})
        assert response.status_code == 403
        assert "go back to its page" in response.text
    assert "boat" in visit.get(f"/memory/{name}")


def test_missing_memories_and_pages_are_said_so_in_words(visit: Visit) -> None:
    response = visit.http.get("/memory/none")
    assert response.status_code == 404
    assert "there is no memory 'none'" in unescape(response.text)
    assert 'href="/sessions"' in response.text  # the way on
    assert "page is &#34;0&#34;; use a number of at least 1" in visit.http.get("/memory?page=0").text
    assert visit.http.get("/page/0/nothing.css").status_code == 404
    assert visit.send("/memory/none/explode").status_code == 400
    browser = {"accept": "text/html,*/*"}
    assert 'href="/memory"' in visit.http.get("/nothing", headers=browser).text
    for address, headers in (("/nothing", {}), ("/v1/nothing", browser)):
        assert "there is no route" in visit.http.get(address, headers=headers).json()["error"]["message"]


def test_the_past_is_the_one_that_the_log_replays(live: LiveServer, visit: Visit) -> None:
    _remember(live, "My sister Clara lives in Lyon.", "I play the cello on Sundays.", "I like tea a lot these days.")
    visit.send("/memory/s1.2@u0/never")
    live.clock.advance(days=10)
    visit.send("/memory/s1.0@u0/edit", text="My sister Clara lives in Turin.")
    visit.send("/memory/s1.4@u0/pin")
    store, system = live.runtime.store, live.runtime.settings.system
    present = store.bank("me", system)
    for days in (1, 11):
        moment = START + timedelta(days=days)
        assert store.past_bank("me", system, present, moment) == store.bank("me", system, moment)
