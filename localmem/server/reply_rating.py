"""The page on which people score replies of a run whose systems are hidden, as in SeCom (appendix A.10).

A rater sees what the conversation says about a question, the question and one reply, and scores it by five statements
from 0 to 3; SeCom names no range, and the means of its Table 10 fall into this one. Each rater gets the replies in an
order of their own, those of all systems mixed, and goes on where they stopped. For this machine alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random

from fastapi import FastAPI, Request
from fastapi.responses import Response

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.answers import Answer
from localmem.evaluation.ratings import STATEMENTS, Rating, append_rating, read_ratings
from localmem.server.page import rendering
from localmem.server.page.rendering import new_router, redirect, render
from localmem.server.page.visitors import Form, cookie_of, get_visitor, visitors_of
from localmem.server.rating_page import new_visitors, rater_of, scores_of

MOST = 3  # the highest score

router = new_router()


@dataclass
class ReplyRatingManager:
    """The replies to score, the file of scores, and who is scoring, by cookie."""

    answers: Sequence[Answer]
    file: Path
    raters: dict[str, str] = field(default_factory=dict)

    def remaining(self, rater: str) -> list[Answer]:
        """What a rater has not scored yet, in their order."""
        ratings = read_ratings(self.file) if self.file.exists() else []
        scored = {(rating.episode, rating.system) for rating in ratings if rating.rater == rater}
        own = list(self.answers)
        Random(rater).shuffle(own)  # noqa: S311  # an order, no secret
        return [answer for answer in own if (case_of(answer), answer.work.system) not in scored]


def case_of(answer: Answer) -> str:
    """The name of a question, the same for all systems."""
    return f"{answer.work.dataset}/{answer.probe}"


def create_reply_rating_app(manager: ReplyRatingManager, settings: Settings, now: Callable[[], datetime]) -> FastAPI:
    """The app on which people rate the replies that a manager holds."""
    app = FastAPI(title="localmem replies", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.visitors = new_visitors(settings, now)
    app.state.manager = manager
    for part in (rendering.router, router):
        app.include_router(part)
    return app


def _manager(request: Request) -> ReplyRatingManager:
    manager: ReplyRatingManager = request.app.state.manager
    return manager


@router.get("/")
async def show(request: Request) -> Response:
    """The form for a name, the next reply with its scales, or the end."""
    await get_visitor(request)  # refuses what is not of this machine
    manager = _manager(request)
    rater = manager.raters.get(cookie_of(request))
    remaining = manager.remaining(rater) if rater else []
    return render(
        "reply_rating.html",
        None,
        token=visitors_of(request).form_token(request),
        rater=rater,
        answer=remaining[0] if remaining else None,
        number=len(manager.answers) - len(remaining) + 1,
        count=len(manager.answers),
        statements=STATEMENTS,
        most=MOST,
    )


@router.post("/start")
def start(request: Request, form: Form) -> Response:
    """Begin, or go on, under a name."""
    _manager(request).raters[cookie_of(request)] = rater_of(form)
    return redirect("/")


@router.post("/rate")
def rate(request: Request, form: Form) -> Response:
    """Write the scores of the reply that was shown. Raises BadInput without a name or a score."""
    manager = _manager(request)
    rater = manager.raters.get(cookie_of(request))
    remaining = manager.remaining(rater) if rater else []
    if not rater or not remaining or form.get("case") != case_of(remaining[0]):
        raise BadInput("there is no reply to rate here; begin at the start page")
    answer = remaining[0]
    rating = Rating(rater, case_of(answer), answer.work.system, 1, scores_of(form))
    append_rating(manager.file, rating, MOST)
    return redirect("/")
