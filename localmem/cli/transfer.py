"""`localmem export | import`: one user's words and memory as JSONL, out of a store and into one."""

import sys
from pathlib import Path

import click

from localmem.cli.options import config_option, data_option, note, runtime_of, settings_of, user_option
from localmem.files import read_text, write_atomic


@click.command("export")
@config_option
@data_option
@user_option
@click.option("--out", type=click.Path(path_type=Path), help="The file to write; default: stdout.", metavar="FILE")
def export(config: Path | None, data: Path | None, user: str | None, out: Path | None) -> None:
    """Write one user's sessions, turns and memory of every system as JSONL."""
    settings = settings_of(config, data, user)
    with runtime_of(settings) as runtime:
        lines = (f"{line}\n" for line in runtime.store.export(settings.user))
        if out is None:
            sys.stdout.writelines(lines)
            return
        write_atomic(out, lines, "choose another --out", mode=0o600)
        note(f"wrote {out}")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@data_option
@click.option("--user", help="Import as this user instead of the one in the file.", metavar="U")
def import_(file: Path, config: Path | None, data: Path | None, user: str | None) -> None:
    """Read what export wrote, all of it or, after an error, nothing."""
    settings = settings_of(config, data)
    lines = read_text(file, "give a file that `localmem export` wrote").splitlines()
    with runtime_of(settings) as runtime:
        done = runtime.store.restore(lines, str(file), user)
    if done.new:
        click.echo(f"imported {done.sessions} sessions with {done.turns} turns for {done.user}")
    else:
        click.echo(f"{done.user} has all of it already")
