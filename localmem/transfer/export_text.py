"""Moving out: sessions as JSON lines that `localmem remember` and other programs read, or as one Markdown page."""

import json
from collections.abc import Iterable, Iterator, Mapping

from localmem.bank import Bank
from localmem.types import Session


def write_lines(sessions: Iterable[Session]) -> Iterator[str]:
    """One session per line, with its turns."""
    for session in sessions:
        turns = [
            {"role": turn.role, "speaker": turn.speaker, "text": turn.text, "time": turn.time.isoformat()}
            for turn in session.turns
        ]
        if turns:
            yield json.dumps({"id": session.id, "turns": turns}, ensure_ascii=False)


def write_markdown(user: str, sessions: Iterable[Session], banks: Mapping[str, Bank]) -> Iterator[str]:
    """The lines of a page: each session with its day, then what each system remembers."""
    yield f"# Conversations of {user}"
    for session in sessions:
        if session.turns:
            yield from ("", f"## {session.turns[0].time:%d %B %Y, %H:%M} ({session.id})")
        for turn in session.turns:
            yield from ("", f"**{turn.speaker}**, {turn.time:%H:%M}:", "", turn.text)
    for system, bank in banks.items():
        yield from _memory_lines(system, bank)


def _memory_lines(system: str, bank: Bank) -> Iterator[str]:
    live = [unit for unit in bank.units.values() if bank.is_live(unit.id)]
    if live or bank.notes:
        yield from ("", f"# Memory of the system {system}")
    for name, text in bank.notes.items():
        yield from ("", f"## {name}", "", text)
    if live:
        yield ""
    for unit in live:
        yield f"- {unit.time:%d %B %Y}: {' '.join(unit.text.split())}"
