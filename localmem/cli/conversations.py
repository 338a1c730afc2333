"""`localmem remember | sessions | export | import | card`: conversations moving in and out, and their list.

Only parsing and terminal output; the runtime, its store, a running server or the package `transfer` do the work.
"""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localmem.cli.local_server import ServerAccess, ask_server, find_server
from localmem.cli.options import (
    Moment,
    SettingsFlags,
    age_option,
    counted,
    identity_option,
    json_option,
    note,
    open_runtime,
    print_json,
    print_table,
    settings_options,
    with_erased_option,
)
from localmem.times.zones import in_zone

if TYPE_CHECKING:
    from localmem.runtime import Runtime
    from localmem.store import Store
    from localmem.types import Session

_WORDS = 80  # characters of a session's first words
_COLUMNS = ("id", "started", "state", "turns", "first_words")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@settings_options("user", "system", "model", "data_dir", "config")
@click.option("--time", type=Moment(), help="When it was said, for files without any time.", metavar="TIME")
@click.option("--source-user", help="Whose records to read from a dump of several users.", metavar="ID")
@with_erased_option
@json_option
def remember(
    file: Path,
    flags: SettingsFlags,
    time: datetime | None,
    source_user: str | None,
    with_erased: bool,
    as_json: bool,
) -> None:
    """Import past conversations.

    FILE is JSONL of sessions, one a line; times are by the user's clock unless they name a zone:

    \b
        {"id": "monday", "turns": [
          {"role": "user", "time": "2026-03-02T18:05", "text": "I keep bees."},
          {"role": "assistant", "time": "2026-03-02T18:06", "text": "Nice."}]}

    Or it is an export, which is recognised by its content: ChatGPT's and Claude's (the downloaded zip or its
    conversations.json), Open WebUI's chats, mem0's and Letta's dumps, ShareGPT's format, a character card's book. What
    is not read is named. Already imported sessions are skipped, and what is new of one that has grown or was edited
    is read as its continuation; rerun to resume. Sessions that were erased are left out.
    A server that runs on the same data directory with the same settings does the work.
    """
    server = find_server(flags, replies=True)
    settings = flags.read() if server else flags.load()
    from localmem.runtime.known_sessions import select_new
    from localmem.transfer import FileDefaults, import_file

    chat = settings.chat
    imported = import_file(file, FileDefaults(chat.user_name, chat.assistant_name, chat.zone, time), source_user)
    with open_runtime(settings) as runtime:
        bank = runtime.store, settings.user, settings.system
        selection = select_new(imported.sessions, *bank, with_erased=with_erased)
        new = selection.new
        if server:
            units, refused = _send(server, runtime.store, new)
        else:
            units, refused = _read(runtime, settings.user, new)
    not_read, count = [*imported.skipped, *selection.skipped, *refused], len(new) - len(refused)
    for line in not_read:
        note(line)
    if as_json:
        counts = {"read": count, "skipped": selection.unchanged, "erased": selection.erased, "units": units}
        print_json({"user": settings.user, "system": settings.system, **counts, "not_read": not_read})
    else:
        skipped = f"{selection.unchanged} skipped (already imported)"
        if selection.erased:
            skipped += f", {selection.erased} skipped (erased; add --with-erased to import them too)"
        click.echo(f"{counted(count, 'session')} imported, {skipped}; {counted(units, 'unit')} in total")
    if refused:
        sys.exit(1)


def _read(runtime: "Runtime", user: str, sessions: Sequence["Session"]) -> tuple[int, list[str]]:
    """Remember the sessions in this process; as `_send`."""
    agent = runtime.agent(user)
    refused = _remember_each(sessions, lambda session: agent.writer.read([session]))
    return len(agent.memory.bank.units), refused


def _send(server: ServerAccess, store: "Store", sessions: Sequence["Session"]) -> tuple[int, list[str]]:
    """Let the server remember the sessions; the number of units then, and a line for each that it did not remember.

    Raises LocalmemError where it does not answer.
    """
    logged = {info.id for info in store.sessions(server.user)}

    def remember_one(session: "Session") -> None:
        if session.id in logged:  # to be remembered as it is: turns of it may have been erased
            store.journal(server.user, server.system).close(session.id)
        else:
            _post(server, session)
        _wait_for(server, session.id)

    refused = _remember_each(sessions, remember_one)
    bank: dict[str, Any] = server.request("GET", "/v1/memories/bank", {})
    return len(bank["units"]), refused


def _remember_each(sessions: Sequence["Session"], remember_one: Callable[["Session"], None]) -> list[str]:
    """A line for each session that cannot be remembered; the others are."""
    from tqdm import tqdm

    from localmem.errors import BadInput, Conflict, LLMError, NotFound

    refused = list[str]()
    for session in tqdm(sessions, desc="remembering", unit="session", disable=None):
        try:
            remember_one(session)
        except (BadInput, Conflict, LLMError, NotFound) as error:
            refused.append(f"session {session.id!r} is not remembered: {error}")
    return refused


def _post(server: ServerAccess, session: "Session") -> None:
    turns = [
        {"role": turn.role, "text": turn.text, "time": turn.time.isoformat(), "speaker": turn.speaker}
        for turn in session.turns
    ]
    server.request("POST", "/v1/sessions?with_erased=true", {"sessions": [{"id": session.id, "turns": turns}]})


def _wait_for(server: ServerAccess, session_id: str) -> None:
    """Wait until the server has remembered a session. Raises LLMError where it cannot."""
    from localmem.errors import LLMError

    jobs: dict[str, Any] = {"done": False}
    while not jobs["done"]:
        jobs = server.request("GET", "/v1/jobs", {"session": session_id, "wait": 5})
        if jobs["data"][0]["status"] == "failed":
            raise LLMError("the server cannot; see its log, it tries again")


