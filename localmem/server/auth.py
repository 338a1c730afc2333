"""Authentication. With keys, the API key decides who the user is; without keys there is one user, locally.

A request's own `user` field counts only for a key that is trusted to name the client's users, and then within the
banks of that key: any client could write any name into it. Without keys only loopback is served, and only to pages and
programs of this machine and to the origins of the settings: a web page elsewhere that makes the browser call us, or
that points its own name at 127.0.0.1, is refused by its Host or Origin. The local token of a running server is the
owner's (`localmem.server.local_access`): who can read it can read the data directory as well, so it may name any user.
"""

import hmac
import ipaddress
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from urllib.parse import unquote_to_bytes, urlsplit

from fastapi import Request

from localmem.config import Settings
from localmem.errors import BadSettings
from localmem.server.api_keys import KeyRing, check_keys, digest_key
from localmem.server.audit_log import Party, note_party
from localmem.server.errors import ApiError
from localmem.server.local_access import USER_HEADER
from localmem.server.rate_limit import RateLimit
from localmem.settings_sections import KeySettings, Scope

_LONGEST_NAME = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CHAT_PATHS = frozenset(
    f"/{name}"
    for name in (
        *("v1/chat/completions", "v1/completions", "v1/responses", "v1/messages", "v1/messages/count_tokens"),
        *("api/chat", "api/generate", "v1/sessions/end"),
    )
)
_SHARED_PATHS = ("/v1/models", "/v1/embeddings", "/api/", "/metrics")
_READ_POSTS = frozenset(
    (
        *("/v1/memories/search", "/v1/memories/recall", "/mcp"),  # tools of MCP check for themselves
        *(f"/mem0/{path}" for path in ("search", "v2/memories/", "v3/memories/")),
        *(f"/mem0/v{version}/memories/search/" for version in (1, 2, 3)),
    )
)

log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Whether an address or a name means this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def check_binding(settings: Settings) -> None:
    """Raises BadSettings for unusable keys and origins, and for an address open to the network without keys."""
    has_keys, host = check_keys(settings), settings.server.host
    if settings.server.keys:
        log.warning("server.keys holds keys in plain text; store their digests with `localmem keys migrate`")
    if "*" in settings.server.origins and not has_keys:
        raise BadSettings("server.origins has '*', and there are no keys; name the origins, or make keys")
    if not has_keys and not is_loopback(host):
        raise BadSettings(
            f"server.host is {host}, which other machines can reach, and there are no keys; "
            "make one with `localmem keys create --user NAME`, or serve on 127.0.0.1"
        )


def needed_scope(method: str, path: str) -> Scope | None:
    """The scope that a request needs; None for what is the same for all users, such as the list of models."""
    if path in _CHAT_PATHS:
        return "chat"
    if path.startswith(_SHARED_PATHS):
        return None
    return "read" if method in ("GET", "HEAD") or path in _READ_POSTS else "admin"


