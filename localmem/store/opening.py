"""Opens the store that the settings name, encrypted or not as they say. A wrong setting is an error, no fallback."""

from pathlib import Path

from localmem.config import Settings
from localmem.errors import BadSettings
from localmem.store.cipher import check_header
from localmem.store.database import FILE
from localmem.store.encryption import Keys
from localmem.store.key_source import SOURCES, open_keys
from localmem.store.sql import Store


def open_store(settings: Settings) -> Store:
    """The store, with its index files in the data directory. Raises StoreError, BadSettings."""
    keys = settings_keys(settings)
    return Store.open(settings.store_url, indexes=settings.data / "index", keys=keys)


def settings_keys(settings: Settings, *, may_create: bool = True) -> Keys | None:
    """The keys of an encrypted store, made for a new one if allowed; None where the settings want no encryption."""
    if not settings.store.encryption:
        if settings.store.key:
            raise BadSettings("store.key is set and store.encryption is off; turn it on, or unset the key")
        return None
    source, file = key_source(settings), database_file(settings)
    if file:
        check_header(file, with_keys=True)
    is_new = file is None or not file.exists() or file.stat().st_size == 0
    return open_keys(settings.data, source, is_new=is_new and may_create)


def key_source(settings: Settings) -> str:
    """Where the key comes from. Raises BadSettings where that is not set."""
    if not settings.store.key:
        raise BadSettings(f"store.encryption is on and store.key is not set; {SOURCES}")
    return settings.store.key


def database_file(settings: Settings) -> Path | None:
    """The SQLite file; None on PostgreSQL. Raises BadSettings for an SQLite URL, which has no folder for its keys."""
    if settings.database is None:
        return settings.data / FILE
    if settings.database.startswith("sqlite"):
        raise BadSettings("store.encryption needs the data directory or PostgreSQL, not an sqlite URL; unset database")
    return None
