"""`localmem recall | show | forget | undo | rebuild | reindex`: a user's memory.

Only parsing and terminal output; the runtime, its store or a running server do the work.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from localmem.cli.local_server import ServerAccess, ask_server, find_server
from localmem.cli.options import (
    Moment,
    Period,
    SettingsFlags,
    counted,
    json_option,
    note,
    open_runtime,
    print_json,
    settings_options,
    step_progress,
)

if TYPE_CHECKING:
    from localmem.store import SessionJob

Document = dict[str, Any]

_ray_option = click.option("--ray", help="Ray cluster to work on: host:port, auto, or local.", metavar="ADDRESS")


@click.command()
@click.argument("text")
@settings_options("user", "system", "data_dir", "config")
@click.option("--as-of", type=Moment(end=True), help="Recall at this time, from the memory of then.", metavar="DATE")
@click.option("--speaker", help="Search only units about this speaker, or about both.", metavar="NAME")
@click.option("--happened", type=Period(), help="Search only events of these days.", metavar="PERIOD")
@click.option("--told", "learned", type=Period(), help="Search only what was told on these days.", metavar="PERIOD")
@json_option
def recall(
    text: str,
    flags: SettingsFlags,
    as_of: datetime | None,
    speaker: str | None,
    happened: str | None,
    learned: str | None,
    as_json: bool,
) -> None:
    """Show what the model would be shown.

    Prints the memory that would be recalled if the user said TEXT now. With --speaker, --happened or --told it prints
    the units that a search for TEXT within these bounds returns; no system recalls that way itself. A PERIOD is 2025,
    2025-03, 2025-03-01, or a range such as 2025-03-01..2025-03-31, which may be open at one end. A server that runs on
    the same data directory with the same settings is asked first, which is faster.
    """
    filters = {"speaker": speaker, "happened": happened, "told": learned}
    body = {"text": text, "as_of": as_of and as_of.isoformat(), **filters}
    document = ask_server("POST", "/v1/memories/recall", body, flags) or _recall(text, flags, as_of, filters)
    if as_json:
        print_json({key: document[key] for key in ("text", "hits", "workings")})
    else:
        click.echo(document["text"] or "nothing is recalled")


def _recall(text: str, flags: SettingsFlags, as_of: datetime | None, filters: Mapping[str, str | None]) -> Document:
    """The recall document, made in this process."""
    settings = flags.load()
    from localmem.retrieval.base import Scope
    from localmem.runtime.inspection import recall_document, recall_text
    from localmem.times.periods import parse_periods
    from localmem.times.zones import in_zone

    now = as_of or in_zone(datetime.now(UTC), settings.chat.zone)
    scope, periods = Scope(filters["speaker"], now=now), parse_periods(filters["happened"], filters["told"])
    with open_runtime(settings) as runtime:
        memory = runtime.memory_at(settings.user, as_of) if as_of else runtime.agent(settings.user).memory
        return recall_document(recall_text(memory, text, scope, periods, user_name=settings.chat.user_name), now)


@click.command()
@settings_options("user", "system", "data_dir", "config")
@click.option("--as-of", type=Moment(end=True), help="Show the memory as of this date.", metavar="DATE")
@click.option("--history", help="Show the history of one memory unit.", metavar="ID")
@click.option("--happened", type=Period(), help="Show only events of these days.", metavar="PERIOD")
@click.option("--told", "learned", type=Period(), help="Show only what was told on these days.", metavar="PERIOD")
@json_option
def show(
    flags: SettingsFlags,
    as_of: datetime | None,
    history: str | None,
    happened: str | None,
    learned: str | None,
    as_json: bool,
) -> None:
    """Show a memory: units, links, notes, history.

    A PERIOD is 2025, 2025-03, 2025-03-01, or a range such as 2025-03-01..2025-03-31, which may be open at one end.
    """
    if history:
        path = f"/v1/memories/{quote(history)}/history"
        unit_history = ask_server("GET", path, {}, flags) or _read_history(flags, history)
        if as_json:
            print_json({key: value for key, value in unit_history.items() if key != "object"})
        else:
            click.echo("\n".join(_history_lines(unit_history)))
        return
    query = {"as_of": as_of and as_of.isoformat(), "happened": happened, "told": learned}
    document = ask_server("GET", "/v1/memories/bank", query, flags) or _read_memory(flags, as_of, happened, learned)
    if as_json:
        print_json({key: document[key] for key in ("units", "links", "notes", "marks")})
        return
    click.echo(describe_memory(document))
    note_unread(document)


def _read_memory(
    flags: SettingsFlags, as_of: datetime | None, happened: str | None = None, learned: str | None = None
) -> Document:
    """The document of the whole memory, or of its units within the periods, made in this process."""
    settings = flags.load()
    from localmem.config import system_options
    from localmem.runtime.inspection import memory_document
    from localmem.times.periods import parse_periods
    from localmem.times.zones import in_zone

    system_options(settings.system, {})  # an unknown system is an error, not an empty memory
    periods = parse_periods(happened, learned)
    now = in_zone(datetime.now(UTC), settings.chat.zone)
    with open_runtime(settings) as runtime:
        return memory_document(runtime.store, settings.user, settings.system, now, as_of, periods)


def describe_memory(document: Document) -> str:
    """A memory document as text: notes, live units, links."""
    lines = [f"{name}:\n{text}" for name, text in document["notes"].items() if text]
    labels = {name: f"[{name}] " for name in ("document", "client", "api")}
    lines += [
        f"{unit['id']}  {unit['time'][:10]}  {labels.get(unit['origin'], '')}{unit['text']}"
        for unit in document["units"]
        if not unit["retired"]
    ]
    lines += [f"{link['source']} -{link['relation']}-> {link['target']}" for link in document["links"]]
    if retired := sum(unit["retired"] for unit in document["units"]):
        lines.append(f"({retired} hidden or replaced units are kept in history)")
    return "\n".join(lines) or f"No memories for user {document['user']} (system {document['system']})."


def note_unread(document: Document) -> None:
    """Tell a user who changed the system where the past is."""
    if count := document["unread_sessions"]:
        user, system = document["user"], document["system"]
        note(
            f"not yet in the memory of {system}: {counted(count, 'closed session')}; "
            f"run `localmem rebuild --user {user} --system {system}` to add them"
        )


def _read_history(flags: SettingsFlags, unit: str) -> Document:
    from localmem.config import system_options
    from localmem.runtime.inspection import history_document

    settings = flags.load()
    system_options(settings.system, {})
    with open_runtime(settings) as runtime:
        return history_document(runtime.store.history(settings.user, settings.system, unit))


def _history_lines(history: Document) -> Iterator[str]:
    unit = history["unit"]
    yield f"{unit['id']} ({'live' if history['live'] else 'hidden or replaced'}): {unit['text']}"
    for turn in history["sources"]:
        yield f"  {_minute(turn['time'])} {turn['speaker']} said: {turn['text']}"
    for event in history["events"]:
        state = "" if event["state"] == "active" else f" [{event['state']}]"
        yield f"  {_minute(event['change']['time'])} {event['change']['type']} by {event['cause']}{state}"


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


@click.command()
@settings_options("user", "system", "data_dir", "config")
@click.option("--unit", help="Erase one unit, or all that a request to forget hid.", metavar="ID")
@click.option("--session", help="Erase one session and the memory made from it.", metavar="ID")
@click.option("--all", "everything", is_flag=True, help="Erase everything of this user.")
@click.option(
    "--with-sources", is_flag=True, help="With --unit: also erase its turns and the replies that answer or quote them."
)
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@json_option
def forget(
    flags: SettingsFlags,
    unit: str | None,
    session: str | None,
    everything: bool,
    with_sources: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Erase a unit, session or user for good; /forget in a chat hides.

    Erased data cannot be restored. Prints a receipt. Importing the same file later brings an erased user back, and an
    erased session with --with-erased.
    """
    if [bool(unit), bool(session), everything].count(True) != 1:
        raise click.UsageError("nothing to erase, or more than one thing; give --unit ID, --session ID or --all")
    if with_sources and not unit:
        raise click.UsageError("--with-sources needs --unit; a session is erased with its turns anyway")
    if everything and flags.values["user"] is None:
        raise click.UsageError("--all needs --user, so that no default user is erased by mistake")
    settings = flags.read()
    target = f"unit {unit}" if unit else f"session {session}" if session else "everything"
    if not yes:
        _confirm(f"Erase {target} of {settings.user} permanently?")
    server = find_server(flags)
    if server:
        receipt = _ask_to_erase(server, unit, session, sources=with_sources)
    else:
        with open_runtime(flags.load()) as runtime:
            store = runtime.store
            if unit:
                erased = store.delete_units(settings.user, settings.system, unit, sources=with_sources)
            elif session:
                erased = store.delete_session(settings.user, session)
            else:
                erased = store.delete_user(settings.user)
        receipt = asdict(erased)
    if as_json:
        print_json(receipt)
    else:
        click.echo("\n".join(_receipt_lines(receipt)))
    if receipt["remaining"]:
        sys.exit(1)


