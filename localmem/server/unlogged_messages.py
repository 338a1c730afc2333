"""Remember which messages were not to be stored or were erased, by keyed digests in the data directory.

A client resends the whole dialogue: without this, the first request that stores would store what was said before
without storing, or what was erased since. To the servers of other data directories such messages are unknown, and are
stored like a dialogue from elsewhere.
"""

from localmem.server.session_matching import normalize
from localmem.store.digest_files import DigestFiles
from localmem.types import Message


class UnloggedMessages:
    """Messages by user, for many threads and processes."""

    def __init__(self, digests: DigestFiles) -> None:
        self._digests = digests

    def add(self, user: str, *messages: Message) -> None:
        """These messages of the user's dialogues are not to be stored. Raises StoreError."""
        self._digests.add(user, *map(_text, messages))

    def holds(self, user: str, message: Message) -> bool:
        """Whether these words of this side were added for the user, without regard to white space."""
        return self._digests.has_any(user) and self._digests.holds(user, _text(message))


def _text(message: Message) -> str:
    return "\0".join(normalize(message.role, message.content))
