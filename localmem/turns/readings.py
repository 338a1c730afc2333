"""Readings: the replies of the reader, which only repeat what is known, and the words by which they are recognised.

Does not know how what they quote is chosen.
"""

import re

from localmem.turns.reminders import without_reminder

NOT_KNOWN = "You haven't told me that."
CLOSEST = "The closest I have:"
SAYS = {"user": "you said", "assistant": "I said", "document": "you showed me a text that says"}
NOTED, FIRST_SAID = "I noted", "you first said"
_QUOTES = re.compile(
    rf'^(?:On \d+ \w+ \d+ )?(?:{"|".join((*SAYS.values(), NOTED, FIRST_SAID))}): "', re.IGNORECASE | re.MULTILINE
)


def is_reading(reply: str) -> bool:
    """Whether a reply of the assistant is the reader's."""
    return reply.startswith((NOT_KNOWN, CLOSEST)) or _QUOTES.search(without_reminder(reply)) is not None
