"""A conversation of `localmem chat` in its own process."""

from pathlib import Path

from tests.cli.conftest import Run


def test_a_model_without_weights_is_said_before_anything_is_stored(localmem: Run, tmp_path: Path) -> None:
    for text in ("My dog is called Bruno.\n", ""):
        result = localmem("chat", "--model", "mistral-7b-instruct-v0.3", "--data-dir", tmp_path, stdin=text)
        assert result.returncode == 1
        assert "model mistral-7b-instruct-v0.3 is not on this machine" in result.stderr
    assert localmem("sessions", "--data-dir", tmp_path).stdout == "no sessions\n"