def _confirm(question: str) -> None:
    """Aborts unless the answer is yes. Raises BadInput where nobody answers."""
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):
            from localmem.errors import BadInput

            click.echo(err=True)  # ends the question
            raise BadInput("there is no answer, so nothing is erased; add --yes to erase without a question") from error
        raise


def _ask_to_erase(server: ServerAccess, unit: str | None, session: str | None, *, sources: bool) -> Document:
    """The receipt of the server; without a unit and a session the user is erased. Raises LocalmemError."""
    path = f"memories/{quote(unit)}" if unit else f"sessions/{quote(session)}" if session else "memories"
    query = {"with_sources": "true" if unit and sources else None, "confirm": None if unit or session else "all"}
    receipt = server.request("DELETE", f"/v1/{path}", query)
    return {key: value for key, value in receipt.items() if key != "object"}


def _receipt_lines(receipt: Document) -> Iterator[str]:
    rows = ", ".join(f"{count} {table}" for table, count in receipt["rows"].items() if count)
    yield f"erased {receipt['what']}: {rows or 'nothing'}"
    if receipt["remaining"] is not None:
        checked, remaining = receipt["checked"], receipt["remaining"]
        yield f"searched the store's files for {checked} erased pieces of text; {remaining} remain"
    yield from (f"some are in {name}; delete it" for name in receipt.get("files", ()))
    for system, sessions in receipt["reread"].items():
        if sessions:
            yield f"{counted(len(sessions), 'session')} will be read again by {system}"
    if receipt["sources"]:
        yield f"kept: {len(receipt['sources'])} source turns; add --with-sources, or a rebuild restores the unit"
    if receipt["what"].startswith("session "):
        yield "a later import of a file with this session leaves it out, unless --with-erased is added"
    elif receipt["what"].startswith("user "):
        yield "a later import of a file with these sessions brings them back; add --with-erased for those erased before"


