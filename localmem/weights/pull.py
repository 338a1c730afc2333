"""Brings weights of the manifest onto this machine: fetch, check, convert, check again, put in place in one step.

An interrupted pull goes on where it stopped; of two pulls of one model at once, the second waits and finds the work
done. Says what it will fetch and how large before it starts. Knows no registry and no hub; `archives` and `hub` do.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from localmem.errors import BadInput, PullFailed
from localmem.weights.archives import describe, fetch_archive, unpack
from localmem.weights.convert import gguf_to_transformers
from localmem.weights.folder import PARTIAL, damage, human, lock, sums
from localmem.weights.hub import Snapshot, fetch_snapshot, look_up
from localmem.weights.manifest import Entry, HubSource, Local, Manifest, Pin, RegistrySource, models_dir

Say = Callable[[str], None]


class _Fetch(Protocol):
    """How one model's files come to be below a folder, once it is known where they are."""

    @property
    def words(self) -> str: ...

    @property
    def download(self) -> int: ...

    def __call__(self, work: Path, folder: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class _FromRegistry:
    model: Entry
    source: RegistrySource

    @property
    def words(self) -> str:
        return describe(self.source)

    @property
    def download(self) -> int:
        return self.source.archive.size

    def __call__(self, work: Path, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        archive = fetch_archive(self.source, work / "archive")
        names = self.source.take or tuple(self.model.files)
        if self.model.convert is None:
            unpack(archive, self.source, names, folder)
            return
        unpack(archive, self.source, names, work / "raw")
        gguf_to_transformers(work / "raw" / names[0], folder)


@dataclass(frozen=True, slots=True)
class _FromHub:
    snapshot: Snapshot

    @property
    def words(self) -> str:
        return f"{self.snapshot.hub} at {self.snapshot.commit[:12]} from the model hub"

    @property
    def download(self) -> int:
        return self.snapshot.size

    def __call__(self, work: Path, folder: Path) -> None:
        fetch_snapshot(self.snapshot, folder)


def pull(names: Sequence[str], say: Say, directory: Path | None = None) -> list[Path]:
    """Makes the named models (or groups) present and whole; returns their folders.

    Raises BadInput for an unknown name and PullFailed; what is in place already stays untouched by a failure.
    """
    directory = directory or models_dir()
    models = Manifest.load(directory).expand(names)
    waiting = [model for model in models if not _is_here(model, directory, say)]
    fetches = {model.name: _fetch(model) for model in waiting}
    for model in waiting:
        fetch = fetches[model.name]
        say(f"{model.name}: will fetch {human(fetch.download)}, {fetch.words} ({model.licence})")
    _require_space(directory, sum(fetch.download + 2 * (model.size or 0) for model, fetch in _pairs(waiting, fetches)))
    for model in waiting:
        with lock(directory, model.name):
            # Another pull may have finished while this one waited, and pinned what it got.
            if damage(Manifest.load(directory).entry(model.name), directory / model.name) is not None:
                _install(model, fetches[model.name], directory)
        say(f"{model.name}: ready")
    return [directory / model.name for model in models]


def _pairs(models: Sequence[Entry], fetches: dict[str, _Fetch]) -> list[tuple[Entry, _Fetch]]:
    return [(model, fetches[model.name]) for model in models]


def _is_here(model: Entry, directory: Path, say: Say) -> bool:
    problem = damage(model, directory / model.name)
    if problem is None:
        how = "and whole" if model.files else "put there by hand: its checksums are unknown"
        say(f"{model.name}: here already, {how}")
    elif (directory / model.name).exists():
        say(f"{model.name}: damaged ({problem})")
    return problem is None


def _fetch(model: Entry) -> _Fetch:
    if isinstance(model.source, HubSource):
        return _FromHub(look_up(model.source))
    if isinstance(model.source, RegistrySource):
        return _FromRegistry(model, model.source)
    raise BadInput(f"{model.name} was imported from a folder and cannot be pulled: import it again with --replace")


def _require_space(directory: Path, needed: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise PullFailed(f"{directory} has {human(free)} free and {human(needed)} are needed: make room first")


def _install(model: Entry, fetch: _Fetch, directory: Path) -> None:
    work = directory / PARTIAL / model.name
    folder = work / "folder"
    fetch(work, folder)
    if model.files:
        if problem := damage(model, folder):
            shutil.rmtree(folder)
            raise PullFailed(
                f"{model.name} was fetched but is not what the manifest says ({problem}): nothing was kept"
            )
    elif isinstance(fetch, _FromHub):
        _pin(model, fetch.snapshot.commit, folder, directory)
    put_in_place(folder, directory / model.name)
    shutil.rmtree(work)


def _pin(model: Entry, commit: str, folder: Path, directory: Path) -> None:
    pin = Pin(revision=commit, files=sums(folder, model.name))
    with lock(directory, "local.yaml"):
        local = Local.load(directory)
        local.model_copy(update={"pins": {**local.pins, model.name: pin}}).save(directory)


def put_in_place(folder: Path, target: Path) -> None:
    """Renames a whole folder to where it belongs; a damaged one that stood there goes."""
    for path in folder.rglob("*"):
        # Some writers make their files readable by their owner alone; a models folder is often shared.
        path.chmod(0o755 if path.is_dir() else 0o644)
    old = folder.with_name("old")
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    folder.rename(target)
    shutil.rmtree(old, ignore_errors=True)
