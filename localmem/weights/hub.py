"""Fetches weights from a model hub: one commit, the files that transformers loads, each compared with its checksum.

The hub's address and the user's token are the library's business (HF_ENDPOINT, HF_TOKEN). Knows nothing of the manifest
file; what it got is returned, for the caller to pin.
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
from typing import TYPE_CHECKING

from localmem.errors import PullFailed
from localmem.weights.folder import checksum
from localmem.weights.manifest import HubSource

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_LOADED = ("*.json", "*.txt", "*.model", "*.spm", "*.jinja", "*.safetensors", "LICENSE*", "NOTICE*", "USE_POLICY*")
# The same weights once more, in another layout.
_SECOND_COPY = "consolidated*"


@dataclass(frozen=True, slots=True)
class HubFile:
    """What the hub says of a file: bytes, and sha256 (large files) or git hash (small ones)."""

    size: int
    sha256: str | None
    git_hash: str | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files to fetch of one commit."""

    hub: str
    commit: str
    files: dict[str, HubFile]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files.values())


def look_up(source: HubSource) -> Snapshot:
    """Asks the hub which commit and which files a source means. Raises PullFailed when it cannot tell."""
    from huggingface_hub import HfApi

    with _failures(source):
        info = HfApi().model_info(source.hub, revision=source.revision, files_metadata=True)
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    names = wanted(siblings, source.include)
    if info.sha is None or not names:
        raise PullFailed(f"{source.hub} at {source.revision} holds no weights to load: check the manifest's include")
    return Snapshot(source.hub, info.sha, {name: _told(siblings[name]) for name in sorted(names)})


def _told(sibling: "RepoSibling") -> HubFile:
    if sibling.lfs:
        return HubFile(sibling.lfs.size, sibling.lfs.sha256, None)
    return HubFile(sibling.size or 0, None, sibling.blob_id)


def wanted(names: Iterable[str], include: tuple[str, ...]) -> set[str]:
    """The files to fetch: those of `include`, else what transformers loads, pickled weights where no others are."""
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
    # Below the root, only the numbered folders of sentence-transformers ("1_Pooling") are read.
    if folder and not fullmatch(r"\d+_\w+", folder):
        return False
    return any(fnmatch(file, pattern) for pattern in _LOADED) and not fnmatch(file, _SECOND_COPY)


def fetch_snapshot(snapshot: Snapshot, into: Path) -> None:
    """Downloads the files below `into`, going on where an earlier attempt stopped, and compares every checksum.

    Raises PullFailed; a file that differs is removed, so that the next attempt fetches it anew.
    """
    from huggingface_hub import snapshot_download

    names = [escape(name) for name in snapshot.files]
    with _failures(HubSource(hub=snapshot.hub, revision=snapshot.commit)):
        snapshot_download(snapshot.hub, revision=snapshot.commit, local_dir=into, allow_patterns=names)
    for name, file in snapshot.files.items():
        if not _is_as_told(into / name, file):
            (into / name).unlink(missing_ok=True)
            shutil.rmtree(into / ".cache", ignore_errors=True)
            raise PullFailed(f"{snapshot.hub}: {name} differs from the hub's checksum: pull again")
    shutil.rmtree(into / ".cache", ignore_errors=True)


def _is_as_told(path: Path, file: HubFile) -> bool:
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    if file.sha256 is not None:
        return checksum(path) == file.sha256
    return file.git_hash is None or git_hash(path) == file.git_hash


def git_hash(path: Path) -> str:
    """The name git gives to a file's content."""
    content = path.read_bytes()
    return sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@contextmanager
def _failures(source: HubSource) -> Iterator[None]:
    """Turns what the hub's library raises into one line with the cure."""
    import httpx
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        yield
    except OfflineModeIsEnabled as error:
        raise PullFailed(
            f"{source.hub} cannot be pulled offline: unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE"
        ) from error
    except GatedRepoError as error:
        raise PullFailed(f"{source.hub} asks you to accept its licence on the hub first: then set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise PullFailed(
            f"the hub knows no {source.hub} that you may read: set HF_TOKEN or mend the manifest"
        ) from error
    except (httpx.HTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise PullFailed(
            f"{source.hub} at {source.revision} could not be fetched ({reason}): check the network"
        ) from error