@click.command()
@settings_options("user", "system", "model", "data_dir", "config")
@click.option("--all-users", is_flag=True, help="Rebuild the memory of every user, one after another.")
@click.option("--resume", is_flag=True, help="With --all-users: skip those that an interrupted run completed.")
@_ray_option
def rebuild(flags: SettingsFlags, *, all_users: bool, resume: bool, ray: str | None) -> None:
    """Rebuild a memory from the raw log.

    With --system, by another memory system. The log itself does not change. With --ray, users are divided among the
    processes of a Ray cluster, each of which opens the store: give it a PostgreSQL database, or a cluster on this
    machine.
    """
    if (resume or ray) and not all_users:
        raise click.UsageError("--resume and --ray need --all-users")
    if all_users and flags.values["user"] is not None:
        raise click.UsageError("--all-users and --user name different users; give one of them")
    settings = flags.load_for(ray)
    if all_users:
        from localmem.experiments.all_users import rebuild_all

        with step_progress() as progress:
            users, count = rebuild_all(settings, ray=ray, resume=resume, notify=note, progress=progress)
        click.echo(f"{settings.system} read {counted(count, 'session')} of {counted(users, 'user')} again")
        return
    from localmem.store.sessions import no_user

    with open_runtime(settings) as runtime:
        if not runtime.store.lookups.exists(settings.user):
            raise no_user(settings.user)
        count, units = runtime.rebuild(settings.user, _sessions_bar)
        notes = len(runtime.agent(settings.user).memory.bank.notes)
    made = f"{counted(units, 'unit')}, {counted(notes, 'note')}"
    click.echo(f"{settings.system} read {counted(count, 'session')} again; {made}")


@click.command()
@settings_options("user", "system", "model", "data_dir", "config")
@click.option("--session", help="Session whose changes to undo.", metavar="ID")
@click.option("--batch", help="Cause of the one batch to undo, as the history shows it.", metavar="CAUSE")
def undo(flags: SettingsFlags, session: str | None, batch: str | None) -> None:
    """Undo the changes of one session or batch.

    A batch without a session is, for example, what was hidden at a request to forget (forget:TURN). Later sessions
    that built on it are read again.
    """
    if (session is None) == (batch is None):
        raise click.UsageError("nothing to undo, or more than one thing; give --session ID or --batch CAUSE")
    settings = flags.load()
    with open_runtime(settings) as runtime:
        runtime.agent(settings.user)  # fails before anything is undone if the system cannot be opened
        store, bank = runtime.store, (settings.user, settings.system)
        reread = store.undo(*bank, session) if session is not None else store.undo_batch(*bank, str(batch))
        count = runtime.replay_waiting(settings.user, _sessions_bar) if reread else 0
    what = f"session {session}" if session is not None else f"batch {batch}"
    click.echo(f"undid the changes of {what}; {counted(count, 'later session')} read again")


def _sessions_bar(jobs: "Sequence[SessionJob]") -> "Iterable[SessionJob]":
    from tqdm import tqdm

    return tqdm(jobs, desc="reading", unit="session", disable=None)


@click.command()
@settings_options("data_dir", "config")
@_ray_option
@json_option
def reindex(flags: SettingsFlags, ray: str | None, as_json: bool) -> None:
    """Re-embed all memories of all users with the configured encoder.

    Rerun after an interruption to resume; the old encoder stays in use until the end. Restart a running server
    afterwards: until then it cannot search and remembers no closed sessions, but nothing is lost.
    """
    settings = flags.load_for(ray)
    from tqdm import tqdm

    from localmem.experiments.all_users import encode_on_ray

    encode = encode_on_ray(settings, ray) if ray else None
    with open_runtime(settings) as runtime:
        summary = runtime.reindex(partial(tqdm, desc="encoding", unit="batch", disable=None), encode)
    if as_json:
        print_json(asdict(summary))
    else:
        click.echo(
            f"{summary.keys} keys use {summary.encoder}: {summary.encoded} newly encoded, "
            f"{summary.dropped} vectors of other encoders deleted"
        )
