"""How the page's responses are made: templates, security headers, errors as pages, files.

The Content-Security-Policy allows no inline script and no inline style; templates escape every value.
"""

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException

from localmem.errors import LocalmemError, NotFound
from localmem.server.errors import ApiError, allowed_methods, describe_unreadable, respond_http, to_api_error
from localmem.server.page.visitors import COOKIE, LoginRequired, Visitor, visitors_of
from localmem.text.dialogue import day

_FOLDER = Path(__file__).parent
_COOKIE_DAYS = 30
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_API = ("/v1/", "/api/", "/mem0/", "/mcp")
_FORMS = ("/edit", "/pin", "/unpin", "/never", "/forget", "/release", "/undo", "/erase", "/end")  # ends of addresses
_LISTS = ("/memory", "/sessions")
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

log = logging.getLogger(__name__)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose errors are pages, with the headers and the cookie of the page."""

    def get_route_handler(self) -> Handler:
        """The framework's handler, in this one."""
        handle = super().get_route_handler()

        async def respond(request: Request) -> Response:
            try:
                response = await handle(request)
            except LoginRequired:
                response = _ask_to_log_in(request)
            except NotFound as error:  # or an address of forms: a tab that is opened again asks for it as for a page
                is_form = request.method == "GET" and request.url.path.endswith(_FORMS)
                problem = _wrong_method(request, "POST") if is_form else to_api_error(error)
                response = _error_page(request, problem)
            except (ApiError, LocalmemError) as error:
                response = _error_page(request, to_api_error(error))
            except RequestValidationError as error:
                response = _error_page(request, describe_unreadable(error))
            except HTTPException as error:  # a body that is too large, slow or deep
                response = _error_page(request, ApiError(error.status_code, str(error.detail)))
            except Exception as error:  # a person gets a page of it; the server's own answer is the API's JSON
                log.exception("a page failed")
                response = _error_page(request, to_api_error(error))
            return _complete(request, response)

        return respond


def new_router() -> APIRouter:
    """A router of pages, which the API's schema leaves out."""
    return APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=HTMLResponse)


def render(template: str, visitor: Visitor | None, *, status: int = 200, **values: object) -> HTMLResponse:
    """A page made of a template; `visitor` is None before a log-in."""
    return HTMLResponse(render_text(template, visitor=visitor, **values), status_code=status)


def render_text(template: str, **values: object) -> str:
    """A template, filled in; every value is escaped."""
    return _templates().get_template(template).render(values)


def redirect(address: str) -> Response:
    """Where the browser goes on after a form."""
    return RedirectResponse(address, status_code=303)


def set_cookie(request: Request, response: Response, cookie: str) -> None:
    """Sent back by this page alone, and read by no script."""
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=_COOKIE_DAYS * 86400,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def memory_address(unit_id: str) -> str:
    """The address of one memory's page."""
    return f"/memory/{quote(unit_id, safe='@:~.')}"


def session_address(session_id: str) -> str:
    """The address of one session's page."""
    return f"/sessions/{quote(session_id, safe=':~.')}"


def _clock(moment: datetime) -> str:
    return f"{day(moment)}, {moment:%H:%M}"


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"  # memories, but days
    return f"{number:,} {noun if number == 1 else plural}"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"day": day, "clock": _clock, "count": _count}
    templates.globals |= {"memory_address": memory_address, "session_address": session_address, "asset": _asset}
    return templates


@cache
def _asset(name: str) -> str:
    """The address of a file of the page, which changes with its content."""
    return f"/page/{sha256((_FOLDER / 'static' / name).read_bytes()).hexdigest()[:8]}/{name}"


def _complete(request: Request, response: Response) -> Response:
    """The response with the headers and the cookie of the page."""
    response.headers.update({name: value for name, value in _HEADERS.items() if name not in response.headers})
    if cookie := getattr(request.state, "new_cookie", None):
        set_cookie(request, response, cookie)
    return response


def _ask_to_log_in(request: Request) -> Response:
    """To the log-in; a script would get that page in place of its answer, so htmx is told to go there."""
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"hx-redirect": "/login"})
    if request.url.path == "/chat/reply":
        return _error_page(request, ApiError(401, "You are logged out; log in again in another tab, then send again."))
    return RedirectResponse("/login", status_code=303)


def _error_page(request: Request, error: ApiError) -> HTMLResponse:
    visitor, back = getattr(request.state, "visitor", None), _address_before(request)
    page = render("error.html", visitor, status=error.status, error=error, back=back)
    page.headers.update(error.headers or {})
    return page


def _address_before(request: Request) -> str:
    """The page that led here, else the list that this address is below; "" where there is none, or only the chat."""
    before, here = urlsplit(request.headers.get("referer", "")), request.url
    is_page = before.netloc == here.netloc and not before.path.endswith(_FORMS) and not before.path.startswith("//")
    if is_page and before.path not in ("/", here.path):
        return f"{before.path}?{before.query}" if before.query else before.path
    section = f"/{here.path.split('/')[1]}"
    return section if section in _LISTS and section != here.path else ""


async def answer_unrouted(request: Request, error: Exception) -> Response:
    """An address or a method that there is not: a page for a browser, else the API's answer."""
    wants_page = "text/html" in request.headers.get("accept", "")
    if not wants_page or request.url.path.startswith(_API) or not isinstance(error, HTTPException):
        return await respond_http(request, error)
    with suppress(LoginRequired, ApiError):
        request.state.visitor = visitors_of(request).find(request)
    if error.status_code == 405:
        problem = _wrong_method(request, allowed_methods(request))
    else:
        problem = ApiError(error.status_code, f"There is no page {request.url.path!r} here.")
    return _complete(request, _error_page(request, problem))


def _wrong_method(request: Request, allowed: str) -> ApiError:
    message = f"{request.url.path!r} takes {allowed}, not {request.method}; go back to the page that leads there."
    return ApiError(405, message, headers={"Allow": allowed})


router = new_router()


@router.get("/page/{version}/{name}")
def static_file(version: str, name: str) -> Response:  # noqa: ARG001  # it only makes the address new
    """A script or a style sheet of the page. Raises NotFound."""
    file = _FOLDER / "static" / name
    if file.suffix not in _KINDS or file.parent != _FOLDER / "static" or not file.is_file():
        raise NotFound(f"no file {name!r} here")
    return FileResponse(file, media_type=_KINDS[file.suffix], headers={"cache-control": "max-age=604800"})
