"""The two sides of a conversation at a terminal: reading what the user types, and showing a reply as it streams.

On a terminal a line can be edited, the last ones come back with the arrow keys, a paste of several lines is one
message, and a reply is shown as Markdown, paragraph by paragraph. From a pipe, lines are read and text is written as it
is. The libraries load when a terminal is there and the first line is read.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

_FENCE = "```"


class Screen(Protocol):
    """Where a conversation takes place."""

    def read(self) -> str | None:
        """The next message of the user, or None at the end of input and at Ctrl-C."""

    def show(self, pieces: Iterator[str]) -> None:
        """Show a reply while it comes."""


def open_screen(history: Path | None) -> Screen:
    """A terminal's screen where input and output are one, else a plain one. `history` keeps the typed lines.

    Without one they are kept in memory only.
    """
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _Terminal(history)
    return _Plain()


class _Plain:
    """Lines in, text out."""

    def read(self) -> str | None:
        try:
            return input().strip()
        except (EOFError, KeyboardInterrupt):
            return None

    def show(self, pieces: Iterator[str]) -> None:
        for piece in pieces:
            click.echo(piece, nl=False)


class _Terminal:
    """Line editing by prompt-toolkit, Markdown by rich."""

    def __init__(self, history: Path | None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        if history:
            history.touch(mode=0o600)  # private words: only the owner may read them
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)) if history else InMemoryHistory(),
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation=".... ",
        )

    def read(self) -> str | None:
        try:
            return self._session.prompt("you: ").strip()
        except (EOFError, KeyboardInterrupt):
            return None

    def show(self, pieces: Iterator[str]) -> None:
        """The paragraph that is being written is drawn again with each piece; a complete one stays as it is."""
        from rich.console import Console
        from rich.live import Live
        from rich.markdown import Markdown

        console = Console()
        text = ""
        try:
            with Live(console=console, transient=True, refresh_per_second=12) as live:
                for piece in pieces:
                    *blocks, text = split_blocks(text + piece)
                    for block in blocks:
                        console.print(Markdown(block))
                    live.update(Markdown(text))
        finally:  # what there is of the last paragraph, also after Ctrl-C
            if text.strip():
                console.print(Markdown(text))


def split_blocks(text: str) -> list[str]:
    """The paragraphs and code blocks of a Markdown text; all but the last are complete."""
    blocks, lines, in_code = list[str](), list[str](), False
    for line in text.split("\n"):
        in_code ^= line.lstrip().startswith(_FENCE)
        if line.strip() or in_code or not lines:
            lines.append(line)
        else:
            blocks.append("\n".join(lines))
            lines = []
    return [*blocks, "\n".join(lines)]


def _keys() -> "KeyBindings":
    """Enter sends and Alt-Enter begins a new line; in a paste, line ends are text."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: "KeyPressEvent") -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def begin_line(event: "KeyPressEvent") -> None:
        event.current_buffer.insert_text("\n")

    return keys
