"""Keep, until the server stops, what belongs to the latest replies, by user and id.

That is the dialogues that OpenAI's Responses API continues by the id of a response, and what replies on the page rest
on. Only in memory, and only the latest: a client that gets no answer for an old id sends its dialogue in full.
"""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

_MOST = 1000  # values of all users; the oldest are forgotten

T = TypeVar("T")


class RecentValues(Generic[T]):
    """Values by user and id, for many threads."""

    def __init__(self) -> None:
        self._values: OrderedDict[tuple[str, str], T] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, user: str, name: str, value: T) -> None:
        """The user's value under this id."""
        with self._lock:
            self._values[user, name] = value
            while len(self._values) > _MOST:
                self._values.popitem(last=False)

    def find(self, user: str, name: str) -> T | None:
        """The user's value under this id."""
        with self._lock:
            return self._values.get((user, name))

    def forget(self, user: str) -> None:
        """Drop the user's values: what they quote is being erased."""
        with self._lock:
            for key in [key for key in self._values if key[0] == user]:
                del self._values[key]
