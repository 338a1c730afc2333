"""Fetches weights from a model hub: one commit, the files that transformers loads, each compared with its checksum.

huggingface_hub reads the hub's address and the user's token (HF_ENDPOINT, HF_TOKEN). Returns what was fetched, for the
caller to pin; does not write the manifest.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from glob import escape
from hashlib import sha1
from pathlib import Path
from re import fullmatch

from localmem.errors import PullFailed
from localmem.weights.folder import checksum
from localmem.weights.manifest import HubSource

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
