"""`localmem backup | restore`: the whole store as one file, and back. Only parsing and terminal output."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from localmem.cli.options import (
    SettingsFlags,
    age_option,
    identity_option,
    json_option,
    note,
    print_json,
    settings_options,
)

if TYPE_CHECKING:
    from localmem.store.backup import Backup


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@age_option
@settings_options("data_dir", "config")
@json_option
def backup(file: Path, flags: SettingsFlags, age: str | None, as_json: bool) -> None:
    """Write all users' data into one file.

    A server may keep running. The backup is a snapshot of one moment and is verified before it replaces FILE. The
    backup of an encrypted store is encrypted too; reading it needs memory.keys, which it does not contain.
    """
    from localmem.store.backup import back_up
    from localmem.store.opening import settings_keys

    settings = flags.load()
    keys = settings_keys(settings)
    if age is None:
        _print(back_up(settings.store_url, file, keys), "backed up to", as_json=as_json)
        return
    from localmem.files import write_atomic
    from localmem.store.age import encrypt

    with TemporaryDirectory(dir=settings.data, prefix=".backup-") as work:  # nothing plain beside FILE
        copy = back_up(settings.store_url, Path(work) / "copy", keys)
        write_atomic(file, encrypt(copy.file.read_bytes(), age), mode=0o600)
    _print(replace(copy, file=file), "backed up to", as_json=as_json)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Rename an existing store to memory.db.replaced-N.")
@identity_option
@settings_options("data_dir", "config")
@json_option
def restore(file: Path, force: bool, identity: Path | None, flags: SettingsFlags, as_json: bool) -> None:
    """Restore the store from a backup.

    Stop the server first. FILE is verified before it is used. Data erased after the backup comes back, except for
    erased users of an encrypted store. With --force, delete the renamed old store yourself.
    """
    from localmem.errors import BadSettings
    from localmem.store.backup import restore_backup
    from localmem.store.opening import settings_keys

    settings = flags.load()
    if settings.database is not None:
        raise BadSettings("database is set, and a backup is restored into a data directory; unset it")
    keys = settings_keys(settings, may_create=False)  # a backup opens with those of its store alone
    if identity is None:
        restored = restore_backup(file, settings.data, keys, replace=force)
    else:
        from localmem.files import write_atomic
        from localmem.store.age import decrypt

        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=settings.data, prefix=".restore-") as work:
            plain = Path(work) / "copy"
            write_atomic(plain, decrypt(file, identity), mode=0o600)
            restored = restore_backup(plain, settings.data, keys, replace=force)
    _print(restored, "restored", as_json=as_json)
    if restored.aside:
        note(f"the store before is {restored.aside}; delete it when you need it no more")


def _print(backup: "Backup", what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(backup.file), "rows": backup.rows, "aside": backup.aside})
        return
    counts = ", ".join(f"{count} {table}" for table, count in backup.rows.items())
    click.echo(f"{what} {backup.file}: {counts}; verified")
