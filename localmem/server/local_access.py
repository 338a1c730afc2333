"""How commands on this machine reach a running server: `server.json` in the data directory.

While a server runs, the file holds its address, its process id and a token made for this start; only the owner of the
data directory can read it. Commands such as `localmem recall` then get their answer from the server, which has the
memory and its encoder loaded. Only the standard library is imported, because a command must reach the server faster
than it could do the work itself.
"""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from localmem.errors import BadSettings

USER_HEADER = "x-localmem-user"  # percent-encoded; for requests with the local token or an operator's key

_FILE_NAME = "server.json"


class LocalServer(NamedTuple):
    """A running server.

    `settings` are its values of the settings that decide what is recalled, `replies` of those that decide how it
    replies, `defaults` the default of every setting, all by dotted key. A command compares them with its own: a server
    with other settings cannot answer for it.
    """

    host: str
    port: int
    pid: int
    token: str
    settings: Mapping[str, object]
    defaults: Mapping[str, object]
    replies: Mapping[str, object]


@contextmanager
def open_listener(host: str, port: int) -> Iterator[socket.socket]:
    """A socket of a server. Raises BadSettings when it cannot be opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise BadSettings(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another --host or --port"
        ) from error
    with listener:
        yield listener


def write_local_server(data_dir: Path, server: LocalServer) -> None:
    """Announce a server; a previous file is replaced. Only the owner can read the file. Raises OSError."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = data_dir / f"{_FILE_NAME}.{server.pid}"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(server._asdict(), file)
    draft.replace(data_dir / _FILE_NAME)


def read_local_server(data_dir: Path) -> LocalServer | None:
    """The server that runs on this data directory, or None. The file of a process that has died does not count."""
    try:
        server = LocalServer(**json.loads((data_dir / _FILE_NAME).read_text(encoding="utf-8")))
        os.kill(server.pid, 0)  # signal 0 only checks that the process exists
    except (OSError, ValueError, TypeError):
        return None
    return server


def remove_local_server(data_dir: Path, token: str) -> None:
    """Remove the file, unless a later server has replaced it."""
    server = read_local_server(data_dir)
    if server and server.token == token:
        (data_dir / _FILE_NAME).unlink(missing_ok=True)
