"""The rating pages in a real browser: a rater's way through each, with axe-core at every step."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn
from fastapi import FastAPI

from localmem.config import load_settings
from localmem.evaluation.answers import Answer, Work
from localmem.evaluation.ratings import STATEMENTS, read_ratings
from localmem.runtime import Runtime
from localmem.server.local_access import open_listener
from localmem.server.rating_page import RatingPlan, create_rating_app
from localmem.server.reply_rating import ReplyRatingManager, create_reply_rating_app
from tests.browser.conftest import TOOLS
from tests.fakes import START
from tests.server.conftest import Backbone, CountingEncoder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


@contextmanager
def _visit(browser: "Browser", app: FastAPI) -> Iterator["Page"]:
    """The start of the app's page, at a phone's width."""
    with open_listener("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        context = browser.new_context(viewport={"width": 390, "height": 780})
        try:
            page = context.new_page()
            page.set_default_timeout(60_000)
            page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}")
            yield page
        finally:
            context.close()
            server.should_exit = True
            thread.join()


def _check(page: "Page") -> None:
    page.evaluate((TOOLS / "axe.min.js").read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run().then(result => result.violations)")
    assert [fault["id"] for fault in violations if fault["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def _begin(page: "Page") -> None:
    _check(page)
    page.fill("#rater", "Ann")
    page.click("button >> text=Begin")


def test_a_rater_talks_and_moves_sliders(browser: "Browser", tmp_path: Path) -> None:
    settings = load_settings(None, {"system": "none", "data": tmp_path / "none"})
    with ExitStack() as stack:
        runtime = stack.enter_context(Runtime(settings, llm=Backbone(), encoder=CountingEncoder()))
        plan = RatingPlan({"none": runtime}, tmp_path / "ratings.jsonl", 1, timedelta(days=10), 0, lambda: START)
        page = stack.enter_context(_visit(browser, create_rating_app(plan, settings)))
        _begin(page)
        page.fill("#text", "My sister Clara lives in Lyon.")
        page.click("button >> text=Send")
        page.wait_for_selector("text=You said:")
        _check(page)
        page.click("text=End this session")
        for number, name in enumerate(STATEMENTS):
            page.focus(f"#{name}")
            for _ in range(number):
                page.keyboard.press("ArrowRight")
        _check(page)
        page.click("text=Save and go on")
        page.wait_for_selector("h1")
        (rating,) = read_ratings(plan.file)
    assert list(rating.scores.values()) == [50, 51, 52, 53, 54]


def test_a_rater_scores_the_replies_of_a_run(browser: "Browser", tmp_path: Path) -> None:
    work = Work("secom", "locomo", "conv-1")
    past = "Ana: I live in Lyon."
    answer = Answer(work, "q1", "question", "single-hop", "s1", "Where?", ("Lyon",), past=past, text="In Lyon.")
    manager = ReplyRatingManager([answer], tmp_path / "ratings.jsonl")
    app = create_reply_rating_app(manager, load_settings(None, {"data": tmp_path}), lambda: START)
    with _visit(browser, app) as page:
        _begin(page)
        _check(page)
        for name in STATEMENTS:
            page.select_option(f"#{name}", "2")
        page.click("text=Save and go on")
        page.wait_for_selector("text=All replies are scored")
        _check(page)
    (rating,) = read_ratings(manager.file)
    assert set(rating.scores.values()) == {2}
