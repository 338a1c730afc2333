"""`localmem store`: encrypt and decrypt the store, change its key, verify a receipt of an erasure."""

from pathlib import Path

import click

from localmem.cli.options import SettingsFlags, note, settings_options


@click.group()
def store() -> None:
    """Encrypt the store, change its key, verify receipts."""


@store.command()
@settings_options("data_dir", "config")
def encrypt(flags: SettingsFlags) -> None:
    """Encrypt the store.

    Set store.encryption to true and store.key first; stop the server. An interrupted run leaves the store as it was.
    Old backups and exports stay as they are.
    """
    _convert(flags, encrypt=True)


@store.command()
@settings_options("data_dir", "config")
def decrypt(flags: SettingsFlags) -> None:
    """Decrypt the store.

    Then set store.encryption to false. An interrupted run leaves the store as it was.
    """
    _convert(flags, encrypt=False)


def _convert(flags: SettingsFlags, *, encrypt: bool) -> None:
    from localmem.errors import without_passwords
    from localmem.store.conversion import convert
    from localmem.store.key_source import open_keys
    from localmem.store.opening import database_file, key_source

    settings = flags.load()
    if not settings.store.encryption:
        raise click.UsageError("store.encryption is off; to encrypt or decrypt, set it to true and set store.key")
    database_file(settings)  # refuses what cannot be encrypted
    keys = open_keys(settings.data, key_source(settings), is_new=encrypt)
    what, where = "encrypted" if encrypt else "decrypted", without_passwords(str(settings.store_url))
    if convert(settings.store_url, settings.data, keys, encrypt=encrypt):
        note(f"{what} {where}" + ("" if encrypt else "; now set store.encryption to false"))
    else:
        note(f"{where} is {what} already")


@store.command()
@settings_options("data_dir", "config")
@click.option("--new-key", required=True, help="Source of the new key: prompt, keyring or file:PATH.", metavar="SOURCE")
def rekey(flags: SettingsFlags, new_key: str) -> None:
    """Change the key that opens the store.

    Then set store.key to its source. The data is not re-encrypted: an old copy of memory.keys still opens with the
    old key. To replace all keys, decrypt and encrypt.
    """
    from localmem.store.key_source import open_keys, read_secret
    from localmem.store.opening import key_source

    settings = flags.load()
    keys = open_keys(settings.data, key_source(settings), is_new=False)
    keys.change_secret(read_secret(new_key, settings.data, is_new=True))
    note(f"{settings.data / 'memory.keys'} now opens with the key from {new_key}")


@store.command()
@click.argument("receipt", type=click.Path(path_type=Path))
@settings_options("data_dir", "config")
def verify(receipt: Path, flags: SettingsFlags) -> None:
    """Verify a receipt from `forget --json` or the server.

    Fails if it was changed or comes from another data directory.
    """
    from pydantic import TypeAdapter

    from localmem.errors import BadInput
    from localmem.files import read_json
    from localmem.store.receipts import verify as verify_receipt

    document = read_json(receipt, TypeAdapter(dict[str, object]), "give the JSON of one receipt")
    if not verify_receipt(document, flags.load().data):
        raise BadInput(f"{receipt} is genuine, but its key {document['key']} is not that of this data directory")
    click.echo(f"genuine: {document['what']}, {document['time']}")
