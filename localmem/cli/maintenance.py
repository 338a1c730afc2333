"""`localmem rebuild | undo | reindex | export | import`: change, move or restore a whole memory."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import SettingsFlags, json_option, note, open_runtime, print_json, settings_options

if TYPE_CHECKING:
    from localmem.runtime import Runtime


@click.command()
@settings_options("user", "system", "model", "data_dir", "config")
def rebuild(flags: SettingsFlags) -> None:
    """Rebuild a memory from the raw log.

    With --system, by another memory system. The log itself does not change.
    """
    settings = flags.load()
    with open_runtime(settings) as runtime:
        runtime.agent(settings.user)  # fails before anything is cleared if the system cannot be opened
        runtime.store.clear(settings.user, settings.system)
        count = _remember_waiting(runtime, settings.user)
        units = len(runtime.agent(settings.user).memory.bank.units)
    click.echo(f"{settings.system} read {count} sessions again; {units} units")


@click.command()
@settings_options("user", "system", "model", "data_dir", "config")
@click.option("--session", required=True, help="Session whose changes to undo.", metavar="ID")
def undo(flags: SettingsFlags, session: str) -> None:
    """Undo what one session changed.

    Later sessions that built on it are read again.
    """
    settings = flags.load()
    with open_runtime(settings) as runtime:
        runtime.agent(settings.user)  # fails before anything is undone if the system cannot be opened
        reread = runtime.store.undo(settings.user, settings.system, session)
        count = _remember_waiting(runtime, settings.user) if reread else 0
    click.echo(f"undid the changes of session {session}; {count} later sessions were read again")


def _remember_waiting(runtime: "Runtime", user: str) -> int:
    """Remember the user's waiting sessions in order, with a progress bar. Raises LLMError at the first failure."""
    from tqdm import tqdm

    from localmem.errors import LLMError

    runtime.forget_agent(user)
    jobs = runtime.waiting_jobs(user)
    for count, job in enumerate(tqdm(jobs, desc="reading", unit="session", disable=None)):
        if not runtime.remember(job, replay=True):
            raise LLMError(f"cannot remember session {job.session} ({count} of {len(jobs)} completed); run it again")
    return len(jobs)


@click.command()
@settings_options("data_dir", "config")
@json_option
def reindex(flags: SettingsFlags, as_json: bool) -> None:
    """Re-embed all memories with the configured encoder.

    Rerun after an interruption to resume; the old encoder stays in use until the end. Restart a running server
    afterwards: with the old encoder it can search no more, and closed sessions wait, but nothing is lost.
    """
    from tqdm import tqdm

    with open_runtime(flags.load()) as runtime:
        summary = runtime.reindex(partial(tqdm, desc="encoding", unit="batch", disable=None))
    if as_json:
        print_json(asdict(summary))
    else:
        click.echo(
            f"{summary.keys} keys use {summary.encoder}: {summary.encoded} newly encoded, "
            f"{summary.dropped} vectors of other encoders deleted"
        )


@click.command("export")
@settings_options("user", "data_dir", "config")
@click.option("--out", type=click.Path(path_type=Path), help="Output file (default: stdout).", metavar="FILE")
def export(flags: SettingsFlags, out: Path | None) -> None:
    """Export one user's sessions and memory.

    Writes JSONL with the sessions, turns and memory of every system.
    """
    from localmem.files import write_atomic

    settings = flags.load()
    with open_runtime(settings) as runtime:
        lines = (f"{line}\n" for line in runtime.store.export(settings.user))
        if out is None:
            sys.stdout.writelines(lines)
            return
        write_atomic(out, lines)
    note(f"wrote {out}")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--user", help="Import as this user instead of the exported one.", metavar="NAME")
@settings_options("data_dir", "config")
def import_(file: Path, user: str | None, flags: SettingsFlags) -> None:
    """Import what `export` wrote.

    After an error nothing is imported.
    """
    from localmem.files import read_text

    settings = flags.load(user=user)
    lines = read_text(file, "give a file written by `localmem export`").splitlines()
    with open_runtime(settings) as runtime:
        summary = runtime.store.restore(lines, str(file), user)
    if summary.new:
        click.echo(f"imported {summary.sessions} sessions with {summary.turns} turns for {summary.user}")
    else:
        click.echo(f"nothing to import: {summary.user} already has all of it")
