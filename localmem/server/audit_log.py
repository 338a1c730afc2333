"""The audit log: who read, changed or erased whose memory over HTTP, one JSON line for each request.

A line names the key's user, the user whose memory it was, the method, the path (with the ids of what was read or
erased) and the status. It holds no text of anybody's, and no query, which may be a question. Chat is not in it: a turn
and its time are in the store. Requests note who they are in their state as they are authenticated; one without a valid
key noted nobody, and is not in the log.
"""

import errno
import json
import logging
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from localmem.errors import BadSettings
from localmem.server.response_status import ResponseStatus

log = logging.getLogger(__name__)

_PARTY = "audit_party"
_MODE = 0o600


class Party(NamedTuple):
    """Who asks: the user of the key, the user whose memory it is about, and the scope that the request needs."""

    key_user: str
    user: str
    scope: str


def note_party(request: Request, party: Party) -> None:
    """Say who asks, for the audit log."""
    setattr(request.state, _PARTY, party)


def check_file(file: Path) -> None:
    """Raises BadSettings for a file that cannot be written."""
    try:
        _append(file, b"")
    except OSError as error:
        raise BadSettings(
            f"server.audit_log cannot be written to {file} ({error.strerror}); choose another path"
        ) from error


class AuditLog:
    """Middleware: appends to `file`, which only its owner may read. Several processes may write to one file."""

    def __init__(self, app: ASGIApp, file: Path, now: Callable[[], datetime]) -> None:
        self._app, self._file, self._now = app, file, now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = ResponseStatus(send)
        try:
            await self._app(scope, receive, status)
        finally:
            party = scope.get("state", {}).get(_PARTY)
            if isinstance(party, Party) and party.scope in ("read", "admin"):
                self._write(self._line(party, scope["method"], scope["path"], status.value))

    def _write(self, line: bytes) -> None:
        """What cannot be appended, to a full disk for example, is on record in the server's log."""
        try:
            _append(self._file, line)
        except OSError as error:
            lost = line.decode().strip()
            log.warning("server.audit_log cannot be written to %s (%s): %s", self._file, error.strerror, lost)

    def _line(self, party: Party, method: str, path: str, status: int) -> bytes:
        record = {
            "time": self._now().isoformat(timespec="milliseconds"),
            "key": party.key_user,
            "user": party.user,
            "method": method,
            "path": path,
            "status": status,
        }
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _append(file: Path, line: bytes) -> None:
    """Opened for each line, so that the file may be moved away while the server runs."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
    try:
        if os.write(descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)
