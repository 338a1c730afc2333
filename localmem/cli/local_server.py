"""Ask a server that runs on the same data directory, instead of loading the memory into this process.

A server has the memory and its encoder loaded, so it answers in milliseconds. It is asked only if all settings that
decide what is recalled are the same in both processes; whenever anything is unclear the answer is None, and the
command does the work itself. Imports only the standard library, and the YAML reader for a settings file: loading
pydantic or the store takes longer than the whole answer.
"""

import json
import os
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote, urlencode

from localmem.cli.options import SettingsFlags
from localmem.resources import user_data_dir, user_settings_file
from localmem.server.local_access import USER_HEADER, LocalServer, read_local_server

_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 300.0  # a system may ask the backbone while it recalls
_PREFIX = "LOCALMEM_"
_NOT_SETTINGS = ("LOCALMEM_CONFIG", "LOCALMEM_MODELS")

Document = dict[str, object]


def ask_server(method: str, path: str, parameters: Mapping[str, object], flags: SettingsFlags) -> Document | None:
    """The server's answer, or None when no suitable server is running or it does not answer with success.

    `parameters` are the JSON body of a POST or the query of a GET; None values are left out.
    """
    try:
        overrides = _overrides(flags)
    except (OSError, ValueError):
        return None  # the command will read the same file and report the error
    server = read_local_server(Path(str(overrides.get("data", user_data_dir()))))
    if server is None or not _has_same_settings(server, overrides):
        return None
    user = str(overrides.get("user", server.defaults["user"]))
    present = {key: value for key, value in parameters.items() if value is not None}
    return _request(server, user, method, path, present) if user.strip() else None


def _request(
    server: LocalServer, user: str, method: str, path: str, parameters: Mapping[str, object]
) -> Document | None:
    headers = {"authorization": f"Bearer {server.token}", USER_HEADER: quote(user), "content-type": "application/json"}
    body = json.dumps(parameters) if method == "POST" else None
    target = path if method == "POST" or not parameters else f"{path}?{urlencode(parameters)}"
    connection = HTTPConnection(server.host, server.port, timeout=_CONNECT_SECONDS)
    try:
        connection.connect()
        connection.sock.settimeout(_ANSWER_SECONDS)
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        document = json.loads(response.read()) if response.status == 200 else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return document if isinstance(document, dict) else None


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


def _has_same_settings(server: LocalServer, overrides: Mapping[str, object]) -> bool:
    if not overrides.keys() <= server.defaults.keys():
        return False  # an unknown setting, or one in a form that only the full settings understand
    expected = {key: overrides.get(key, server.defaults[key]) for key in server.settings}
    return all(_is_same(expected[key], value) for key, value in server.settings.items())


def _is_same(value: object, other: object) -> bool:
    """Equal as values, or as texts: those of the environment are not parsed here."""
    return value == other or (isinstance(value, str | Path) and str(value).lower() == str(other).lower())
