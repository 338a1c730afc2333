"""`localmem remember | recall | show | rebuild | undo | forget`: looking at a memory, feeding it, mending it.

Knows how these look on a terminal; store, runtime and agent do the work.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import (
    Moment,
    common,
    json_option,
    model_option,
    note,
    print_json,
    runtime_of,
    settings_of,
)

if TYPE_CHECKING:
    from localmem.bank import Bank
    from localmem.config import Settings
    from localmem.memory import Memory
    from localmem.retrieval.base import Scope
    from localmem.runtime import Runtime
    from localmem.store.records import Receipt, UnitHistory
    from localmem.types import Recall

_FOUND = 10  # units that a search shows


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@common(model_option, json_option)
def remember(
    file: Path,
    user: str | None,
    system: str | None,
    data: Path | None,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Read past conversations into memory: JSONL of sessions, or an OpenAI export's conversations.json.

    Sessions that are remembered already are passed over, so an interrupted run goes on where it stopped.
    """
    from tqdm import tqdm

    from localmem.store.conversation_files import Names, read_sessions

    settings = settings_of(config, data, user, system, model=model)
    names = Names(settings.chat.user_name, settings.chat.assistant_name)
    sessions = read_sessions(file, names)
    with runtime_of(settings) as runtime:
        agent, store = runtime.agent(settings.user), runtime.store
        done = {info.id for info in store.sessions(settings.user) if info.jobs.get(settings.system) == "done"}
        todo = [session for session in sessions if session.id not in done]
        for session in tqdm(todo, desc="remembering", unit="session", disable=None):
            agent.read([session])
        report = {"read": len(todo), "known": len(sessions) - len(todo), "units": len(agent.memory.bank.units)}
    if as_json:
        print_json({"user": settings.user, "system": settings.system, **report})
    else:
        click.echo(
            f"{report['read']} sessions remembered, {report['known']} were known; {report['units']} units in all"
        )


@click.command()
@click.argument("text")
@common(
    json_option,
    click.option("--now", type=Moment(), help="When it is asked.", metavar="TIME"),
    click.option("--as-of", type=Moment(end=True), help="By the memory as it stood then.", metavar="DATE"),
    click.option("--speaker", help="Search only what is about this speaker, or about both sides.", metavar="NAME"),
    click.option("--since", type=Moment(), help="Search only what took place then or later.", metavar="DATE"),
    click.option("--until", type=Moment(end=True), help="Search only what took place by then.", metavar="DATE"),
)
def recall(
    text: str,
    user: str | None,
    system: str | None,
    data: Path | None,
    config: Path | None,
    as_json: bool,
    now: datetime | None,
    as_of: datetime | None,
    speaker: str | None,
    since: datetime | None,
    until: datetime | None,
) -> None:
    """Show what would be recalled, and so shown to the model, if the user said TEXT now.

    With --speaker, --since or --until: the units that a search for TEXT finds among those, which no system does itself.
    """
    from localmem.retrieval.base import Scope

    settings = settings_of(config, data, user, system)
    asked = Scope(speaker, since, until, now or as_of or datetime.now(UTC))
    with runtime_of(settings) as runtime:
        memory = runtime.memory_at(settings.user, as_of) if as_of else runtime.agent(settings.user).memory
        found = _found(memory, settings, text, asked)
    if as_json:
        print_json({"text": found.text, "hits": [{"score": hit.score, **asdict(hit.unit)} for hit in found.hits]})
    else:
        click.echo(found.text or "nothing is recalled")


def _found(memory: "Memory", settings: "Settings", text: str, asked: "Scope") -> "Recall":
    """What the system recalls; or, in a narrowed scope, what a search finds, in time order as systems show it."""
    from localmem.text.dialogue import dated
    from localmem.types import Recall, Session, Turn

    if asked.now and (asked.speaker, asked.since, asked.until) == (None, None, None):
        turn = Turn("probe.0", "user", settings.chat.user_name, text, asked.now)
        return memory.recall(Session("probe", (turn,)))
    if not memory.keeps_units:
        raise click.UsageError(f"system {settings.system!r} keeps no single units to search; leave the filters out")
    hits = tuple(sorted(memory.search(text, _FOUND, asked), key=lambda hit: hit.unit.time))
    return Recall(dated(hit.unit for hit in hits), hits)


@click.command()
@common(
    json_option,
    click.option("--as-of", type=Moment(end=True), help="The memory as it stood then.", metavar="DATE"),
    click.option("--history", help="How one unit came to be.", metavar="ID"),
)
def show(
    user: str | None,
    system: str | None,
    data: Path | None,
    config: Path | None,
    as_json: bool,
    as_of: datetime | None,
    history: str | None,
) -> None:
    """Show a memory: its units, links and notes, now or as it stood at a date; or the history of one unit."""
    settings = settings_of(config, data, user, system)
    with runtime_of(settings) as runtime:
        if history:
            life = runtime.store.history(settings.user, settings.system, history)
            if as_json:
                print_json(asdict(life))
            else:
                click.echo(_life(life))
            return
        bank = runtime.store.bank(settings.user, settings.system, as_of)
    if as_json:
        print_json(_plain_bank(bank))
    else:
        click.echo(describe(bank) or f"{settings.system} remembers nothing of {settings.user}")
        tell_unread(runtime)


@click.command()
@common(model_option)
def rebuild(user: str | None, system: str | None, data: Path | None, config: Path | None, model: str | None) -> None:
    """Read the raw log again with the system that --system names; not a word of the log is lost or changed."""
    settings = settings_of(config, data, user, system, model=model)
    with runtime_of(settings) as runtime:
        runtime.agent(settings.user)  # what cannot be read again is not taken back
        runtime.store.clear(settings.user, settings.system)
        count = _remember_waiting(runtime, settings.user)
        units = len(runtime.agent(settings.user).memory.bank.units)
    click.echo(f"{count} sessions read again by {settings.system}; {units} units")


