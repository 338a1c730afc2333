"""What the README shows works: every command parses with its options, every script is there, every snippet runs."""

import re
import shlex
from pathlib import Path

import click
import pytest

from localmem.benchmark.latency.recipe import LatencyRecipe
from localmem.chat.conversation import Conversation
from localmem.cli import _root
from localmem.cli.recipes import build_recipe
from localmem.config import load_settings
from localmem.resources import checkout_root, resource

ROOT = checkout_root() or Path()
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def _commands(program: str) -> list[list[str]]:
    lines = [line for block in _blocks("bash") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    inline = [shlex.split(code) for code in re.findall(r"`([^`\n]+)`", README)]
    return [command for command in words + inline if command and command[0].startswith(program)]


@pytest.mark.parametrize("command", _commands("localmem "[:-1]), ids=" ".join)
def test_each_command_parses(command: list[str]) -> None:
    context = click.Context(_root, info_name="localmem")
    found: click.Command = _root
    rest = command[1:]
    while isinstance(found, click.Group) and rest:
        child = found.get_command(context, rest[0])
        assert child is not None, f"there is no command {rest[0]!r}"
        context = click.Context(child, parent=context, info_name=rest[0])
        found, rest = child, rest[1:]
    if "--help" not in rest:
        found.parse_args(context, list(rest))


def test_there_are_commands_to_check() -> None:
    assert len(_commands("localmem")) > 10
    assert len(_commands("scripts/")) >= 4


@pytest.mark.parametrize("command", _commands("scripts/"), ids=" ".join)
def test_each_script_is_there_and_can_be_run(command: list[str]) -> None:
    script = ROOT / command[0]
    assert script.is_file()
    assert script.stat().st_mode & 0o111


def test_the_settings_shown_load(tmp_path: Path) -> None:
    (block,) = _blocks("yaml")
    path = tmp_path / "settings.yaml"
    path.write_text(block)
    settings = load_settings(path)
    assert settings.server.keys == {"a-long-secret": "ana", "another-secret": "ben"}


def test_the_python_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starter_llm_dir: Path) -> None:
    assert starter_llm_dir.is_dir()
    monkeypatch.setenv("LOCALMEM_DATA", str(tmp_path))
    snippet = next(block for block in _blocks("python") if "load_agent" in block)
    names: dict[str, object] = {}
    exec(compile(snippet, "README.md", "exec"), names)  # noqa: S102  # our own README
    agent = names["agent"]
    assert isinstance(agent, Conversation)
    assert any("Clara" in unit.text for unit in agent.memory.bank.live())


@pytest.mark.parametrize("path", sorted(resource("configs").rglob("*.yaml")), ids=lambda path: path.name)
def test_each_shipped_settings_file_loads(path: Path) -> None:
    if path.parent == resource("configs/bench"):
        build_recipe(LatencyRecipe, path)
        return
    if path.parent == resource("configs/eval"):
        return  # recipes, loaded in tests/experiments/test_eval_recipes.py
    load_settings(path)
