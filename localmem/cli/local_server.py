"""Ask a server that runs on the same data directory, instead of loading the memory into this process.

A server has the memory and its models loaded, so it answers in milliseconds. It is asked only if all settings that
decide what is recalled are the same in both processes (for a reply, those of the backbone and the chat too); whenever
anything is unclear the command does the work itself. Once a server has been asked to change something, what it refuses
is an error of the command. Imports only the standard library, and the YAML reader for a settings file: loading pydantic
or the store takes longer than the whole answer.
"""

import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from localmem.cli.options import SettingsFlags
from localmem.errors import BadInput, Conflict, LLMUnavailable, LocalmemError, NotFound
from localmem.resources import user_data_dir, user_settings_file
from localmem.server.local_access import USER_HEADER, LocalServer, read_local_server

_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 300.0  # a system may ask the backbone while it recalls
_PREFIX = "LOCALMEM_"
_NOT_SETTINGS = ("LOCALMEM_CONFIG", "LOCALMEM_MODELS")
_ERRORS: Mapping[int, type[LocalmemError]] = {400: BadInput, 404: NotFound, 409: Conflict, 503: LLMUnavailable}

Document = dict[str, Any]


def ask_server(method: str, path: str, parameters: Mapping[str, object], flags: SettingsFlags) -> Document | None:
    """The server's answer, or None when no suitable server is running or it does not answer with success.

    `parameters` are the JSON body of a POST or the query of a GET; None values are left out.
    """
    server = _choose_server(flags)
    try:
        return server.request(method, path, parameters) if server else None
    except LocalmemError:
        return None  # the command will make the same mistake, and say so


def find_server(flags: SettingsFlags, *, replies: bool = False) -> "ServerAccess | None":
    """A suitable server that answers; with `replies` one that also has the same backbone and settings of the chat."""
    server = _choose_server(flags, replies=replies)
    try:
        return server if server and server.request("GET", "/v1/sessions", {"limit": 1}) else None
    except LocalmemError:
        return None


class ServerAccess:
    """One user's access to a running server, in whose data directory `data` is."""

    def __init__(self, server: LocalServer, user: str, data: Path) -> None:
        self.user, self.data = user, data
        self.system = str(server.settings["system"])
        self._server = server

    def request(self, method: str, path: str, parameters: Mapping[str, object]) -> Document:
        """The answer to a request; `parameters` are as in `ask_server`. Raises LocalmemError for what is refused."""
        with self._respond(method, path, parameters, {}) as response:
            try:
                document = json.loads(response.read())
            except ValueError as error:
                raise LocalmemError(f"the server at {self._address} did not answer in JSON; stop it") from error
        return document if isinstance(document, dict) else {"data": document}

    def stream(self, path: str, body: Mapping[str, object], headers: Mapping[str, str]) -> Generator[Document]:
        """The events of a streamed reply. Closing the generator ends the reply. Raises LocalmemError."""
        with self._respond("POST", path, body, headers) as response:
            for line in response:
                if line.startswith(b"data: {"):
                    event: Document = json.loads(line.removeprefix(b"data: "))
                    if "error" in event:
                        raise LocalmemError(_read_message(event))
                    yield event

    @property
    def _address(self) -> str:
        return f"{self._server.host}:{self._server.port}"

    @contextmanager
    def _respond(
        self, method: str, path: str, parameters: Mapping[str, object], headers: Mapping[str, str]
    ) -> Iterator[HTTPResponse]:
        """The response to a request that succeeded."""
        present = {key: value for key, value in parameters.items() if value is not None}
        body = json.dumps(present) if method == "POST" else None
        target = path if method == "POST" or not present else f"{path}?{urlencode(present)}"
        connection = HTTPConnection(self._server.host, self._server.port, timeout=_CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(_ANSWER_SECONDS)
            connection.request(method, target, body, {**self._headers(), **headers})
            response = connection.getresponse()
            if response.status >= 400:  # refused
                kind = _ERRORS.get(response.status, LocalmemError)
                raise kind(_read_message(json.loads(response.read())))
            yield response
        except (OSError, HTTPException, ValueError) as error:
            raise LocalmemError(
                f"the server at {self._address} did not answer ({str(error) or type(error).__name__}); "
                "see its log, and run the command again"
            ) from error
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        access = {"authorization": f"Bearer {self._server.token}", USER_HEADER: quote(self.user)}
        return {**access, "content-type": "application/json"}


def _read_message(body: object) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error["message"] if isinstance(error, dict) and "message" in error else body)


def _choose_server(flags: SettingsFlags, *, replies: bool = False) -> ServerAccess | None:
    """The server on the data directory of these flags, if its settings are the same."""
    try:
        overrides = _overrides(flags)
    except (OSError, ValueError):
        return None  # the command will read the same file and report the error
    data = Path(str(overrides.get("data", user_data_dir())))
    server = read_local_server(data)
    if server is None or not _has_same_settings(server, overrides, replies=replies):
        return None
    user = str(overrides.get("user", server.defaults["user"]))
    return ServerAccess(server, user, data) if user.strip() else None


# -- settings without pydantic -------------------------------------------------------------------------------------


def _overrides(flags: SettingsFlags) -> Document:
    """What all sources set, by dotted key: flags over environment over --config over the user's file."""
    overrides: Document = {}
    for file in (user_settings_file(), flags.config):
        if file is not None:
            overrides |= _read_settings(file)
    for variable, text in os.environ.items():
        if variable.upper().startswith(_PREFIX) and variable not in _NOT_SETTINGS:
            overrides[variable.upper().removeprefix(_PREFIX).lower().replace("__", ".")] = text
    return overrides | {key: value for key, value in flags.values.items() if value is not None}


def _read_settings(file: Path) -> Document:
    import yaml

    try:
        return dict(_flatten(yaml.safe_load(file.read_text(encoding="utf-8")) or {}))
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is not YAML") from error


def _flatten(values: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(values, Mapping):
        raise ValueError("not a mapping")
    for key, value in values.items():
        if isinstance(value, Mapping) and f"{prefix}{key}" in ("llm", "retrieval", "chat", "server"):
            yield from _flatten(value, f"{key}.")
        else:
            yield f"{prefix}{key}", value


def _has_same_settings(server: LocalServer, overrides: Mapping[str, object], *, replies: bool) -> bool:
    if not overrides.keys() <= server.defaults.keys():
        return False  # an unknown setting, or one in a form that only the full settings understand
    own: Iterable[tuple[str, object]] = {**server.settings, **(server.replies if replies else {})}.items()
    return all(_is_same(overrides.get(key, server.defaults[key]), value) for key, value in own)


def _is_same(value: object, other: object) -> bool:
    """Equal as values, or as texts: those of the environment are not parsed here."""
    return value == other or (isinstance(value, str | Path) and str(value).lower() == str(other).lower())
