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
import threading
from hashlib import sha256
from urllib.parse import unquote, urlsplit

from fastapi import Request

from localmem.config import Settings
from localmem.errors import BadSettings
from localmem.server.errors import ApiError
from localmem.server.local_access import USER_HEADER
from localmem.settings_sections import KeySettings

_MIN_KEY_LENGTH = 8
_MAX_NAME_LENGTH = 200

log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Whether an address or a name means this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def check_binding(settings: Settings) -> None:
    """Raises BadSettings for unusable keys and origins, and for an address open to the network without keys."""
    keys, host = read_keys(settings), settings.server.host
    for text, key in keys.items():
        if len(text) < _MIN_KEY_LENGTH or not key.user:
            raise BadSettings(
                f"server.keys has a key of {len(text)} characters for user {key.user!r}; "
                f"use keys of at least {_MIN_KEY_LENGTH} characters, each with a user"
            )
        inside = [other.user for other in keys.values() if other.user.startswith(f"{key.user}/")]
        if key.trusted_users and inside:
            raise BadSettings(
                f"server.keys has the user {inside[0]!r}, a name of the people behind the key of {key.user!r}; "
                "rename either"
            )
    if "*" in settings.server.origins and not keys:
        raise BadSettings("server.origins has '*', and there are no keys; name the origins, or set server.keys")
    if not keys and not is_loopback(host):
        raise BadSettings(
            f"without keys only this machine may be served, and {host} is open to others; "
            "set server.keys (key: user) in the YAML file, or serve on 127.0.0.1"
        )


def read_keys(settings: Settings) -> dict[str, KeySettings]:
    """What each key may do."""
    keys = settings.server.keys.items()
    return {text: key if isinstance(key, KeySettings) else KeySettings(user=key) for text, key in keys}


class Authenticator:
    """Finds the user of a request, or refuses the request."""

    def __init__(self, settings: Settings, local_token: str) -> None:
        self._keys = [(_digest(text), key) for text, key in read_keys(settings).items()]
        self._local_token = _digest(local_token)
        self._default = KeySettings.model_construct(user=settings.user)
        self._origins = settings.server.origins
        self._on_loopback = is_loopback(settings.server.host)
        self._shared = _SharedKeys()

    @property
    def has_keys(self) -> bool:
        """Whether users have keys; without them there is one user."""
        return bool(self._keys)

    def user_of_key(self, key: str) -> str:
        """The user of a key. Raises ApiError for an unknown one."""
        return self._find(_digest(key.strip())).user

    def user(self, request: Request, body_user: str = "") -> str:
        """The user whose memory this request is about; `body_user` is the field `user` of its body.

        Raises ApiError: 401 without a valid key, 403 from elsewhere, 400 for a key of many people that names none.
        """
        key = self.check(request)
        person = (request.headers.get(key.header, "") or body_user).strip()[:_MAX_NAME_LENGTH]
        if key.operator:
            return unquote(request.headers.get(USER_HEADER, "")).strip() or key.user
        if not key.trusted_users:
            self._shared.note(key.user, person)
            return key.user
        if not person:
            raise ApiError(
                400, f"this key is for several people; say who asks in the header {key.header}", code="no_user"
            )
        return f"{key.user}/{person}"

    def check(self, request: Request) -> KeySettings:
        """The rights of the request's key. Raises ApiError as `user` does."""
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        text = text.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "").strip()
        digest = _digest(text) if text else None
        if digest and hmac.compare_digest(self._local_token, digest):
            return self._default.model_copy(update={"operator": True})
        if not self._keys:
            self._check_local(request)
            return self._default
        if digest is None:
            raise _unauthorized_error("no API key; send `Authorization: Bearer KEY`")
        return self._find(digest)

    def check_operator(self, request: Request) -> None:
        """Raises ApiError unless the request may act for any user."""
        if not self.check(request).operator:
            raise ApiError(403, "this needs an operator's key; set operator: true for one", code="not_operator")

    def check_metrics(self, request: Request) -> None:
        """Metrics name nobody, so on loopback they need no key. Raises ApiError."""
        if not self._on_loopback:
            self.check(request)

    def _find(self, digest: str) -> KeySettings:
        # All are compared, for a constant time.
        matches = [key for own, key in self._keys if hmac.compare_digest(own, digest)]
        if not matches:
            raise _unauthorized_error("unknown API key; ask the owner of this server for one")
        return matches[-1]

    def _check_local(self, request: Request) -> None:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        origin = request.headers.get("origin")
        if not is_loopback(host):
            raise ApiError(403, f"Host {host!r} is not this machine; without keys only localhost is served")
        is_known = origin is None or origin in self._origins or is_loopback(urlsplit(origin).hostname or "")
        if not is_known:
            raise ApiError(403, f"Origin {origin!r} is not this machine; allow it in server.origins")


class _SharedKeys:
    """Warns once for each user whose key several people seem to share: their memories would be one."""

    def __init__(self) -> None:
        self._people: dict[str, str] = {}
        self._lock = threading.Lock()

    def note(self, user: str, person: str) -> None:
        """The key of this user came with the id of a person, "" for none."""
        if not person:
            return
        digest = _digest(person)
        with self._lock:
            is_second = self._people.setdefault(user, digest) not in (digest, "")
            if is_second:
                self._people[user] = ""
        if is_second:
            log.warning(
                "several people seem to share the memory of %r; mark its key in server.keys with trusted_users: true "
                "to give each their own",
                user,
            )


def _digest(key: str) -> str:
    """Digests all have the same length, so comparing them does not reveal the length of the key."""
    return sha256(key.encode()).hexdigest()


def _unauthorized_error(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
