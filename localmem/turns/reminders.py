"""Reminders: what was said before, quoted below a reply that it matters for.

The log holds a reply as it was shown. What is learned from it leaves the reminder out, which says nothing new. Pure
functions.
"""

import re
from collections.abc import Generator
from dataclasses import replace

from localmem.types import Completion

_BEGINNING = "\n\nKeep in mind: "
_REMINDER = re.compile(rf'{_BEGINNING}[^\n]+: "[^\n]+"\Z')


def write_reminder(quotation: str) -> str:
    """What is added to a reply to remind of a quotation, which is put on one line."""
    line = " ".join(quotation.split())
    return _BEGINNING + line[:1].lower() + line[1:]


def without_reminder(reply: str) -> str:
    """The reply without its reminder."""
    return _REMINDER.sub("", reply)


def add_reminder(completion: Completion, reminder: str) -> Completion:
    """The completion with the reminder, which may be empty."""
    return replace(completion, text=completion.text + reminder) if reminder else completion


def stream_with_reminder(pieces: Generator[str, None, Completion], reminder: str) -> Generator[str, None, Completion]:
    """The pieces of a reply, then its reminder if there is one."""
    completion = yield from pieces
    if reminder:
        yield reminder
    return add_reminder(completion, reminder)
