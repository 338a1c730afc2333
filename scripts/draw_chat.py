#!/usr/bin/env python3
"""Draw the README's picture: two real conversations with the starter model, a week apart, as an SVG of a terminal.

.venv/bin/python scripts/draw_chat.py > .github/chat.svg
"""

import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

COMMAND = Path(sys.executable).with_name("localmem")
DAYS = {
    "2026-03-02T18:00": ["My sister Clara lives in Lyon and has a dog called Bruno.", "/end"],
    "2026-03-10T09:00": ["Where does my sister Clara live?", "What is the name of her dog?", "/why"],
}
WIDTH, LINE, LEFT, SIZE = 840, 22, 18, 14
COLOURS = {"prompt": "#7ee787", "you": "#79c0ff", "reply": "#e6edf3", "note": "#8b949e"}
_MAX_CHARACTERS = 96


def talk(data: str, moment: str, messages: list[str]) -> list[str]:
    """What `localmem chat` prints for the messages, one line each."""
    chat = subprocess.run(
        [COMMAND, "chat", "--data-dir", data, "--now", moment],
        input="\n".join(messages),
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in chat.stdout.splitlines() if line.strip()]


def transcript() -> list[tuple[str, str]]:
    """The lines of the picture with the kind of each."""
    lines: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as data:
        for moment, messages in DAYS.items():
            output = iter(talk(data, moment, messages))
            lines += [("note", f"# {moment[:10]}"), ("prompt", "$ localmem chat")]
            for message in messages:
                lines.append(("you", f"you: {message}"))
                if message == "/why":
                    lines.append(("note", next(line for line in output if line.startswith("recalled"))))
                elif not message.startswith("/"):
                    lines.append(("reply", next(output)))
            lines.append(("note", ""))
    return lines[:-1]


def draw(lines: list[tuple[str, str]]) -> str:
    """The lines as an SVG image."""
    height = LINE * (len(lines) + 2)
    rows = []
    for row, (kind, text) in enumerate(lines):
        place = f'x="{LEFT}" y="{LINE * (row + 2)}" fill="{COLOURS[kind]}"'
        rows.append(f'<text {place} xml:space="preserve">{escape(_shorten(text))}</text>')
    font = f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{SIZE}"'
    size = f'width="{WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}" {font}>'
    return "\n".join([head, f'<rect {size} rx="8" fill="#0d1117"/>', *rows, "</svg>"])


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."


if __name__ == "__main__":
    print(draw(transcript()))
