"""`localmem keys`: the API keys of `localmem serve`. Only parsing and output; `server.api_keys` does the work."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from localmem.cli.options import SettingsFlags, json_option, note, print_json, print_table, settings_options

if TYPE_CHECKING:
    from localmem.server.api_keys import ApiKey, KeyFile
    from localmem.settings_sections import Scope

_SCOPES = ("chat", "read", "admin")
_LONGEST = 36_500  # days
_key_id = click.argument("key_id", metavar="ID")


@click.group()
def keys() -> None:
    """Make, list, rotate and revoke the server's API keys.

    The file keys.json in the data directory holds their digests only. A running server follows every change at once.
    """


@keys.command()
@click.option("--user", required=True, help="User whose memory the key opens.", metavar="NAME")
@click.option("--scope", "scopes", type=click.Choice(_SCOPES), multiple=True, help="Limit the key. Repeatable.")
@click.option(
    "--days",
    type=click.FloatRange(0, _LONGEST, min_open=True),
    help="Days until the key expires (default: never).",
    metavar="DAYS",
)
@click.option("--trusted-users", is_flag=True, help="The client names the user of each request.")
@click.option("--header", help="Header that names the client's user. [default: X-OpenWebUI-User-Id]", metavar="NAME")
@click.option("--operator", is_flag=True, help="The key may act for any user.")
@settings_options("data_dir", "config")
def create(
    user: str,
    scopes: "tuple[Scope, ...]",
    days: float | None,
    trusted_users: bool,
    header: str | None,
    operator: bool,
    flags: SettingsFlags,
) -> None:
    """Create a key and print it; it is shown only once.

    Scopes: `chat`; `read` lists, searches and exports the memory; `admin` changes, imports and erases it. Without
    --scope a key has all three.
    """
    from localmem.settings_sections import KeySettings

    limits = {name: value for name, value in (("header", header), ("scopes", scopes)) if value}
    key = KeySettings(user=user, trusted_users=trusted_users, operator=operator, **limits)  # type: ignore[arg-type]
    _show(*_file(flags).create(key, _now(), days=days))


@keys.command("list")
@settings_options("data_dir", "config")
@json_option
def list_keys(flags: SettingsFlags, as_json: bool) -> None:
    """List the keys, including expired and revoked ones."""
    rows = [_describe(key) for key in _file(flags).read()]
    if as_json:
        print_json(rows)
    else:
        print_table([list(row.values()) for row in rows], list(rows[0]) if rows else [])


@keys.command()
@_key_id
@settings_options("data_dir", "config")
def revoke(key_id: str, flags: SettingsFlags) -> None:
    """Revoke a key at once."""
    _file(flags).revoke(key_id)


@keys.command()
@_key_id
@click.option(
    "--days", type=click.FloatRange(0, _LONGEST), default=7, show_default=True, help="Days that the old key stays."
)
@settings_options("data_dir", "config")
def rotate(key_id: str, days: float, flags: SettingsFlags) -> None:
    """Replace a key with a new one that has the same rights.

    Both are valid until the old one expires, so that clients can switch when they are ready.
    """
    _show(*_file(flags).rotate(key_id, _now(), days=days))


@keys.command()
@settings_options("data_dir", "config")
def migrate(flags: SettingsFlags) -> None:
    """Store the keys of the setting server.keys as digests.

    Then delete server.keys from your settings. Keys that a person has chosen can be guessed: rotate them.
    """
    from localmem.server.api_keys import KeyFile, plain_keys

    settings = flags.read()
    count = KeyFile(settings.key_file).migrate(plain_keys(settings), _now())
    note(f"{count} keys were added to {settings.key_file}; delete server.keys from your settings now")


def _show(key: "ApiKey", text: str) -> None:
    note(f"key {key.id} of {key.user}; it is shown this once:")
    click.echo(text)


def _describe(key: "ApiKey") -> dict[str, object]:
    rights = [name for name in ("trusted_users", "operator") if getattr(key, name)]
    return {
        "id": key.id,
        "user": key.user,
        "scopes": ", ".join(key.scopes),
        "rights": ", ".join(rights),
        "created": key.created.isoformat(timespec="seconds"),
        "expires": key.expires.isoformat(timespec="seconds") if key.expires else "",
        "state": key.state(_now()),
    }


def _file(flags: SettingsFlags) -> "KeyFile":
    from localmem.server.api_keys import KeyFile

    return KeyFile(flags.read().key_file)


def _now() -> datetime:
    return datetime.now(UTC)
