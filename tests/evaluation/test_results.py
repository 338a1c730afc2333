"""The summaries of measurements: small, readable, and with commands whose recipe fields exist."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from localmem.cli import recipes, root
from localmem.resources import checkout_root

FOLDER = (checkout_root() or Path()) / "localmem" / "evaluation"
RESULTS = sorted((FOLDER / "results").iterdir()) if (FOLDER / "results").is_dir() else []
PAGES = [path for path in (FOLDER / "README.md", *RESULTS) if path.suffix == ".md" and path.exists()]
_ENDED_AFTER_RECIPE = 87  # the exit code of a command that is stopped once its recipe is valid


def _commands() -> list[str]:
    blocks = [block for path in PAGES for block in re.findall(r"```bash\n(.*?)```", path.read_text(), re.DOTALL)]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return sorted({line for line in lines if line.startswith("localmem ") and "--set " in line})


def test_a_summary_is_at_most_20_kilobytes() -> None:
    assert {path.name: path.stat().st_size for path in RESULTS if path.stat().st_size > 20_000} == {}
    assert sum(path.stat().st_size for path in RESULTS) <= 250_000


@pytest.mark.parametrize("path", [path for path in RESULTS if path.suffix == ".json"], ids=lambda path: path.name)
def test_figures_are_json(path: Path) -> None:
    assert json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", _commands())
def test_each_command_sets_fields_that_exist(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = recipes.build_recipe

    def stop(model: type[BaseModel], *sources: object) -> BaseModel:
        build(model, *sources)  # type: ignore[arg-type]  # what the command passes
        raise SystemExit(_ENDED_AFTER_RECIPE)

    monkeypatch.setattr(recipes, "build_recipe", stop)
    outcome = CliRunner().invoke(root, shlex.split(line, comments=True)[1:])
    assert outcome.exit_code == _ENDED_AFTER_RECIPE, (outcome.output, outcome.exception)
