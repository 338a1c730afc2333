"""The command as a whole: help, exit codes, one-line errors, and what the process sets for its libraries."""

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import Run


def test_help_lists_every_command_and_each_has_its_own_help(localmem: Run) -> None:
    from localmem.cli import _COMMANDS

    top = localmem("--help")
    assert top.returncode == 0
    for name, (_, summary) in _COMMANDS.items():
        assert summary in top.stdout
        page = localmem(name, "--help")
        assert page.returncode == 0, page.stderr
        assert page.stdout.startswith(f"Usage: python -m localmem {name}")


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["chatt"], 2, "No such command 'chatt' (did you mean 'chat'?)."),
        (["zzz"], 2, "No such command 'zzz'."),
        (["recall", "x", "--system", "rsumm"], 2, "did you mean 'rsum'"),
        (["remember", "absent.jsonl"], 2, "cannot read absent.jsonl"),
        (["show", "--as-of", "soon"], 2, "'soon' is not a time"),
        (["recall", "x", "--happened", "soon"], 2, "'soon'"),
        (["recall", "x", "--speaker", "Ana", "--system", "full_history"], 2, "keeps no units to search"),
        (["show", "--config", "absent.yaml"], 2, "cannot read absent.yaml"),
        (["show", "--history", "nobody"], 1, "nobody"),
        (["undo", "--session", "nobody"], 1, "nobody"),
        (["import", "absent.jsonl"], 2, "absent.jsonl"),
        (["show", "--user", ""], 2, "'user' cannot be ''"),
        (["recall", "x", "--user", " "], 2, "'user' cannot be ' '"),
        (["import", "absent.jsonl", "--user", ""], 2, "'user' cannot be ''"),
        (["forget", "--all", "--user", "", "--yes"], 2, "'user' cannot be ''"),
    ],
)
def test_a_mistake_is_one_line(localmem: Run, arguments: list[str], code: int, message: str) -> None:
    finished = localmem(*arguments)
    assert finished.returncode == code, finished.stderr
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.stdout == ""


@pytest.mark.parametrize(("value", "expected"), [(None, "1000"), ("7", "7")])
def test_the_command_limits_openmp_spinning_unless_the_user_sets_it(value: str | None, expected: str) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "GOMP_SPINCOUNT"}
    program = (
        "import os, sys, contextlib, localmem.cli\n"
        "sys.argv = ['localmem', '--version']\n"
        "with contextlib.suppress(SystemExit): localmem.cli.main()\n"
        "print(os.environ['GOMP_SPINCOUNT'])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | ({"GOMP_SPINCOUNT": value} if value else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.splitlines()[-1] == expected
