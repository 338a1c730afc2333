"""How an error reaches a client: OpenAI's error shape, one line, the right status. No traceback leaves the server.

Knows the error tree, and no routes.
"""

import logging
from collections.abc import Mapping, Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from localmem.errors import BadInput, Conflict, LLMUnavailable, LocalmemError, NotFound

log = logging.getLogger(__name__)

_STATUS: Sequence[tuple[type[LocalmemError], int, str]] = (
    (BadInput, 400, "bad_input"),
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (LLMUnavailable, 503, "llm_unavailable"),
)


class Problem(Exception):
    """A request that is refused. `param` names the field at fault, `code` is for programs."""

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
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> dict[str, dict[str, str | None]]:
        """The error as OpenAI's API writes it."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "authentication_error" if self.status == 401 else kind
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def problem_of(error: Exception) -> Problem:
    """What a client is told of an error. Of one that was not foreseen only the log tells; its caller writes that."""
    if isinstance(error, Problem):
        return error
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return Problem(status, str(error), code=code)
    if isinstance(error, LocalmemError):
        return Problem(500, str(error), code="failed")
    return Problem(500, "the server met a defect; its log says more", code="internal_error")


def install(app: FastAPI) -> None:
    """Makes every error of the app an answer in OpenAI's shape."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Problem, _told)
    app.add_exception_handler(LocalmemError, _told)
    app.add_exception_handler(Exception, _told)


def _response(problem: Problem) -> JSONResponse:
    return JSONResponse(problem.body(), status_code=problem.status, headers=problem.headers)


async def _told(_request: Request, error: Exception) -> JSONResponse:
    """Uvicorn logs what was not foreseen."""
    problem = problem_of(error)
    if problem.status >= 500:
        log.warning("a request failed: %s", error)
    return _response(problem)


async def _http(_request: Request, error: Exception) -> JSONResponse:
    """What routing itself refuses: an unknown address, a method that an address has not got."""
    if not isinstance(error, HTTPException):
        raise error
    return _response(Problem(error.status_code, str(error.detail), headers=error.headers))


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    where = [str(part) for part in first["loc"][1:]]
    if first["type"] == "json_invalid":
        return _response(Problem(400, f"the body is no JSON: {first.get('ctx', {}).get('error', 'it is cut')}"))
    name = ".".join(where) or str(first["loc"][0])
    return _response(Problem(400, f"{name}: {first['msg']}", param=name, code=str(first["type"])))
