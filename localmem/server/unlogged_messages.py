"""Remember, until the server stops, which messages were not to be stored or were erased, by keyed digests in memory.

A client resends the whole dialogue: without this, the first request that stores would store what was said before
without storing, or what was erased since. After a restart, and to other processes, such messages are unknown, and are
stored like a dialogue from elsewhere.
"""

import threading
from collections import OrderedDict
from hashlib import blake2b
from secrets import token_bytes

from localmem.server.session_matching import normalize
from localmem.types import Message

_MOST = 100_000  # messages of all users; the oldest are forgotten


class UnloggedMessages:
    """Messages by user, for many threads."""

    def __init__(self) -> None:
        self._key = token_bytes(32)
        self._digests: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, user: str, message: Message) -> None:
        """This message of the user's dialogue is not to be stored."""
        with self._lock:
            self._digests[self._digest(user, message)] = None
            while len(self._digests) > _MOST:
                self._digests.popitem(last=False)

    def holds(self, user: str, message: Message) -> bool:
        """Whether these words of this side were added for the user, without regard to white space."""
        return bool(self._digests) and self._digest(user, message) in self._digests

    def _digest(self, user: str, message: Message) -> bytes:
        text = "\0".join((user, *normalize(message.role, message.content)))
        return blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()
