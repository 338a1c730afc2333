"""The arrows of the architecture: who may import whom, and what stays light.

The layers themselves stand in pyproject.toml under tool.importlinter.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

import localmem

ROOT = Path(__file__).parent.parent
PACKAGE = Path(localmem.__file__).parent

WEIGHT_LIBRARIES = {
    "accelerate", "bm25s", "faiss", "gguf", "llmlingua", "peft", "safetensors", "sentence_transformers", "tokenizers",
    "torch", "transformers", "vllm", "xgrammar",
}  # fmt: skip
HEAVY = WEIGHT_LIBRARIES | {"numpy", "pydantic", "sqlalchemy", "fastapi", "openai", "httpx", "yaml", "jinja2"}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("localmem", "finetune", include_external_packages=True, cache_dir=None)


def _layers() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [name.strip(" ()") for layer in contract["layers"] for name in layer.replace("|", ":").split(":")]


def test_layers_are_kept() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def test_every_module_has_a_layer() -> None:
    """A module outside the layers would be free to import anything."""
    modules = {
        f"localmem.{path.stem}"
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or next(path.glob("*.py"), None) is not None
    }
    assert modules - {"localmem.__init__"} <= set(_layers())


def test_systems_import_no_library_that_loads_weights(graph: grimp.ImportGraph) -> None:
    systems = graph.find_descendants("localmem.systems")
    assert systems
    imported = {
        target
        for module in systems
        for target in graph.find_modules_directly_imported_by(module)
        if target.partition(".")[0] in WEIGHT_LIBRARIES
    }
    assert imported == set()


def test_systems_do_not_import_one_another(graph: grimp.ImportGraph) -> None:
    owner = {module: ".".join(module.split(".")[:3]) for module in graph.find_descendants("localmem.systems")}
    crossing = [
        (module, target)
        for module, system in owner.items()
        for target in graph.find_modules_directly_imported_by(module)
        if target in owner and owner[target] != system
    ]
    assert crossing == []


def _loaded_by(statement: str) -> set[str]:
    code = (
        f"{statement}\nimport json, sys; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout))


@pytest.mark.parametrize("module", ["localmem", "localmem.cli"])
def test_importing_the_command_loads_nothing_heavy(module: str) -> None:
    assert _loaded_by(f"import {module}") & HEAVY == set()


def test_help_loads_nothing_heavy() -> None:
    statement = "import sys; sys.argv = ['localmem', '--help']\nfrom localmem.cli import main\nimport contextlib, io\n"
    statement += "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()"
    assert _loaded_by(statement) & HEAVY == set()


def test_systems_can_be_imported_without_torch() -> None:
    names = [path.stem for path in (PACKAGE / "systems").iterdir() if path.suffix == ".py" or path.is_dir()]
    modules = [f"localmem.systems.{name}" for name in names if not name.startswith("__")]
    assert _loaded_by("\n".join(f"import {module}" for module in modules)) & {"torch", "transformers"} == set()
