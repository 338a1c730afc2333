"""Encrypted SQLite files, by SQLCipher: which files are, and connections to them. Does not know the tables."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmem.errors import BadInput, StoreError, requires
from localmem.files import open_apart

if TYPE_CHECKING:
    from types import ModuleType

KEY_FILE = "memory.keys"

# The first bytes of every SQLite file that is not encrypted.
_HEADER = b"SQLite format 3\0"


def is_encrypted(file: Path) -> bool | None:
    """Whether an SQLite file is encrypted, or damaged at its first bytes; None for one that is empty or missing."""
    if not file.exists():
        return None
    try:
        with open_apart(file) as stream:
            header = stream.read(len(_HEADER))
    except BadInput:  # its error is raised when the database is opened
        return None
    return header != _HEADER if header else None


def check_header(file: Path, *, with_keys: bool) -> None:
    """Raises StoreError for a file that is encrypted without keys, or is not with them."""
    has_keys = file.with_name(KEY_FILE).exists()
    encrypted = is_encrypted(file) if with_keys or has_keys else None
    if with_keys and encrypted is False:
        raise StoreError(
            f"{file} is not encrypted and store.encryption is on; run `localmem store encrypt`, or turn it off"
        )
    if not with_keys and encrypted:
        raise StoreError(f"{file} is encrypted and store.encryption is off; set store.encryption and store.key")


def load_driver() -> "ModuleType":
    """The driver of encrypted files. Raises MissingExtra."""
    with requires("an encrypted store needs the Python package {}", "encryption"):
        from sqlcipher3 import dbapi2
    module: ModuleType = dbapi2
    return module


def key_literal(key: bytes) -> str:
    """The key itself and not a passphrase: SQLCipher then need not stretch it for every connection."""
    return f"\"x'{key.hex()}'\""


def connector(key: bytes) -> Callable[..., Any]:
    """A listener for SQLAlchemy's event do_connect."""
    module, literal = load_driver(), key_literal(key)

    def connect(_dialect: object, _entry: object, arguments: list[Any], options: dict[str, Any]) -> object:
        connection = module.connect(*arguments, **options)
        connection.execute(f"PRAGMA key = {literal}")  # before anything reads the file
        connection.execute("PRAGMA cipher_log_level = NONE")  # it would print lines of its own for what is raised
        return connection

    return connect
