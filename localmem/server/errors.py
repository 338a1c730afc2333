"""Turn errors into responses: OpenAI's error shape, one line, the right status. No traceback leaves the server."""

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


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


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
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return ApiError(status, str(error), code=code)
    if isinstance(error, LocalmemError):
        return ApiError(500, str(error), code="failed")
    return ApiError(500, "internal error; see the log of the server", code="internal_error")


def install(app: FastAPI) -> None:
    """Answer every error of the app in OpenAI's shape."""
    app.add_exception_handler(RequestValidationError, _respond_invalid)
    app.add_exception_handler(HTTPException, _respond_http)
    for kind in (ApiError, LocalmemError, Exception):
        app.add_exception_handler(kind, _respond)


def _json(request: Request, error: ApiError) -> JSONResponse:
    return JSONResponse(error.body_for(request.url.path), status_code=error.status, headers=error.headers)


async def _respond(request: Request, error: Exception) -> JSONResponse:
    """Unexpected errors are logged by uvicorn."""
    api_error = to_api_error(error)
    if api_error.status >= 500:
        log.warning("a request failed: %s", error)
    return _json(request, api_error)


async def _respond_http(request: Request, error: Exception) -> JSONResponse:
    """Errors of routing and reading: an unknown path, a method that a path does not allow, a body that is too large."""
    if not isinstance(error, HTTPException):
        raise error
    code = "request_too_large" if error.status_code == 413 else None
    return _json(request, ApiError(error.status_code, str(error.detail), code=code, headers=error.headers))


async def _respond_invalid(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    path = [str(part) for part in first["loc"][1:]]
    if first["type"] == "json_invalid":
        message = f"the body is not valid JSON: {first.get('ctx', {}).get('error', 'it is cut')}"
        return _json(request, ApiError(400, message))
    name = ".".join(path) or str(first["loc"][0])
    return _json(request, ApiError(400, f"{name}: {first['msg']}", param=name, code=str(first["type"])))
