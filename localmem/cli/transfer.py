"""`localmem export | import`: one user's words and memory as JSONL, out of a store and into one."""

import sys
from pathlib import Path

import click

from localmem.cli.options import config_option, data_option, note, runtime_of, settings_of, user_option
from localmem.errors import BadInput


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
        draft = out.with_name(out.name + ".part")
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(lines)
        draft.replace(out)
        note(f"wrote {out}")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@data_option
@click.option("--user", help="Import as this user instead of the one in the file.", metavar="U")
def import_(file: Path, config: Path | None, data: Path | None, user: str | None) -> None:
    """Read what export wrote, all of it or, after an error, nothing."""
    settings = settings_of(config, data)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {file}: {error}; give a file that `localmem export` wrote") from error
    with runtime_of(settings) as runtime:
        done = runtime.store.restore(lines, str(file), user)
    if done.new:
        click.echo(f"imported {done.sessions} sessions with {done.turns} turns for {done.user}")
    else:
        click.echo(f"{done.user} has all of it already")
