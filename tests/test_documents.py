"""What the documents show works: commands parse with their options, scripts and links exist, snippets run.

Every Markdown page of the repository is read, but for those that are written by a program or hold a model's card.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml

from localmem.benchmark.recipes import LatencyRecipe
from localmem.cli import root
from localmem.cli.recipes import build_recipe
from localmem.config import load_settings, system_names
from localmem.resources import checkout_root, resource

ROOT = checkout_root() or Path()
GENERATED = {Path("localmem/cli/README.md"), Path("configs/README.md")}
README_LINES = 170


@dataclass(frozen=True)
class Document:
    """A page, by its path from the root."""

    path: Path

    @property
    def text(self) -> str:
        return (ROOT / self.path).read_text(encoding="utf-8")

    def blocks(self, language: str) -> list[str]:
        """The code blocks of a language."""
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.DOTALL | re.MULTILINE)

    def commands(self, program: str) -> list[list[str]]:
        """The command lines of a program, from shell blocks and from code in the text, split into words."""
        lines = [line for block in self.blocks("bash") for line in block.replace("\\\n", " ").splitlines()]
        prose = re.sub(r"^```.*?^```", "", self.text, flags=re.DOTALL | re.MULTILINE)
        lines += [code for code in re.findall(r"`([^`\n]+)`", prose) if "..." not in code and "[" not in code]
        words = [_without_environment(shlex.split(line, comments=True)) for line in lines if _can_split(line)]
        return [command for command in words if command and command[0].startswith(program)]


def _can_split(line: str) -> bool:
    return line.count("'") % 2 == 0 and line.count('"') % 2 == 0


def _without_environment(words: list[str]) -> list[str]:
    """The command without the variables in front of it and without the environment's path."""
    while words and re.match(r"^[A-Z_]+=", words[0]):
        words = words[1:]
    return [words[0].removeprefix(".venv/bin/"), *words[1:]] if words else []


def _documents() -> list[Document]:
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = tracked.stdout.split() or [str(path.relative_to(ROOT)) for path in ROOT.glob("*.md")]
    skipped = ("localmem/prompts/", "tests/")
    return [
        Document(Path(name))
        for name in names
        if Path(name) not in GENERATED and not name.startswith(skipped) and (ROOT / name).exists()
    ]


DOCUMENTS = _documents()
README = Document(Path("README.md"))


def _all_commands(program: str) -> list[object]:
    return [
        pytest.param(command, id=f"{document.path}: {' '.join(command)}")
        for document in DOCUMENTS
        for command in document.commands(program)
    ]


@pytest.mark.parametrize("command", _all_commands("localmem"))
def test_each_command_parses(command: list[str]) -> None:
    context = click.Context(root, info_name="localmem")
    parsed: click.Command = root
    words = command[1:]
    while isinstance(parsed, click.Group) and words and not words[0].startswith("-"):
        child = parsed.get_command(context, words[0])
        assert child is not None, f"there is no command {words[0]!r}"
        context = click.Context(child, parent=context, info_name=words[0])
        parsed, words = child, words[1:]
    if words and not {"--help", "--version"} & {*words}:
        parsed.parse_args(context, list(words))


def test_there_are_commands_to_check() -> None:
    assert len(README.commands("localmem")) > 10
    assert len(README.commands("scripts/")) >= 3


@pytest.mark.parametrize("command", _all_commands("scripts/"))
def test_each_script_exists_and_can_be_run(command: list[str]) -> None:
    script = ROOT / command[0]
    assert script.exists()
    assert script.is_dir() or script.stat().st_mode & 0o111


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.path))
def test_each_link_leads_somewhere(document: Document) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.text)
    missing = [
        target
        for target in targets
        if not re.match(r"[a-z]+:", target) and not (ROOT / document.path.parent / target).exists()
    ]
    assert missing == []


def test_the_readme_is_short() -> None:
    assert README.text.count("\n") <= README_LINES


def test_the_settings_shown_load(tmp_path: Path) -> None:
    (block,) = README.blocks("yaml")
    path = tmp_path / "settings.yaml"
    path.write_text(block)
    assert load_settings(path).server.keys == {"a-long-secret": "ana", "another-secret": "ben"}


