"""Adds the page to an app."""

from fastapi import FastAPI

from localmem.server.dependencies import Services
from localmem.server.page import (
    chat_routes,
    login_routes,
    memory_routes,
    question_routes,
    rendering,
    session_routes,
)
from localmem.server.page.overview import Overviews
from localmem.server.page.reply_support import Support
from localmem.server.page.visitors import Visitors
from localmem.server.recent_values import RecentValues


def install(app: FastAPI, services: Services) -> None:
    """The page's routes, with its `visitors`, `overviews` and `supports` in the state of the app."""
    app.state.visitors = Visitors(services.auth, services.local_token)
    app.state.overviews = Overviews(services.runtime.store, services.settings.system)
    app.state.supports = RecentValues[Support]()
    services.sessions.on_erasure.append(app.state.supports.forget)
    for status in (404, 405):
        app.add_exception_handler(status, rendering.answer_unrouted)
    for module in (rendering, login_routes, chat_routes, memory_routes, session_routes, question_routes):
        app.include_router(module.router)
