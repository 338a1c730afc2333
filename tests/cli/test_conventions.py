"""Conventions over the whole command tree: size of commands, help texts, and one meaning for each option name."""

from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from localmem.cli import _COMMANDS, root
from localmem.config import Settings

MAX_PARAMETERS = 10
WIDTH = 80
SAME_TYPES = {"integer range": "integer", "float range": "float", "file": "path", "directory": "path"}


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of the tree with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None, f"{path} lists {name} and does not have it"
            yield from walk(subcommand, (*path, name))


@pytest.fixture(scope="module")
def tree() -> dict[str, click.Command]:
    return {" ".join(path): command for path, command in walk(root)}


def options_of(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def help_page(path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    outcome = CliRunner().invoke(root, [*path.split(), "--help"], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_no_command_has_more_than_ten_parameters(tree: dict[str, click.Command]) -> None:
    sizes = {path: len(command.params) for path, command in tree.items()}
    assert {path: size for path, size in sizes.items() if size > MAX_PARAMETERS} == {}


def test_every_command_and_every_option_has_a_help_text(tree: dict[str, click.Command]) -> None:
    assert [path for path, command in tree.items() if not command.help] == []
    missing = [
        f"{path} {option.opts[0]}"
        for path, command in tree.items()
        for option in options_of(command)
        if not option.help
    ]
    assert missing == []


def test_options_that_become_settings_state_the_settings_defaults(tree: dict[str, click.Command]) -> None:
    settings = Settings()
    defaults = {
        "--user": settings.user,
        "--system": settings.system,
        "--model": settings.model,
        "--host": settings.server.host,
        "--port": str(settings.server.port),
    }
    helps = {option.opts[0]: option.help for path in ("chat", "serve") for option in options_of(tree[path])}
    assert {name: f"[default: {value}]" in str(helps[name]) for name, value in defaults.items()} == dict.fromkeys(
        defaults, True
    )


def test_help_is_whole_at_80_columns(tree: dict[str, click.Command], monkeypatch: pytest.MonkeyPatch) -> None:
    for path, command in tree.items():
        page = help_page(path, monkeypatch)
        assert max(map(len, page.splitlines())) <= WIDTH, path
        if isinstance(command, click.Group):
            listing = page.partition("Commands:")[2]
            assert "..." not in listing, path
            rows = listing.strip().splitlines()
            names = [name for name in tree if name.rpartition(" ")[0] == path and name]
            assert len(rows) == len(names), f"{path}: a summary takes more than one line"


def test_the_root_lists_the_summaries_of_the_commands(tree: dict[str, click.Command]) -> None:
    summaries = {name: tree[name].get_short_help_str(WIDTH) for name in _COMMANDS}
    assert {name: summary for name, (_, summary) in _COMMANDS.items()} == summaries


def test_an_option_name_means_one_thing(tree: dict[str, click.Command]) -> None:
    """Judged by the type of its value; an option may be repeatable in one command only."""
    uses: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, command in tree.items():
        for option in options_of(command):
            kind = "flag" if option.is_flag else SAME_TYPES.get(option.type.name, option.type.name)
            uses[option.opts[0]][kind].append(path)
    assert {name: dict(kinds) for name, kinds in uses.items() if len(kinds) > 1} == {}
    assert uses.keys() & {"--data", "--half", "--judge", "--systems"} == set()


def test_lists_are_given_by_repetition(tree: dict[str, click.Command]) -> None:
    for path, command in tree.items():
        for option in options_of(command):
            if option.multiple:
                assert "Repeatable." in (option.help or ""), f"{path} {option.opts[0]}"
            assert "comma" not in (option.help or ""), f"{path} {option.opts[0]}"
