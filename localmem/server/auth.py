"""Authentication. With keys, the API key alone decides who the user is; without keys there is one user, locally.

A request's own `user` field never counts: any client could write any name into it. Without keys only loopback is
served, and only to pages and programs of this machine: a web page elsewhere that makes the browser call us, or that
points its own name at 127.0.0.1, is refused by its Host or Origin. The local token of a running server is the owner's
(`localmem.server.local_access`): who can read it can read the data directory as well, so it may name any user.
"""

import hmac
import ipaddress
from hashlib import sha256
from urllib.parse import unquote, urlsplit

from fastapi import Request

from localmem.config import Settings
from localmem.errors import BadSettings
from localmem.server.errors import ApiError
from localmem.server.local_access import USER_HEADER

_MIN_KEY_LENGTH = 8


def is_loopback(host: str) -> bool:
    """Whether an address or a name means this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def check_binding(settings: Settings) -> None:
    """Raises BadSettings for unusable keys, and for an address open to the network without keys."""
    keys, host = settings.server.keys, settings.server.host
    for key, user in keys.items():
        if len(key) < _MIN_KEY_LENGTH or not user:
            raise BadSettings(
                f"server.keys has a key of {len(key)} characters for user {user!r}; "
                f"use keys of at least {_MIN_KEY_LENGTH} characters, each with a user"
            )
    if not keys and not is_loopback(host):
        raise BadSettings(
            f"without keys only this machine may be served, and {host} is open to others; "
            "set server.keys (key: user) in the YAML file, or serve on 127.0.0.1"
        )


class Authenticator:
    """Finds the user of a request, or refuses the request."""

    def __init__(self, settings: Settings, local_token: str) -> None:
        self._users = [(_digest(key), user) for key, user in settings.server.keys.items()]
        self._local_token = _digest(local_token)
        self._default_user = settings.user
        self._on_loopback = is_loopback(settings.server.host)

    def user(self, request: Request) -> str:
        """The user whose memory this request is about. Raises ApiError: 401 without a valid key, 403 from elsewhere."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        digest = _digest(key.strip()) if scheme.lower() == "bearer" and key.strip() else None
        if digest and hmac.compare_digest(self._local_token, digest):
            return unquote(request.headers.get(USER_HEADER, "")) or self._default_user
        if not self._users:
            _check_local(request)
            return self._default_user
        if digest is None:
            raise _unauthorized_error("no API key; send `Authorization: Bearer KEY`")
        matches = [user for key, user in self._users if hmac.compare_digest(key, digest)]  # all, for a constant time
        if not matches:
            raise _unauthorized_error("unknown API key; ask the owner of this server for one")
        return matches[-1]

    def check_metrics(self, request: Request) -> None:
        """Metrics name nobody, so on loopback they need no key. Raises ApiError."""
        if not self._on_loopback:
            self.user(request)


def _check_local(request: Request) -> None:
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    origin = request.headers.get("origin")
    if not is_loopback(host):
        raise ApiError(403, f"Host {host!r} is not this machine; without keys only localhost is served")
    if origin is not None and not is_loopback(urlsplit(origin).hostname or ""):
        raise ApiError(403, f"Origin {origin!r} is not this machine; without keys only local pages are served")


def _digest(key: str) -> bytes:
    """Digests all have the same length, so comparing them does not reveal the length of the key."""
    return sha256(key.encode()).digest()


def _unauthorized_error(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