@pytest.mark.slow
def test_the_python_shown_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], starter_llm_dir: Path
) -> None:
    assert starter_llm_dir.is_dir()
    monkeypatch.setenv("LOCALMEM_DATA", str(tmp_path))
    (snippet,) = (block for block in README.blocks("python") if "LocalMem" in block)
    exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102  # our own README
    recalled, *_ = capsys.readouterr().out.splitlines()
    assert "Clara lives in Lyon" in recalled


LONG = ("serve", "bench", "demo")  # run until they are stopped, or for many minutes
MISSING = "not on this machine|has no (person|session)|[Tt]here is no|No such file|holds no|is not a |not be fetched"


@pytest.fixture(scope="module")
def reader_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one who tries the README from its top, with a past conversation and no data set."""
    home = tmp_path_factory.mktemp("reader")
    turn = '{"role": "user", "text": "My dog is called Rex.", "time": "2026-03-01T10:00:00+00:00"}'
    for name in ("conversations.json", "log.jsonl"):
        (home / name).write_text(f'{{"id": "ID", "turns": [{turn}]}}\n', encoding="utf-8")
    return home


@pytest.mark.slow
@pytest.mark.usefixtures("starter_llm_dir", "starter_encoder_dir")
@pytest.mark.parametrize("command", dict.fromkeys(map(shlex.join, README.commands("localmem"))))
def test_each_command_of_the_readme_works_without_a_network(command: str, reader_home: Path) -> None:
    """It runs, or names in a line what this folder does not have: a data set, a large model."""
    isolated = f"{ROOT}/scripts/without_network {sys.executable} -m {command}"
    environment = {**os.environ, "LOCALMEM_DATA": str(reader_home / "data"), "PYTHONPATH": str(ROOT)}
    is_long = command.split()[1] in LONG
    with subprocess.Popen(
        shlex.split(isolated), cwd=reader_home, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate("y\n", timeout=8 if is_long else 550)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            output, _ = process.communicate()
    assert "Traceback" not in output
    assert is_long or process.returncode == 0 or re.search(MISSING, output), output


@pytest.mark.parametrize("path", sorted(resource("configs/bench").glob("*.yaml")), ids=lambda path: path.name)
def test_each_shipped_benchmark_recipe_loads(path: Path) -> None:
    """Recipes of training and evaluation are loaded by the tests of their commands, systems by the settings' tests."""
    assert build_recipe(LatencyRecipe, path).systems


@pytest.mark.parametrize("system", system_names())
def test_every_option_of_a_system_has_a_sentence(system: str) -> None:
    page = (ROOT / "localmem" / "systems" / "docs" / f"{system}.md").read_text(encoding="utf-8")
    assert not re.findall(r"^\| `(\w+)` \|.*\|  \|$", page, re.MULTILINE)


def test_the_reference_pages_are_those_of_the_code() -> None:
    command = [sys.executable, "scripts/generate_docs.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_figure_that_is_measured_again_and_differs_is_reported(tmp_path: Path) -> None:
    """`scripts/check_figures` on a copy of three figures, of which one no longer comes out, and one no longer can."""
    script = tmp_path / "scripts" / "check_figures"
    figures = tmp_path / "localmem/evaluation/results/figures.yaml"
    rows = [
        {"what": name, "figure": "3", "recheck": {"command": "python -c 'print(1 + 2)'", "prints": [printed]}}
        for name, printed in (("one", "3"), ("another", "4"))
    ]
    broken = {"command": "python -c 'import sys; sys.exit(\"no data\")'", "prints": ["3"]}
    rows.append({"what": "a third", "figure": "3", "recheck": broken})
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    for path, text in (
        (script, (ROOT / "scripts/check_figures").read_text(encoding="utf-8")),
        (figures, yaml.safe_dump(rows)),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    python = Path(sys.base_prefix) / "bin" / "python3"  # the script changes to the project's environment
    result = subprocess.run([python, script], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "same: one: 3",
        "differs: another: 3",
        "  python -c 'print(1 + 2)' does not print: 4",
        "differs: a third: 3",
        f"  {broken['command']} fails: no data",
    ]


def test_every_figure_has_what_made_it() -> None:
    figures = yaml.safe_load((ROOT / "localmem/evaluation/results/figures.yaml").read_text(encoding="utf-8"))
    assert len(figures) > 30
    for row in figures:
        assert row["what"], row
        assert row["figure"], row
        assert row["since"], row
        assert row.get("command") or row.get("page"), row
        assert not row.get("page") or (ROOT / row["page"]).is_file(), row
