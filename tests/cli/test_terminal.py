"""localmem chat in a real pseudo-terminal, on the starter: a paste, Ctrl-C, Markdown, and no library's bar."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localmem.cli.terminal import split_blocks

READY = "\x1b[?2004h"  # a prompt asks the terminal to mark pastes when it begins to read
PASTE = "\x1b[200~My dog is called Bruno.\nMy cat is called Tom.\x1b[201~\r"


class PseudoTerminal:
    """A `localmem chat` whose input and output are a terminal, and all that it has shown."""

    def __init__(self, folder: Path) -> None:
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("LOCALMEM_")} | {
            "XDG_DATA_HOME": str(folder),
            "LOCALMEM_RETRIEVAL__RETRIEVER": "bm25",
            "LOCALMEM_CHAT__READER": "none",
            "LOCALMEM_CHAT__MAX_TOKENS": "400",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "TERM": "xterm-256color",
        }
        self._main, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "localmem", "chat"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=self.environment,
            start_new_session=True,
        )
        os.close(terminal)
        self.shown = ""

    def send(self, text: str) -> None:
        os.write(self._main, text.encode())

    def wait_for(self, text: str, seconds: float = 120) -> None:
        """Read until the text is shown after what was waited for before."""
        start, end = len(self.shown), time.monotonic() + seconds
        while text not in self.shown[start:]:
            assert time.monotonic() < end, self.shown[-2000:]
            self._read(1)

    def wait_for_end(self) -> int:
        while self.process.poll() is None:
            self._read(1)
        return self.process.returncode

    def _read(self, seconds: float) -> None:
        if select.select([self._main], [], [], seconds)[0]:
            try:
                self.shown += os.read(self._main, 65536).decode(errors="replace")
            except OSError:  # the other side is closed
                self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._main)


@pytest.fixture
def terminal(tmp_path: Path, starter_llm_dir: Path) -> Iterator[PseudoTerminal]:
    opened = PseudoTerminal(tmp_path)
    yield opened
    opened.close()


@pytest.mark.slow
def test_a_paste_is_one_message_and_ctrl_c_ends_the_reply_alone(terminal: PseudoTerminal) -> None:
    terminal.wait_for(READY)
    terminal.send(PASTE)
    terminal.wait_for(READY, 240)  # the reply is complete and the next line is awaited
    terminal.send("Write a long story in ten chapters about Bruno and Tom and a journey over the sea.\r")
    terminal.wait_for("\x1b[?2004l")  # the line is sent
    terminal.wait_for("\x1b[2K")  # the reply is being drawn again as it grows
    os.killpg(terminal.process.pid, signal.SIGINT)
    terminal.wait_for(READY)
    terminal.send("/sessions\r")
    terminal.wait_for("first_words")
    terminal.send("/quit\r")
    assert terminal.wait_for_end() == 0
    assert "%|" not in terminal.shown
    assert "Traceback" not in terminal.shown
    command = [sys.executable, "-m", "localmem", "export", "--format", "sessions"]
    lines = subprocess.run(command, env=terminal.environment, capture_output=True, text=True, check=True).stdout
    turns = json.loads(lines)["turns"]
    assert turns[0]["text"] == "My dog is called Bruno.\nMy cat is called Tom."
    assert [turn["role"] for turn in turns[:3]] == ["user", "assistant", "user"]


def test_complete_paragraphs_and_code_stay_as_they_are() -> None:
    assert split_blocks("one\ntwo") == ["one\ntwo"]
    assert split_blocks("one\n\ntwo") == ["one", "two"]
    assert split_blocks("```\na\n\nb\n```\n\nend") == ["```\na\n\nb\n```", "end"]
    assert split_blocks("a\n\n```\nb\n\n") == ["a", "```\nb\n\n"]
