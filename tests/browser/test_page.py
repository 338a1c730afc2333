"""A person's way through the page, with a real browser, the real backbone and the real encoder."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import ROOT, TOOLS, Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

WRITES = bool(os.environ.get("LOCALMEM_WRITE_SNAPSHOTS"))
VIEWS = (
    "/",
    "/memory",
    "/memory/talk5.0@u0",
    "/sessions",
    "/sessions/talk1",
    "/why?q=Where+do+I+live%3F",
    "/links",
    "/notes",
    "/refused",
)


def _say(page: "Page", text: str) -> str:
    """Sends a message and returns the reply with what stands beside it."""
    page.fill("#message", text)
    page.keyboard.press("Enter")
    page.wait_for_selector("#say:not([data-busy])")
    return str(page.locator("#dialogue .turn.assistant").last.inner_text())


def _find(page: "Page", words: str) -> None:
    """Searches as a person types."""
    page.click("nav >> text=Memory")
    page.type("#q", words)
    page.wait_for_url(lambda address: f"q={words}" in str(address))


def test_a_person_finds_corrects_and_erases_a_memory_by_the_page_alone(site: Site) -> None:
    page = site.open()
    assert "Porto" in _say(page, "Where do I live now?")
    _find(page, "Porto")
    assert page.locator("#results .item").count() == 1
    page.click("#results >> text=Porto")
    page.click("summary >> text=Edit")
    page.fill("#text", "I moved again: I live in Braga now.")
    page.click("button >> text=Save")
    page.wait_for_selector("text=Saved.")
    page.click("nav >> text=Chat")
    page.click("text=End and remember")
    page.wait_for_selector("text=That chat is over")
    assert page.locator("text=End and remember").is_hidden()
    reply = _say(page, "Where do I live now?")
    assert "Braga" in reply
    assert "Porto" not in reply
    _find(page, "Braga")
    page.click("#results >> text=Braga")
    page.click("summary >> text=Erase")
    page.click("button >> text=Erase for good")
    page.wait_for_selector("text=0 remain")
    page.click("text=Back to the list")
    for place in ("Braga", "Porto"):
        assert page.locator(f"#results >> text={place}").count() == 0


def test_a_search_is_not_asked_again_when_the_field_is_left(site: Site) -> None:
    # A second answer would replace the results, and the address, under the hand that clicks on one.
    page = site.open("/memory")
    _find(page, "Porto")
    page.wait_for_selector("#results .item >> nth=0")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.locator("#q").blur()
    page.wait_for_timeout(500)
    assert requests == []
    page.click("summary >> text=Filters")
    page.select_option("#state", "all")
    page.wait_for_url(lambda address: "state=all" in str(address))


def test_a_slow_search_gives_way_to_what_was_typed_since(site: Site) -> None:
    page = site.open("/memory")
    page.route("**/memory?*", lambda route: (page.wait_for_timeout(2000), route.continue_()))
    for letters in ("Li", "sb", "on"):
        page.type("#q", letters)
        page.wait_for_timeout(400)
    page.wait_for_url(lambda address: "q=Lisbon" in str(address))


def test_what_is_put_away_comes_back_with_undo(site: Site) -> None:
    page = site.open("/memory/talk3.0@u0")
    page.click('button >> text="Hide"')
    page.wait_for_selector("text=not recalled again")
    assert "Hidden" in page.locator(":focus").inner_text()
    page.click(".done >> text=Undo")
    page.wait_for_selector("text=Taken back.")
    page.click("button >> text=/^Pin$/")
    page.wait_for_selector("text=every recall shows it")
    page.click("nav >> text=Chat")
    _say(page, "Where do I live now?")
    page.click("#dialogue >> text=/\\d+ more/")
    assert "walnuts" in page.locator(".evidence").inner_text()


def test_a_second_click_sends_no_form_again(site: Site) -> None:
    page = site.open("/memory/talk3.0@u0")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    page.click("summary >> text=Erase")
    place = page.get_by_text("Erase for good").bounding_box()
    assert place
    for _ in range(2):
        page.mouse.click(place["x"] + 9, place["y"] + 9)
        page.wait_for_timeout(15)
    page.wait_for_selector("text=0 remain")
    assert sent.count("POST") == 1


def test_incognito_stores_nothing(site: Site) -> None:
    page = site.open()
    page.select_option("#mode", "off")
    reply = _say(page, "I have a secret boat.")
    assert "No memory was recalled" in reply
    page.reload()
    assert page.locator("#dialogue .turn").count() == 0
    page.click("nav >> text=Sessions")
    assert page.locator(".list li").count() == 5
    assert "I moved to Lisbon last week" in page.locator(".list li").last.inner_text()
    assert "boat" not in "\n".join(site.runtime.store.export("me"))


def test_a_message_that_is_not_answered_stays_in_the_field(site: Site) -> None:
    page = site.open()
    page.route("**/chat/reply", lambda route: route.abort())
    assert "localmem serve" in _say(page, "I have a boat.")
    assert page.input_value("#message") == "I have a boat."
    assert page.locator("#dialogue .turn.user").count() == 0
    page.unroute("**/chat/reply")
    for status, body, words in (
        (503, "<h1>Service Unavailable</h1>", "The server is busy"),
        (429, '{"error": {"message": "wait 3 s"}}', "wait 3 s"),
    ):
        page.route("**/chat/reply", lambda route, *, status=status, body=body: route.fulfill(status=status, body=body))
        page.keyboard.press("Enter")
        page.wait_for_selector(f"#dialogue .problem >> text={words}")
        page.wait_for_selector("#say:not([data-busy])")
        assert page.input_value("#message") == "I have a boat."
        page.unroute("**/chat/reply")
    page.evaluate("document.getElementById('say').dataset.token = 'of the start before'")
    _say(page, "I have a boat.")
    assert page.locator("#dialogue .turn").count() == 2
    assert page.locator("#dialogue .problem").count() == 0
    site.problems.clear()  # the browser's own lines about the two requests that failed


def test_a_reply_is_stopped_and_asked_for_again(site: Site) -> None:
    page = site.open()
    page.fill("#message", "Tell me a long story about the sea.")
    page.keyboard.press("Enter")
    page.wait_for_selector("#dialogue .turn.assistant .words:not(:empty)")
    assert page.locator("#dialogue[aria-busy=true]").count() == 1
    page.click("#stop")
    page.wait_for_selector("#dialogue >> text=This reply was broken off.")
    assert page.locator("#dialogue[aria-busy=true]").count() == 0
    page.route("**/chat/reply", lambda route: route.abort())
    assert "localmem serve" in _say(page, "And one about a boat.")
    assert page.locator("#again").is_visible()  # for the reply before
    page.unroute("**/chat/reply")
    site.problems.clear()  # the browser's own line about the request that failed
    page.click("#again")
    page.wait_for_selector("#say:not([data-busy])")
    assert page.locator("#dialogue .turn").count() == 2
    page.reload()
    assert page.locator("#dialogue .turn").count() == 2
    assert page.locator("#dialogue .broken-off").count() == 0
    assert page.locator("#dialogue .evidence").count() == 1
    height = page.evaluate("document.getElementById('message').offsetHeight")
    page.fill("#message", "word " * 200)
    assert page.evaluate("document.getElementById('message').offsetHeight") > 3 * height


def test_a_message_that_is_stopped_before_its_reply_begins_goes_back_into_the_field(site: Site) -> None:
    page = site.open()
    page.select_option("#mode", "off")
    page.route("**/chat/reply", lambda route: None)  # a server that is busy
    page.fill("#message", "I have a secret boat.")
    page.keyboard.press("Enter")
    page.click("#stop")
    page.wait_for_selector("#say:not([data-busy])")
    assert page.input_value("#message") == "I have a secret boat."
    assert page.locator("#dialogue .turn").count() == 0
    assert page.locator("#welcome").is_visible()
    assert page.locator("#again").is_hidden()


def test_the_choice_of_incognito_that_a_browser_restores_is_seen(site: Site) -> None:
    page = site.open()
    page.context.add_init_script(
        "document.addEventListener('DOMContentLoaded', () => (document.getElementById('mode').value = 'off'), true)"
    )
    page.reload()
    assert page.evaluate("document.body.classList.contains('incognito')")


def test_the_slider_shows_the_memory_of_a_day_in_the_past(site: Site) -> None:
    page = site.open("/memory")
    page.click("summary >> text=Filters")
    page.focus("#day")
    page.keyboard.press("Home")
    page.wait_for_selector("text=As it was at the end of 12 January 2026")
    assert page.locator("#results >> text=Lisbon").count() > 0
    assert page.locator("#results >> text=Nuvem").count() == 0


def test_the_page_is_used_by_keyboard_alone(site: Site) -> None:
    page = site.open("/memory")
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.locator(":focus").get_attribute("id") == "main"
    page.keyboard.press("/")
    page.keyboard.type("Nuvem")
    page.wait_for_url(lambda address: "q=Nuvem" in str(address))
    page.wait_for_selector("#results .item")
    for _ in range(4):
        page.keyboard.press("Tab")
    while page.locator("#results a:focus").count() == 0:
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1.statement >> text=Nuvem")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_fault_in_any_view(site: Site, dark: bool) -> None:
    script = (TOOLS / "axe.min.js").read_text(encoding="utf-8")
    faults = []
    for width in (1200, 390):
        page = site.open("/", width=width, dark=dark)
        _say(page, "What are my dogs called?")
        for address in (*VIEWS, "incognito"):
            if address == "incognito":
                page.goto(site.url)
                page.select_option("#mode", "off")
            elif address != "/":
                page.goto(site.url + address)
            page.evaluate(script)
            violations = page.evaluate("axe.run().then(result => result.violations)")
            faults += [
                f"{address} at {width}: {fault['id']}: {fault['nodes'][0]['html'][:120]}"
                for fault in violations
                if fault["impact"] in ("serious", "critical")
            ]
    assert faults == []


def test_no_view_is_wider_than_a_phone(site: Site) -> None:
    page = site.open("/", width=390, height=780)
    for address in VIEWS:
        page.goto(site.url + address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
        page.evaluate("document.documentElement.style.fontSize = '200%'")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, f"{address} in letters twice as large"


def test_pictures_of_four_views(site: Site, tmp_path: Path) -> None:
    """LOCALMEM_WRITE_SNAPSHOTS=1 writes them to .github, where the documents show them."""
    folder = ROOT / ".github" if WRITES else tmp_path
    page = site.open(width=1080, height=680)
    _say(page, "Where do I live now?")
    page.screenshot(path=folder / "page-chat.png")
    for name, address, dark in (
        ("memory", "/memory/talk5.0@u0", False),
        ("memories", "/memory", True),
        ("why", "/why?q=Where+do+I+live+now%3F", False),
    ):
        view = site.open(address, width=1080, height=680, dark=dark)
        view.screenshot(path=folder / f"page-{name}.png")
    assert all(5_000 < (folder / f"page-{name}.png").stat().st_size < 200_000 for name in ("chat", "memory", "why"))
