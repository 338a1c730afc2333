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
from localmem.server.page.visitors import Visitors


def install(app: FastAPI, services: Services) -> None:
    """The page's routes, with its `visitors` and `overviews` in the state of the app."""
    app.state.visitors = Visitors(services.auth, services.local_token)
    app.state.overviews = Overviews(services.runtime.store, services.settings.system)
    for module in (rendering, login_routes, chat_routes, memory_routes, session_routes, question_routes):
        app.include_router(module.router)
