"""The code before the newest migration of the store, from the history of this checkout, as a program of victims."""

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localmem.store.schema import SCRIPTS
from tests.drills.processes import ROOT, Victims


@contextmanager
def old_victims(folder: Path) -> Iterator[Victims]:
    """Victims of that code; the test is skipped in a checkout without the history."""
    newest = max((SCRIPTS / "versions").glob("[0-9]*.py"))
    added = _git("log", "--diff-filter=A", "--format=%H", "--", str(newest.relative_to(ROOT))).decode().split()
    if not added:
        pytest.skip(f"this checkout has no history of {newest.name}")
    root = folder / "earlier"
    with tarfile.open(
        fileobj=io.BytesIO(_git("archive", f"{added[-1]}^", "localmem", "tests", "configs", "models"))
    ) as code:
        code.extraction_filter = getattr(tarfile, "data_filter", None)  # Python has it from 3.11.4 on
        code.extractall(root)  # noqa: S202  # of this checkout
    (root / "pyproject.toml").write_bytes(_git("show", f"{added[-1]}^:pyproject.toml"))
    (root / "models" / "weights").symlink_to(ROOT / "models" / "weights")
    with Victims(root, root) as victims:
        yield victims


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False).stdout