@click.command()
@settings_options("user", "system", "data_dir", "config")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="Number of sessions.")
@json_option
def sessions(flags: SettingsFlags, limit: int, as_json: bool) -> None:
    """List the sessions, the latest first.

    Their ids are those that `forget`, `undo` and `show` take.
    """
    answer = ask_server("GET", "/v1/sessions", {"limit": limit}, flags)
    rows = _server_rows(answer) if answer else _read_rows(flags, limit)
    if as_json:
        print_json(rows)
    elif rows:
        print_sessions(rows)
    else:
        click.echo("no sessions")


def print_sessions(rows: list[dict[str, Any]]) -> None:
    """Print a table of sessions."""
    cells = [{**row, "started": str(row["started"])[:16].replace("T", " ")} for row in rows]
    print_table([[row[name] for name in _COLUMNS] for row in cells], _COLUMNS, disable_numparse=True)


def _server_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in _COLUMNS} for row in answer["data"]]


def _read_rows(flags: SettingsFlags, limit: int) -> list[dict[str, Any]]:
    settings = flags.load()
    with open_runtime(settings) as runtime:
        return session_rows(runtime, settings.user, limit)


def session_rows(runtime: "Runtime", user: str, limit: int) -> list[dict[str, Any]]:
    """A record for each of the latest sessions, with the user's first words."""
    visible = runtime.store.bank(user, runtime.settings.system).visible
    rows = []
    for info in [info for info in reversed(runtime.store.sessions(user)) if info.turns][:limit]:
        turns = visible(runtime.store.session(user, info.id)).turns
        first = next((" ".join(turn.text.split()) for turn in turns if turn.role == "user"), "")
        words = first if len(first) <= _WORDS else f"{first[: _WORDS - 1]}…"
        started = in_zone(info.started, runtime.settings.chat.zone)
        values = (info.id, started.isoformat(), info.state, len(turns), words)
        rows.append(dict(zip(_COLUMNS, values, strict=True)))
    return rows


@click.command("export")
@settings_options("user", "data_dir", "config")
@click.option("--out", type=click.Path(path_type=Path), help="Output file (default: stdout).", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["full", "sessions", "markdown"]),
    default="full",
    show_default=True,
    help="What to write.",
)
@age_option
def export(flags: SettingsFlags, out: Path | None, form: str, age: str | None) -> None:
    """Export one user's sessions and memory.

    `full` is JSONL with the sessions, turns and memory of every system, for `localmem import`. `sessions` is JSONL of
    the conversations alone, for `localmem remember` and other programs. `markdown` is a page to read: the
    conversations, and what each system remembers. The last two leave out what was forgotten on request.
    """
    from localmem.files import write_atomic

    if age and out is None:
        raise click.UsageError("--age needs --out FILE")
    settings = flags.load()
    with open_runtime(settings) as runtime:
        lines = (f"{line}\n" for line in _export_lines(runtime, settings.user, form))
        if age and out:
            from localmem.store.age import encrypt

            write_atomic(out, encrypt("".join(lines).encode(), age))
        elif out:
            write_atomic(out, lines)
        else:
            sys.stdout.writelines(lines)
    if out:
        note(f"wrote {out}")


def _export_lines(runtime: "Runtime", user: str, form: str) -> Iterator[str]:
    from localmem.store.sessions import no_user
    from localmem.transfer.export_text import write_lines, write_markdown

    store = runtime.store
    if form == "full":
        yield from store.export(user)
        return
    if not store.lookups.exists(user):
        raise no_user(user)
    bank = store.bank(user, runtime.settings.system)
    everything = [bank.visible(store.session(user, info.id)) for info in store.sessions(user)]
    if form == "sessions":
        yield from write_lines(everything)
    else:
        yield from write_markdown(user, everything, {runtime.settings.system: bank})


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--user", help="Import as this user instead of the exported one.", metavar="NAME")
@identity_option
@with_erased_option
@settings_options("data_dir", "config")
def import_(file: Path, user: str | None, identity: Path | None, with_erased: bool, flags: SettingsFlags) -> None:
    """Import what `export` wrote.

    After an error nothing is imported. Sessions that were erased are left out. For the exports of other programs there
    is `localmem remember`.
    """
    from localmem.files import read_text

    settings = flags.load(user=user)
    if identity:
        from localmem.store.age import decrypt

        text = decrypt(file, identity).decode(errors="replace")
    else:
        text = read_text(file, "give a file written by `localmem export`")
    with open_runtime(settings) as runtime:
        summary = runtime.store.restore(text.split("\n"), str(file), user, with_erased=with_erased)
    if summary.new:
        click.echo(
            f"imported {counted(summary.sessions, 'session')} with {counted(summary.turns, 'turn')} for {summary.user}"
        )
        if summary.erased:
            again = f"run `localmem forget --all --user {shlex.quote(summary.user)}`, then this with --with-erased"
            click.echo(f"{summary.erased} skipped (erased; to import them too, {again})")
    else:
        click.echo(f"nothing to import: {summary.user} already has all of it")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", default="User", show_default=True, help="The user's name in the card's texts.", metavar="NAME")
def card(file: Path, name: str) -> None:
    """Print a character card as settings.

    FILE is a card of version 2 or 3, PNG or JSON. Its name and description become chat.assistant_name and
    chat.instructions, for --config or your settings file. `localmem remember FILE` reads the facts of its book.
    """
    import yaml

    from localmem.transfer.character_card import card_settings, read_card

    click.echo(yaml.safe_dump(card_settings(read_card(file), name), allow_unicode=True, sort_keys=False), nl=False)
