"""The wheel has the package and its data, but no training code and no results; training says what it needs."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from localmem.evaluation.datasets.labelled_pairs import SHIPPED

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    process = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_has_one_package_and_no_results(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"localmem"}
    assert [name for name in names if "results" in Path(name).parts] == []


def test_the_wheel_has_the_data_that_the_package_reads(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert wheel.read("localmem/evaluation/data/operations/operations.jsonl") == SHIPPED.read_bytes()
    assert "localmem/evaluation/data/operations/README.md" in names
    assert "localmem/data/models/manifest.yaml" in names
    for folder in ("systems", "finetune"):
        shipped = {f"localmem/data/configs/{path.relative_to(ROOT / 'configs')}" for path in _yaml_files(folder)}
        assert shipped
        assert shipped <= names


@pytest.mark.parametrize("command", ["distill", "finetune"])
def test_an_installed_wheel_lists_training_and_says_that_it_needs_a_checkout(
    wheel: zipfile.ZipFile, tmp_path: Path, command: str
) -> None:
    wheel.extractall(tmp_path)
    top = _run(tmp_path, "--help")
    assert top.returncode == 0
    assert f"  {command} " in top.stdout
    own = _run(tmp_path, command, "--help")
    assert own.returncode == 0, own.stderr
    assert "Needs a checkout" in own.stdout
    refused = _run(tmp_path, command, "train", "DIR", "--out", "x")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.count("\n") == 1
    assert "needs a checkout of the project" in refused.stderr


def test_only_pipelines_and_commands_of_training_import_finetune() -> None:
    """The wheel must work without it, so that all other modules may not even import it inside of functions."""
    importing = {
        path.relative_to(ROOT / "localmem").as_posix()
        for path in (ROOT / "localmem").rglob("*.py")
        if re.search(r"^\s*(from|import) finetune\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    pipelines = {"distillation", "lesson_sources", "operation_comparison", "student_comparison", "student_gate"}
    pipelines |= {"student_proof"}
    allowed = {f"experiments/{name}.py" for name in pipelines}
    assert importing - {"cli/distill.py", "cli/finetune.py"} == allowed


def _yaml_files(folder: str) -> list[Path]:
    return list((ROOT / "configs" / folder).rglob("*.yaml"))


def _run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command of the wheel that was unpacked into the folder; `-P` keeps the checkout off the path."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from localmem.cli import main; main()"
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