class Authenticator:
    """Finds the user of a request, or refuses the request."""

    def __init__(self, settings: Settings, keys: KeyRing, local_token: str, now: Callable[[], datetime]) -> None:
        self._keys = keys
        self._now = now
        self._local_token = digest_key(local_token)
        self._default = KeySettings.model_construct(user=settings.user)
        self._owner = self._default.model_copy(update={"operator": True})
        self._origins = settings.server.origins
        self._on_loopback = is_loopback(settings.server.host)
        self._shared = _SharedKeys()
        self._limit = RateLimit(settings.server.requests_per_minute)

    @property
    def has_keys(self) -> bool:
        """Whether users have keys; without them there is one user. Raises ApiError for a file that is unusable."""
        with _usable_keys():
            return self._keys.has_keys

    def find_key(self, digest: str) -> KeySettings:
        """The rights of the key with this digest. Raises ApiError for an unknown, expired or revoked one."""
        with _usable_keys():
            key = self._keys.find(digest, self._now())
        if key is None:
            raise _unauthorized_error("unknown, expired or revoked API key; ask the owner of this server for one")
        return key

    def page_user(self, digest: str) -> str:
        """The user of a key at the page, which shows and changes everything. Raises ApiError."""
        key = self.find_key(digest)
        for scope in ("chat", "read", "admin"):
            _check_scope(key, scope)
        self._limit.admit(key.user)
        return key.user

    def user(self, request: Request, body_user: str = "") -> str:
        """The user whose memory this request is about; `body_user` is the field `user` of its body.

        Raises ApiError: 401 without a valid key, 403 from elsewhere, without the key's scope or for a user whom only an
        operator's key may name, 429 beyond the rate limit, 400 for a key of many people that names none.
        """
        key, scope = self.identify(request), needed_scope(request.method, request.url.path)
        _check_scope(key, scope)
        user = self._user_of(key, request, body_user)
        note_party(request, Party(key.user, user, scope or ""))
        if key is not self._owner:
            self._limit.admit(user)
        return user

    def check(self, request: Request) -> KeySettings:
        """The rights of the request's key, for what is the same for all users. Raises ApiError as `user` does."""
        key = self.identify(request)
        _check_scope(key, needed_scope(request.method, request.url.path))
        if key is not self._owner:
            self._limit.admit(key.user)
        return key

    def check_operator(self, request: Request) -> None:
        """Raises ApiError unless the request may act for any user."""
        if not self.check(request).operator:
            raise ApiError(403, "this needs a key made with `localmem keys create --operator`", code="not_operator")

    def check_metrics(self, request: Request) -> None:
        """Metrics name nobody, so programs of this machine need no key. Raises ApiError."""
        if not (self._on_loopback and is_loopback(_host_of(request))):
            self.check(request)

    def identify(self, request: Request) -> KeySettings:
        """The rights of the request's key. Raises ApiError without a valid one."""
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        text = text.strip() if scheme.lower() in ("bearer", "token") else request.headers.get("x-api-key", "").strip()
        digest = digest_key(text) if text else None
        if digest and hmac.compare_digest(self._local_token, digest):
            return self._owner
        if not self.has_keys:
            self._check_local(request)
            return self._default
        if digest is None:
            raise _unauthorized_error("no API key; send `Authorization: Bearer KEY`")
        return self.find_key(digest)

    def _user_of(self, key: KeySettings, request: Request, body_user: str) -> str:
        if len(set(request.headers.getlist(key.header))) > 1:  # a proxy that adds its own beside the client's
            raise ApiError(400, f"the request has several headers {key.header}; send one", code="bad_user")
        named = request.headers.get(key.header, "") or ("" if key.is_proxy else body_user)
        person = named.strip()
        header = request.headers.get(USER_HEADER)
        other = _read_name(header or "").strip()
        if header is not None and not other:
            raise ApiError(400, "X-Localmem-User is empty; name a user or leave it out", code="no_user")
        if key.operator:
            return other or key.user
        if other not in ("", key.user) and key.header.lower() != USER_HEADER:
            raise ApiError(
                403,
                f"X-Localmem-User is {other!r}, and this request may act for {key.user!r} alone; "
                "leave the header out, or use a key made with `localmem keys create --operator`",
                code="not_operator",
            )
        if not key.trusted_users:
            self._shared.note(key.user, person)
            return key.user
        if not person:
            fields = "" if key.is_proxy else ", in the field `user` of OpenAI's chat bodies, or in mem0's user_id"
            message = f"this key is for several users; name the user in the header {key.header}{fields}"
            raise ApiError(400, message, code="no_user")
        if len(person) > _LONGEST_NAME or _CONTROL.search(person):
            message = (
                f"the user's name has {len(person)} characters; send at most {_LONGEST_NAME}, none of them a line end"
            )
            raise ApiError(400, message, param="user", code="bad_user")
        return f"{key.user}/{person}"

    def _check_local(self, request: Request) -> None:
        host, origin = _host_of(request), request.headers.get("origin")
        if not is_loopback(host):
            raise ApiError(403, f"Host {host!r} is not this machine; without keys only localhost is served")
        is_known = origin in self._origins or is_loopback(_hostname(origin or ""))
        if origin is not None and not is_known:
            raise ApiError(403, f"Origin {origin!r} is not this machine; allow it in server.origins")
        site, mode = request.headers.get("sec-fetch-site"), request.headers.get("sec-fetch-mode")
        is_visit = mode == "navigate" and request.method in ("GET", "HEAD")
        if origin is None and site == "cross-site" and not is_visit:  # an image, script or form of another site
            raise ApiError(403, "refused a page of another site; without keys only this machine's pages are served")


class _SharedKeys:
    """Warns once for each user whose key several people seem to share: their memories would be one."""

    def __init__(self) -> None:
        self._people: dict[str, str] = {}
        self._lock = threading.Lock()

    def note(self, user: str, person: str) -> None:
        """The key of this user came with the id of a person, "" for none."""
        if not person:
            return
        digest = digest_key(person)
        with self._lock:
            is_second = self._people.setdefault(user, digest) not in (digest, "")
            if is_second:
                self._people[user] = ""
        if is_second:
            log.warning(
                "several people seem to share the memory of %r; to give each their own, make a key with "
                "`localmem keys create --user NAME --trusted-users`",
                user,
            )


@contextmanager
def _usable_keys() -> Iterator[None]:
    try:
        yield
    except BadSettings as error:
        raise ApiError(503, f"the keys of this server cannot be read: {error}", code="keys_unreadable") from error


def _check_scope(key: KeySettings, scope: Scope | None) -> None:
    if scope is not None and scope not in key.scopes:
        raise ApiError(403, f"this key lacks the scope {scope!r}; it has {', '.join(key.scopes)}", code="no_scope")


def _read_name(header: str) -> str:
    """A percent-encoded name, or one in UTF-8 as it is. Raises ApiError for another encoding: two would be one user."""
    try:
        return unquote_to_bytes(header.encode("latin-1")).decode()
    except UnicodeDecodeError as error:
        raise ApiError(
            400, f"X-Localmem-User is {header!r}; percent-encode the name as UTF-8", code="bad_user"
        ) from error


def _host_of(request: Request) -> str:
    return _hostname(f"//{request.headers.get('host', '')}")


def _hostname(address: str) -> str:
    """The host of an address; "" for none and for what is no address."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _unauthorized_error(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
