"""Keep, until the server stops, the dialogues that OpenAI's Responses API continues by the id of a response.

Only in memory, and only the latest: a client that gets no answer for an old id sends its dialogue in full.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

Messages = Sequence[Mapping[str, object]]

_MOST = 1000  # dialogues of all users; the oldest are forgotten


class PastDialogues:
    """Messages in OpenAI's form by user and id of a response, for many threads."""

    def __init__(self) -> None:
        self._dialogues: OrderedDict[tuple[str, str], Messages] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, user: str, response_id: str, messages: Messages) -> None:
        """The user's dialogue up to and with this response."""
        with self._lock:
            self._dialogues[user, response_id] = messages
            while len(self._dialogues) > _MOST:
                self._dialogues.popitem(last=False)

    def find(self, user: str, response_id: str) -> Messages | None:
        """The dialogue that ends with this response of the user."""
        with self._lock:
            return self._dialogues.get((user, response_id))

    def forget(self, user: str) -> None:
        """Drop the user's dialogues: what they quote is being erased."""
        with self._lock:
            for key in [key for key in self._dialogues if key[0] == user]:
                del self._dialogues[key]
