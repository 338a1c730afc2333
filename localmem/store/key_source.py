"""Where the key of an encrypted store comes from: a terminal, the system's keyring or a file. Stores no key in clear.

A key is any text; spaces and line ends around it do not count. Nothing here falls back: a source that has no key is one
error, and so is a key too short to be one.
"""

import sys
from getpass import getpass
from pathlib import Path
from secrets import token_urlsafe

from localmem.errors import BadSettings, requires
from localmem.files import reading
from localmem.store.cipher import KEY_FILE
from localmem.store.encryption import Keys

SOURCES = "give prompt, keyring or file:PATH"

_SERVICE = "localmem"
_SHORTEST = 8


def open_keys(folder: Path, source: str, *, is_new: bool) -> Keys:
    """The keys of the store in `folder`; with `is_new`, made where there are none.

    Raises BadSettings for a source without a key, StoreError for a key that does not fit.
    """
    path = folder / KEY_FILE
    if is_new and not path.exists():
        secret = read_secret(source, folder, is_new=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Keys.create(path, secret)
    return Keys.unlock(path, read_secret(source, folder))


def read_secret(source: str, folder: Path, *, is_new: bool = False) -> bytes:
    """The key. With `is_new` a terminal asks twice, and a keyring without one gets a random key."""
    if source == "prompt":
        secret = _ask(folder, is_new=is_new)
    elif source == "keyring":
        secret = _read_keyring(folder, is_new=is_new)
    else:
        path = Path(source.partition(":")[2]).expanduser()
        with reading(path, "store.key names the file with the key of the store"):
            secret = path.read_text(encoding="utf-8")
    secret = secret.strip()
    if len(secret) < _SHORTEST:
        raise BadSettings(f"the key from {source} has {len(secret)} characters; use {_SHORTEST} or more")
    return secret.encode()


def _ask(folder: Path, *, is_new: bool) -> str:
    if not sys.stdin.isatty():
        raise BadSettings("store.key is prompt and there is no terminal to ask at; set it to keyring or file:PATH")
    secret = getpass(f"{'New key' if is_new else 'Key'} of the store in {folder}: ")
    if is_new and getpass("The same again: ") != secret:
        raise BadSettings("the two keys differ; try again")
    return secret


def _read_keyring(folder: Path, *, is_new: bool) -> str:
    with requires("store.key is keyring, which needs the Python package {}", "encryption"):
        import keyring
        from keyring.errors import KeyringError
    name = str(folder.resolve())
    try:
        secret = keyring.get_password(_SERVICE, name)
        if secret is None and is_new:
            secret = token_urlsafe(32)
            keyring.set_password(_SERVICE, name, secret)
    except KeyringError as error:
        raise BadSettings(f"the keyring cannot be used ({error}); set store.key to prompt or file:PATH") from error
    if secret is None:
        raise BadSettings(f"the keyring has no key {_SERVICE!r} for {name}; add it, or set store.key to another source")
    return secret
