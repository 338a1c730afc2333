"""The page on which people rate hidden memory systems; see `localmem.evaluation.ratings` for the method.

A rater gives a name, talks to a system that is not named through several sessions, and moves five sliders after each.
The time between two sessions is only pretended: each is dated some days after the one before. For this machine alone;
an episode that the end of the server interrupts keeps the ratings of its sessions and is not continued.
"""

import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_urlsafe

from fastapi import FastAPI, Request
from fastapi.responses import Response

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.ratings import MOST, STATEMENTS, Rating, append_rating, choose_system, read_ratings
from localmem.runtime import Runtime
from localmem.server.api_keys import KeyRing
from localmem.server.auth import Authenticator
from localmem.server.page import rendering
from localmem.server.page.rendering import new_router, redirect, render
from localmem.server.page.visitors import Form, Visitors, cookie_of, get_visitor, visitors_of
from localmem.types import Turn

_MOST_NAME = 60

router = new_router()


@dataclass
class Episode:
    """Sessions of one rater with one system; `turns` are those of the session at hand, the `number`th."""

    rater: str
    system: str
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    number: int = 1
    turns: list[Turn] = field(default_factory=list)
    is_rating: bool = False


@dataclass(frozen=True, slots=True)
class RatingPlan:
    """What is rated: runtimes by system, `sessions` an episode, `gap` between two sessions; and the file of ratings."""

    runtimes: Mapping[str, Runtime]
    file: Path
    sessions: int
    gap: timedelta
    seed: int
    now: Callable[[], datetime]


class RatingManager:
    """The episodes in progress, by the rater's cookie; for many threads."""

    def __init__(self, plan: RatingPlan) -> None:
        self.plan = plan
        self._episodes: dict[str, Episode] = {}
        self._lock = threading.Lock()

    def find(self, cookie: str) -> Episode | None:
        """The episode in progress of a rater."""
        return self._episodes.get(cookie)

    def begin(self, cookie: str, rater: str) -> None:
        """A new episode with a system chosen at random."""
        with self._lock:
            ratings = read_ratings(self.plan.file) if self.plan.file.exists() else []
            system = choose_system(ratings, rater, list(self.plan.runtimes), self.plan.seed)
            self._episodes[cookie] = Episode(rater, system)

    def say(self, episode: Episode, text: str) -> None:
        """A message and its reply, at the pretended time of the session."""
        moment = self.plan.now() + (episode.number - 1) * self.plan.gap
        agent = self.plan.runtimes[episode.system].agent(episode.name)
        reply = agent.chat(text, moment)
        episode.turns = [*agent.sessions[-1].turns] if agent.sessions else [reply.turn]

    def rate(self, cookie: str, episode: Episode, scores: Mapping[str, float]) -> None:
        """Write the scores, remember the session, and go on to the next session or episode."""
        rating = Rating(episode.rater, episode.name, episode.system, episode.number, dict(scores))
        with self._lock:
            append_rating(self.plan.file, rating)
        self.plan.runtimes[episode.system].agent(episode.name).end_session()
        if episode.number == self.plan.sessions:
            self.begin(cookie, episode.rater)
        else:
            self._episodes[cookie] = Episode(episode.rater, episode.system, episode.name, episode.number + 1)


def create_rating_app(plan: RatingPlan, settings: Settings) -> FastAPI:
    """The app of a plan whose runtimes the caller opens and closes."""
    app = FastAPI(title="localmem ratings", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.visitors = new_visitors(settings, plan.now)
    app.state.manager = RatingManager(plan)
    for part in (rendering.router, router):
        app.include_router(part)
    return app


def new_visitors(settings: Settings, now: Callable[[], datetime]) -> Visitors:
    """The visitors of a page for this machine alone, without keys."""
    token = token_urlsafe(32)
    return Visitors(Authenticator(settings, KeyRing({}), token, now), token)


def rater_of(form: Mapping[str, str]) -> str:
    """The name in a form. Raises BadInput for none."""
    rater = form.get("rater", "").strip()[:_MOST_NAME]
    if not rater:
        raise BadInput("the name is empty; give a name, the same at each visit")
    return rater


def scores_of(form: Mapping[str, str]) -> dict[str, float]:
    """The scores in a form, by statement. Raises BadInput for one that is missing."""
    try:
        return {name: float(form[name]) for name in STATEMENTS}
    except (KeyError, ValueError) as error:
        raise BadInput("a score is missing or no number; give all five") from error


def _manager(request: Request) -> RatingManager:
    manager: RatingManager = request.app.state.manager
    return manager


def _episode(request: Request) -> Episode:
    episode = _manager(request).find(cookie_of(request))
    if episode is None:
        raise BadInput("there is no conversation to rate here; begin at the start page")
    return episode


@router.get("/")
async def show(request: Request) -> Response:
    """The form for a name, the conversation, or the sliders."""
    await get_visitor(request)  # refuses what is not of this machine
    manager = _manager(request)
    return render(
        "rating.html",
        None,
        token=visitors_of(request).form_token(request),
        episode=manager.find(cookie_of(request)),
        sessions=manager.plan.sessions,
        days=manager.plan.gap.days,
        statements=STATEMENTS,
        most=MOST,
    )


@router.post("/start")
def start(request: Request, form: Form) -> Response:
    """Begin under a name."""
    _manager(request).begin(cookie_of(request), rater_of(form))
    return redirect("/")


@router.post("/say")
def say(request: Request, form: Form) -> Response:
    """Say something to the hidden system."""
    if text := form.get("text", "").strip():
        _manager(request).say(_episode(request), text)
    return redirect("/#text")


@router.post("/end")
def end(request: Request, form: Form) -> Response:  # noqa: ARG001  # the form's token is checked
    """Go on to the sliders."""
    episode = _episode(request)
    if not episode.turns:
        raise BadInput("nothing was said in this session yet; talk a little first")
    episode.is_rating = True
    return redirect("/")


@router.post("/rate")
def rate(request: Request, form: Form) -> Response:
    """Write the scores. Raises BadInput for a session that is not over, or a score that is missing."""
    episode = _episode(request)
    if not episode.is_rating:
        raise BadInput("this session is not over; end it before you rate it")
    _manager(request).rate(cookie_of(request), episode, scores_of(form))
    return redirect("/")