@click.command()
@common(model_option, click.option("--session", required=True, help="The session to take back.", metavar="ID"))
def undo(
    session: str, user: str | None, system: str | None, data: Path | None, config: Path | None, model: str | None
) -> None:
    """Take back what one session changed in memory; sessions that built on it are read again."""
    settings = settings_of(config, data, user, system, model=model)
    with runtime_of(settings) as runtime:
        runtime.agent(settings.user)  # what cannot be read again is not taken back
        again = runtime.store.undo(settings.user, settings.system, session)
        count = _remember_waiting(runtime, settings.user) if again else 0
    click.echo(f"what session {session} changed is taken back; {count} later sessions were read again")


@click.command()
@common(
    json_option,
    click.option("--unit", help="Erase one unit.", metavar="ID"),
    click.option("--session", help="Erase one session and what was drawn from it.", metavar="ID"),
    click.option("--all", "everything", is_flag=True, help="Erase everything of this user."),
    click.option("--with-sources", is_flag=True, help="With --unit: erase the turns it came from as well."),
    click.option("--yes", is_flag=True, help="Do not ask."),
)
def forget(
    user: str | None,
    system: str | None,
    data: Path | None,
    config: Path | None,
    as_json: bool,
    unit: str | None,
    session: str | None,
    everything: bool,
    with_sources: bool,
    yes: bool,
) -> None:
    """Erase for good, with a receipt: one unit, one session, or all of a user. The erased cannot be brought back."""
    if [bool(unit), bool(session), everything].count(True) != 1:
        raise click.UsageError("name one thing to erase: --unit ID, --session ID or --all")
    if everything and user is None:
        raise click.UsageError("--all needs --user, so that nobody is erased by default")
    settings = settings_of(config, data, user, system)
    what = f"unit {unit}" if unit else f"session {session}" if session else "everything"
    if not yes:
        click.confirm(f"erase {what} of {settings.user} for good?", abort=True, err=True)
    with runtime_of(settings) as runtime:
        if unit:
            receipt = runtime.store.delete_unit(settings.user, settings.system, unit, sources=with_sources)
        elif session:
            receipt = runtime.store.delete_session(settings.user, session)
        else:
            receipt = runtime.store.delete_user(settings.user)
    if as_json:
        print_json(asdict(receipt))
    else:
        click.echo(_receipt(receipt))
    if receipt.left:
        sys.exit(1)


def describe(bank: "Bank") -> str:
    """A bank on a terminal: notes, live units, links. Empty text for an empty bank."""
    lines = [f"{name}:\n{text}" for name, text in bank.notes.items()]
    lines += [f"{unit.id}  {unit.time:%Y-%m-%d}  {unit.text}" for unit in bank.live()]
    lines += [f"{link.source} -{link.relation}-> {link.target}" for link in bank.links]
    if bank.retired:
        lines.append(f"({len(bank.retired)} retired units are kept in history)")
    return "\n".join(lines)


def _plain_bank(bank: "Bank") -> Mapping[str, object]:
    return {
        "units": [{**asdict(unit), "retired": unit.id in bank.retired} for unit in bank.units.values()],
        "links": [asdict(link) for link in bank.links],
        "notes": dict(bank.notes),
        "marks": [{"unit": unit, "mark": mark, "value": value} for (unit, mark), value in bank.marks.items()],
    }


def _life(life: "UnitHistory") -> str:
    return "\n".join(_life_lines(life))


def _life_lines(life: "UnitHistory") -> Iterator[str]:
    yield f"{life.unit.id} ({'live' if life.live else 'retired'}): {life.unit.text}"
    for turn in life.sources:
        yield f"  said {turn.time:%Y-%m-%d %H:%M} by {turn.speaker}: {turn.text}"
    for event in life.events:
        state = "" if event.state == "active" else f" [{event.state}]"
        yield f"  {event.change.time:%Y-%m-%d %H:%M} {event.change.type} by {event.cause}{state}"


def _receipt(receipt: "Receipt") -> str:
    lines = [
        f"erased {receipt.what}: " + (", ".join(f"{n} {table}" for table, n in receipt.rows.items() if n) or "nothing")
    ]
    if receipt.left is not None:
        lines.append(f"looked for {receipt.checked} pieces of it in the store's files; {receipt.left} are left")
    lines += [f"{len(ids)} sessions wait to be read again by {system}" for system, ids in receipt.again.items() if ids]
    if receipt.sources:
        lines.append(
            f"kept: {len(receipt.sources)} turns it came from; --with-sources erases them, or a rebuild brings it back"
        )
    return "\n".join(lines)


def _remember_waiting(runtime: "Runtime", user: str) -> int:
    """Do the user's waiting jobs in order, with a bar; a failure stops at the session that failed."""
    from tqdm import tqdm

    from localmem.errors import LLMError

    runtime.forget_agent(user)
    jobs = runtime.waiting_jobs(user)
    for done, job in enumerate(tqdm(jobs, desc="reading", unit="session", disable=None)):
        if not runtime.remember(job, relive=True):
            raise LLMError(f"session {job.session} could not be remembered; {done} of {len(jobs)} are; run it again")
    return len(jobs)


def tell_unread(runtime: "Runtime") -> None:
    """A user who changed systems may wonder where the past is."""
    settings = runtime.settings
    unread = runtime.store.unread(settings.user, settings.system)
    if unread.sessions:
        note(
            f"{unread.sessions} closed sessions are not remembered by {settings.system}; "
            f"`localmem rebuild --user {settings.user} --system {settings.system}` reads them"
        )
