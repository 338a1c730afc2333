"""Progress bars: one for each step on a terminal, nothing in a pipe."""

import io
import sys

import pytest

from localmem.cli.options import step_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "pipe"])
def test_steps_have_bars_on_a_terminal_only(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with step_progress() as show:
        show("searching", 1, 2)
        show("searching", 2, 2)
        show("reflecting", 3, 3)
    output = stream.getvalue()
    if not stream.isatty():
        assert output == ""
        return
    assert "searching: 100%" in output
    assert "reflecting: 100%" in output
