"""Who looks at the page: log-in with a key, a session cookie, and a token that every form must send back.

With keys the cookie stands for a key, until that ends or the server stops: it holds the key's digest, signed with a
secret of this start. Without keys it only carries the form's token, and the request must come from this machine as
anywhere else (`localmem.server.auth`). Nothing is written to disk.
"""

import hmac
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from localmem.server.api_keys import digest_key
from localmem.server.audit_log import Party, note_party
from localmem.server.auth import Authenticator
from localmem.server.errors import ApiError

COOKIE = "localmem-page"
FORM_TOKEN = "token"  # noqa: S105  # the name of a form's field
TOKEN_HEADER = "x-localmem-token"  # noqa: S105  # the same, for requests of scripts
_MOST = 10_000  # cookies that were logged out; the oldest are dropped


class LoginRequired(Exception):
    """The page was asked for without a log-in."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person at the page; `form_token` belongs into each of its forms."""

    user: str
    form_token: str
    has_login: bool


class Visitors:
    """The log-ins of one server, for many threads. Processes with the same `token` know each other's."""

    def __init__(self, auth: Authenticator, token: str) -> None:
        self._auth = auth
        # A visitor is told the signature of any cookie as a form's token, so log-ins are signed with another key.
        self._form_key, self._login_key = (_sign(token.encode(), use) for use in ("forms", "log-ins"))
        self._ended: OrderedDict[str, None] = OrderedDict()  # the cookies that were logged out
        self._lock = threading.Lock()

    @property
    def has_keys(self) -> bool:
        """Whether a visitor has to log in."""
        return self._auth.has_keys

    def form_token(self, request: Request) -> str:
        """The token of this visitor's forms."""
        return _sign(self._form_key, cookie_of(request)).hex()

    def find(self, request: Request) -> Visitor:
        """The visitor of a request. Raises LoginRequired, ApiError for a request from elsewhere without keys."""
        if not self._auth.has_keys:
            return Visitor(self._auth.user(request), self.form_token(request), has_login=False)
        digest = self._read(cookie_of(request))
        try:
            user = self._auth.page_user(digest)
        except ApiError as error:
            if error.status in (401, 403):  # the key was revoked, or has ended
                raise LoginRequired from error
            raise
        note_party(request, Party(user, user, "read" if request.method == "GET" else "admin"))
        return Visitor(user, self.form_token(request), has_login=True)

    def log_in(self, key: str) -> str:
        """The cookie of a new log-in with a key. Raises ApiError for an unknown key, or one without all scopes."""
        digest = digest_key(key.strip())
        self._auth.page_user(digest)
        login = f"{token_urlsafe(32)}.{digest}"
        return f"{login}.{_sign(self._login_key, login).hex()}"

    def log_out(self, request: Request) -> None:
        """The cookie of this request stands for nobody any more in this process."""
        cookie = cookie_of(request)
        with suppress(LoginRequired), self._lock:
            self._read(cookie)
            self._ended[cookie] = None
            while len(self._ended) > _MOST:
                self._ended.popitem(last=False)

    def _read(self, cookie: str) -> str:
        """The digest of the key that a cookie stands for. Raises LoginRequired."""
        login, _, signature = cookie.rpartition(".")
        is_signed = hmac.compare_digest(_sign(self._login_key, login).hex().encode(), signature.encode())
        if not is_signed or cookie in self._ended:
            raise LoginRequired
        return login.rpartition(".")[2]

    def check_token(self, request: Request, token: str) -> None:
        """Raises ApiError for a form of another page."""
        if not hmac.compare_digest(self.form_token(request).encode(), token.encode()):
            raise ApiError(403, "this form is out of date; go back to its page, reload that and try again")


def cookie_of(request: Request) -> str:
    """The request's cookie, or the one that its response will set."""
    if cookie := request.cookies.get(COOKIE):
        return cookie
    if not hasattr(request.state, "new_cookie"):
        request.state.new_cookie = token_urlsafe(32)
    return str(request.state.new_cookie)


def visitors_of(request: Request) -> Visitors:
    """The visitors of the app that received the request."""
    visitors: Visitors = request.app.state.visitors
    return visitors


async def get_visitor(request: Request) -> Visitor:
    """The person at the page. Raises LoginRequired."""
    visitor = visitors_of(request).find(request)
    request.state.visitor = visitor  # for the page of an error
    return visitor


CurrentVisitor = Annotated[Visitor, Depends(get_visitor)]


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a form of this page for this visitor, with plain line ends. Raises ApiError for any other."""
    pairs = parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True)
    fields = {name: value.replace("\r\n", "\n") for name, value in pairs}
    visitors_of(request).check_token(request, fields.pop(FORM_TOKEN, ""))
    return fields


Form = Annotated[Mapping[str, str], Depends(read_form)]


def _sign(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), sha256).digest()
