"""Adapters that come with localmem, small enough to stand beside its code: which prompts of a model go through them.

Knows the manifest's sizes and checksums; knows nothing of how an adapter is run.
"""

from pathlib import Path

from localmem.errors import ModelDamaged
from localmem.resources import resource
from localmem.weights.folder import checksum
from localmem.weights.manifest import Adapter, FileSum, Manifest

_FOLDER = "models/adapters"


def shipped_adapters(model: str) -> dict[str, Path]:
    """Prompt names, and the folder of the adapter that answers each for this model.

    Raises ModelDamaged for one whose files are not of their size.
    """
    found: dict[str, Path] = {}
    for adapter in Manifest.load().adapters:
        if adapter.base == model:
            folder = _whole(adapter)
            found |= dict.fromkeys(adapter.prompts, folder)
    return found


def folder_of(adapter: Adapter) -> Path:
    """Where it stands. Raises ModelDamaged where it does not."""
    try:
        return resource(f"{_FOLDER}/{adapter.name}")
    except FileNotFoundError as error:
        raise ModelDamaged(f"the adapter {adapter.name} is not part of this installation; install it again") from error


def wrong_files(adapter: Adapter) -> list[str]:
    """The files of an adapter whose size or checksum is not the manifest's."""
    folder = folder_of(adapter)
    return [name for name, expected in adapter.files.items() if not _same(folder / name, expected)]


def _same(path: Path, expected: FileSum) -> bool:
    return path.is_file() and path.stat().st_size == expected.size and checksum(path) == expected.sha256


def _whole(adapter: Adapter) -> Path:
    folder = folder_of(adapter)
    for name, expected in adapter.files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != expected.size:
            raise ModelDamaged(
                f"{path} is missing or not of {expected.size:,} bytes; install localmem again, or set "
                "llm.shipped_adapters to false"
            )
    return folder
