"""What the shell completes, asked as a shell asks."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run


def _complete(localmem: Run, words: str) -> list[str]:
    count = len(words.split(" ")) - 1
    variables = {"_LOCALMEM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    output = localmem(env=variables).stdout
    return [line.partition(",")[2] for line in output.splitlines()]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("localmem ses", ["sessions"]),
        ("localmem chat --system sec", ["secom"]),
        ("localmem chat --model smollm2-135", ["smollm2-135m-instruct"]),
        ("localmem show --user an", ["ana"]),
    ],
)
def test_names_are_completed(localmem: Run, session_log: Path, words: str, names: list[str]) -> None:
    if "--user" in words:
        localmem("remember", session_log, "--user", "ana")
    assert _complete(localmem, words) == names
