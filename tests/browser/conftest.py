"""A real server on the starter's weights, with a month of invented talks, and a real browser to look at it.

scripts/setup_browser installs the browser; without it these tests are skipped.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from localmem.config import load_settings
from localmem.runtime import Runtime
from localmem.types import Session, Turn
from tests.server.conftest import Clock, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".browser"
NOW = datetime(2026, 3, 28, 10, 0, tzinfo=UTC)
TALKS = {
    "2026-01-12": (
        ("I moved to Lisbon last week, to a flat near the river.", "Welcome to Lisbon! How do you like the flat?"),
        ("It is bright, but the kitchen is tiny. My sister Clara carried the boxes.", "Good that she could help."),
    ),
    "2026-02-03": (
        ("I started as a sound engineer at a small theatre called Teatro Azul.", "Congratulations on the new job!"),
        ("My dog Bruno comes along to rehearsals, nobody minds.", "Bruno sounds like a good colleague."),
    ),
    "2026-02-20": (
        ("I am allergic to walnuts, so I read every label.", "I will leave walnuts out of any recipe."),
        ("Clara's birthday is on 14 May. I want to give her a concert ticket.", "A concert is a lovely present."),
    ),
    "2026-03-09": (
        ("I adopted a second dog, a grey puppy named Nuvem.", "Two dogs now! How does Bruno take it?"),
        ("I run along the river on Tuesday mornings with both of them.", "That will keep all three of you fit."),
    ),
    "2026-03-21": (
        ("I moved again: I live in Porto now, the theatre has a second house there.", "Is the new flat larger?"),
        ("Yes, the kitchen is large at last. My rent is 780 euros.", "That is good news."),
    ),
}


@dataclass
class Site:
    """The page in a browser. `problems` are errors of its scripts, refused content, and requests to elsewhere."""

    url: str
    runtime: Runtime
    browser: "Browser"
    problems: list[str] = field(default_factory=list)

    def open(self, address: str = "/", *, width: int = 1200, height: int = 760, dark: bool = False) -> "Page":
        """A new window of a person who was never here."""
        size = {"width": width, "height": height}
        context = self.browser.new_context(viewport=size, color_scheme="dark" if dark else "light")
        page = self._watch(context)
        page.goto(self.url + address)
        return page

    def _watch(self, context: "BrowserContext") -> "Page":
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        page.on("console", lambda line: self._note(line.type, line.text))
        page.on("request", lambda request: self._check(request.url))
        return page

    def _note(self, kind: str, text: str) -> None:
        if kind == "error":
            self.problems.append(f"console: {text}")

    def _check(self, address: str) -> None:
        if not address.startswith((self.url, "data:")):
            self.problems.append(f"request: {address}")


def _talks() -> list[Session]:
    sessions = []
    for number, (day, talk) in enumerate(TALKS.items(), start=1):
        start = datetime.fromisoformat(f"{day}T18:30:00+00:00")
        texts = [text for exchange in talk for text in exchange]
        turns = (
            Turn(
                f"talk{number}.{place}",
                "assistant" if place % 2 else "user",
                "Assistant" if place % 2 else "User",
                text,
                start + timedelta(minutes=place),
            )
            for place, text in enumerate(texts)
        )
        sessions.append(Session(f"talk{number}", tuple(turns)))
    return sessions


@pytest.fixture(scope="module")  # its event loop must not run beside other tests
def browser(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Browser]":
    """Debian's Chromium, driven by Playwright."""
    chromium = shutil.which("chromium")
    if chromium is None or not (TOOLS / "playwright").is_dir():
        pytest.skip("no browser here; scripts/setup_browser installs it")
    sys.path.append(str(TOOLS))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root
        environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path_factory.mktemp("chromium"))}
        browser = playwright.chromium.launch(executable_path=chromium, args=sandbox, env=environment)
        yield browser
        browser.close()


@pytest.fixture
def site(
    tmp_path: Path,
    browser: "Browser",
    monkeypatch: pytest.MonkeyPatch,
    starter_llm_dir: Path,
    starter_encoder_dir: Path,
) -> Iterator[Site]:
    """The page over a memory of five talks; nothing may go wrong in it unseen."""
    monkeypatch.delenv("LOCALMEM_WRITE_SNAPSHOTS", raising=False)  # it is no setting
    settings = load_settings(
        None, {"data": tmp_path, "server": {"port": 0}, "llm": {"backend": "transformers"}, "chat": {"max_tokens": 40}}
    )
    with Runtime(settings) as runtime:
        runtime.agent("me").writer.read(_talks())
        with running(runtime, Clock(NOW)) as (server, url):
            assert server.services.warm.wait(240)
            site = Site(url, runtime, browser)
            yield site
            for context in list(browser.contexts):
                context.close()
    assert site.problems == []
