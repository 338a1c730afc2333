"""Turn errors into responses: OpenAI's error shape, one line, the right status. No traceback leaves the server."""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from localmem.errors import BadInput, BadReply, Conflict, LLMUnavailable, LocalmemError, NotFound

log = logging.getLogger(__name__)

_STATUS: Sequence[tuple[type[LocalmemError], int, str]] = (
    (BadInput, 400, "bad_input"),
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (LLMUnavailable, 503, "llm_unavailable"),
)

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


# What pydantic's kinds of problems say of a value: what it may be.
_ALLOWED = {
    "string_type": "a string",
    "string_too_short": "a string of {min_length} or more characters",
    "string_too_long": "a string of at most {max_length} characters",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "greater_than_equal": "a number of at least {ge}",
    "greater_than": "a number above {gt}",
    "less_than_equal": "a number of at most {le}",
    "less_than": "a number below {lt}",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "literal_error": "{expected}",
    "list_type": "a list",
    "too_short": "a list of {min_length} or more entries",
    "too_long": "a list of at most {max_length} entries",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "an object"),
    "moment": "a date or a time such as 2026-03-02 or 2026-03-02T18:05",
    "none_required": "null",
}
_UNION_TAG = re.compile(r"str|int|float|bool|dict|list|constrained-.*|function-.*|.*\[.*|[A-Z]\w*")
_SHOWN = 40  # characters of a wrong value
_LONGEST_PATH = 100  # characters of a path that is unknown


class ApiError(Exception):
    """A refused request. `param` names the field at fault, `code` is for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    def body(self) -> dict[str, object]:
        """The error as OpenAI's API writes it."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "authentication_error" if self.status == 401 else kind
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def anthropic_body(self) -> dict[str, object]:
        """The error as Anthropic's API writes it."""
        kind = _ANTHROPIC_TYPES.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": self.message}}

    def body_for(self, path: str) -> dict[str, object]:
        """The error in the form of the protocol that the path belongs to."""
        if path.startswith("/v1/messages"):
            return self.anthropic_body()
        return {"error": self.message} if path.startswith("/api/") else self.body()


def to_api_error(error: Exception) -> ApiError:
    """The error as a client sees it. Details of an unexpected error go to the log only, which the caller writes."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BadReply):  # the same request would likely fail again: clients do not repeat a 422
        message = "the model's reply is not in the format that was asked for; ask in other words, or for a simpler one"
        return ApiError(422, message, code="bad_reply")
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return ApiError(status, str(error), code=code)
    if isinstance(error, LocalmemError):
        return ApiError(500, str(error), code="failed")
    return ApiError(500, "internal error; see the log of the server", code="internal_error")


@contextmanager
def describe_missing(what: str, cure: str) -> Iterator[None]:
    """Says what the store does not find in the words of clients. Raises NotFound."""
    try:
        yield
    except NotFound as error:
        raise NotFound(f"no {what}; {cure}") from error


def describe_invalid(problems: Sequence[Any]) -> ApiError:
    """The first problem that pydantic has with a request: the field, its value, and what it may be."""
    paths = [_path_of(problem) for problem in problems]
    within = [index for index, path in enumerate(paths) if path[: len(paths[0])] == paths[0]]
    worst = max(within, key=lambda index: len(paths[index]))  # of the forms that a value may have, the one it is near
    first, param = problems[worst], ".".join(paths[worst]) or "body"
    field = "the body" if param == "body" else param
    if first["type"] == "missing":
        return ApiError(400, f"{field} is missing; add it", param=param, code="missing")
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{field} is no field of this request; remove it", param=param, code="extra_forbidden")
    same = [problem for problem, path in zip(problems, paths, strict=True) if path == paths[worst]]
    allowed = [_ALLOWED[each["type"]].format(**each.get("ctx", {})) for each in same if each["type"] in _ALLOWED]
    allowed = [{"True": "true", "False": "false"}.get(each, each) for each in allowed]  # as JSON has them
    cure = f"is {_show(first['input'])}; use {' or '.join(dict.fromkeys(allowed))}"
    message = f"{field} {cure}" if first["type"] in _ALLOWED else f"{field}: {first['msg']}"
    return ApiError(400, message, param=param, code=str(first["type"]))


def describe_unreadable(error: RequestValidationError) -> ApiError:
    """What is wrong with a request that the framework could not read."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {first.get('ctx', {}).get('error', 'it is cut')}")
    if isinstance(first["input"], bytes):
        message = "the body is not sent as JSON; add the header `content-type: application/json`"
        return ApiError(400, message, param="body", code="not_json")
    return describe_invalid([{**each, "loc": each["loc"][1:]} for each in error.errors()])


def _show(value: object) -> str:
    """A value as JSON, cut, and without the halves of characters that no response can hold."""
    text = json.dumps(value, ensure_ascii=False, default=str)[: _SHOWN + 1]
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return text.encode(errors="backslashreplace").decode()


def _path_of(problem: Mapping[str, Any]) -> list[str]:
    """The names and numbers that lead to a value, without those of the forms that it may have."""
    return [str(part) for part in problem["loc"] if not _UNION_TAG.fullmatch(str(part))]


def install(app: FastAPI) -> None:
    """Answer every error of the app in OpenAI's shape."""
    app.add_exception_handler(RequestValidationError, _respond_invalid)
    app.add_exception_handler(HTTPException, respond_http)
    for kind in (ApiError, LocalmemError, Exception):
        app.add_exception_handler(kind, _respond)


def _json(request: Request, error: ApiError) -> JSONResponse:
    return JSONResponse(error.body_for(request.url.path), status_code=error.status, headers=error.headers)


async def _respond(request: Request, error: Exception) -> JSONResponse:
    """Unexpected errors are logged by uvicorn."""
    api_error = to_api_error(error)
    if api_error.status >= 500 or isinstance(error, BadReply):
        log.warning("a request failed: %s", error)
    return _json(request, api_error)


async def respond_http(request: Request, error: Exception) -> JSONResponse:
    """Errors of routing and reading: an unknown path, a method that a path does not allow, a body that is too large."""
    if not isinstance(error, HTTPException):
        raise error
    code = "request_too_large" if error.status_code == 413 else None
    message, path, headers = str(error.detail), request.url.path[:_LONGEST_PATH], error.headers
    if message == "There was an error parsing the body":  # the framework's words, where it is more than the syntax
        message = "the body cannot be read as JSON; send it as UTF-8, with numbers of a usual size"
    if error.status_code == 404:
        message = (
            f"there is no route {path!r}; the base URL for OpenAI's clients ends in /v1, "
            "and GET /openapi.json lists all routes"
        )
    if error.status_code == 405:
        headers = {"Allow": allowed_methods(request)}
        message = f"{path!r} does not allow {request.method}; use {headers['Allow']}"
    return _json(request, ApiError(error.status_code, message, code=code, headers=headers))


def allowed_methods(request: Request) -> str:
    """Those of all routes of a path: the framework names the first route's only."""
    matching = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted({method for route in matching for method in getattr(route, "methods", None) or ()}))


async def _respond_invalid(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    return _json(request, describe_unreadable(error))
