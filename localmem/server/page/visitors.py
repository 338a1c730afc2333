"""Who looks at the page: log-in with a key, a session cookie, and a token that every form must send back.

With keys the cookie stands for a key, until that ends or the server stops; without keys it only carries the form's
token, and the request must come from this machine as anywhere else (`localmem.server.auth`). Nothing is written to
disk.
"""

import hmac
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_bytes, token_urlsafe
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
_MOST = 1000  # log-ins; the oldest are dropped


class LoginRequired(Exception):
    """The page was asked for without a log-in."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person at the page; `form_token` belongs into each of its forms."""

    user: str
    form_token: str
    has_login: bool


class Visitors:
    """The log-ins of one server, for many threads."""

    def __init__(self, auth: Authenticator) -> None:
        self._auth = auth
        self._secret = token_bytes(32)
        self._keys: OrderedDict[bytes, str] = OrderedDict()  # digest of the cookie -> digest of the key
        self._lock = threading.Lock()

    def form_token(self, request: Request) -> str:
        """The token of this visitor's forms."""
        return hmac.new(self._secret, cookie_of(request).encode(), sha256).hexdigest()

    def find(self, request: Request) -> Visitor:
        """The visitor of a request. Raises LoginRequired, ApiError for a request from elsewhere without keys."""
        if not self._auth.has_keys:
            return Visitor(self._auth.user(request), self.form_token(request), has_login=False)
        with self._lock:
            digest = self._keys.get(_digest(cookie_of(request)))
        if digest is None:
            raise LoginRequired
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
        digest, cookie = digest_key(key.strip()), token_urlsafe(32)
        self._auth.page_user(digest)
        with self._lock:
            self._keys[_digest(cookie)] = digest
            while len(self._keys) > _MOST:
                self._keys.popitem(last=False)
        return cookie

    def log_out(self, request: Request) -> None:
        """The cookie of this request stands for nobody any more."""
        with self._lock:
            self._keys.pop(_digest(cookie_of(request)), None)

    def check_token(self, request: Request, token: str) -> None:
        """Raises ApiError for a form of another page."""
        if not hmac.compare_digest(self.form_token(request).encode(), token.encode()):
            raise ApiError(403, "this form is out of date; reload the page and try again")


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
    return visitors_of(request).find(request)


CurrentVisitor = Annotated[Visitor, Depends(get_visitor)]


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a form that this page made for this visitor. Raises ApiError for any other."""
    fields = dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
    visitors_of(request).check_token(request, fields.pop(FORM_TOKEN, ""))
    return fields


Form = Annotated[Mapping[str, str], Depends(read_form)]


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode()).digest()
