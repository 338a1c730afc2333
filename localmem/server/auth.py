"""Who asks. With keys, the key says who the user is, and nothing else does; without keys there is one user, at home.

A request's own `user` field never counts: any client could write any name into it. Without keys only loopback is
served, and only to pages and programs of this machine: a web page elsewhere that makes the browser call us, or that
points its own name at 127.0.0.1, is refused by its Host or Origin. Knows no routes.
"""

import hmac
import ipaddress
from collections.abc import Callable
from hashlib import sha256
from urllib.parse import urlsplit

from fastapi import Request

from localmem.config import Settings
from localmem.errors import BadSettings
from localmem.server.errors import Problem


def is_loopback(host: str) -> bool:
    """Whether an address or a name means this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def check_binding(settings: Settings) -> None:
    """Raises BadSettings for keys that cannot serve, and for an open door to the network without keys."""
    keys, host = settings.server.keys, settings.server.host
    for key, user in keys.items():
        if len(key) < _SHORTEST or not user:
            raise BadSettings(
                f"server.keys binds a key of {len(key)} characters to user {user!r}; "
                f"give each key at least {_SHORTEST} characters and a user"
            )
    if not keys and not is_loopback(host):
        raise BadSettings(
            f"without keys only this machine may be served, and {host} is open to others; "
            "set server.keys (key: user) in the YAML file, or serve on 127.0.0.1"
        )


class Doorkeeper:
    """Tells the user of a request, or refuses it."""

    def __init__(self, settings: Settings) -> None:
        self._users = [(_digest(key), user) for key, user in settings.server.keys.items()]
        self._alone = settings.user
        self._at_home = is_loopback(settings.server.host)

    def user(self, request: Request) -> str:
        """The user whose memory this request is about. Raises Problem: 401 without a valid key, 403 from elsewhere."""
        if self._users:
            return self._holder(request.headers.get("authorization", ""))
        _check_at_home(request)
        return self._alone

    def may_watch(self, request: Request) -> None:
        """Metrics name nobody; on loopback they need no key. Raises Problem."""
        if not self._at_home:
            self.user(request)

    def _holder(self, header: str) -> str:
        scheme, _, key = header.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise _refused("no API key was given; send `Authorization: Bearer KEY`")
        given, found = _digest(key.strip()), None
        for digest, user in self._users:  # all of them each time, so that the time taken tells nothing
            found = user if hmac.compare_digest(digest, given) else found
        if found is None:
            raise _refused("this API key is not known here; ask the owner of this server for one")
        return found


UserOf = Callable[[Request], str]

_SHORTEST = 8


def _check_at_home(request: Request) -> None:
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    origin = request.headers.get("origin")
    if not is_loopback(host):
        raise Problem(403, f"the Host {host!r} is not this machine; without keys only localhost is served")
    if origin is not None and not is_loopback(urlsplit(origin).hostname or ""):
        raise Problem(403, f"a page of {origin!r} may not use this server; without keys only pages of this machine may")


def _digest(key: str) -> bytes:
    """Digests are of one length, so comparing them does not tell how long the key is."""
    return sha256(key.encode()).digest()


def _refused(message: str) -> Problem:
    return Problem(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
