"""What is not to be stored when it comes again: messages that were erased or never to be stored, and erased sessions.

They are known by keyed digests in the data directory. A client resends the whole dialogue: without this, the first
request that stores would store what was said before without storing, or what was erased since; and an import would
bring erased sessions back. To the stores of other data directories they are unknown. They outlast their user.
"""

from collections.abc import Iterable

from localmem.store.digest_files import DigestFiles
from localmem.text.dialogue import normalize
from localmem.types import Message


class UnloggedMessages:
    """Messages and erased sessions by user, for many threads and processes."""

    def __init__(self, digests: DigestFiles) -> None:
        self._digests = digests

    def add(self, user: str, *messages: Message) -> None:
        """These messages of the user's dialogues are not to be stored. Raises StoreError."""
        self._digests.add(user, *map(_message_key, messages))

    def holds(self, user: str, message: Message) -> bool:
        """Whether these words of this side were added for the user, without regard to white space."""
        return self._digests.has_any(user) and self._digests.holds(user, _message_key(message))

    def add_sessions(self, user: str, *ids: str) -> None:
        """These sessions were erased whole. Raises StoreError."""
        self._digests.add(user, *map(_session_key, ids))

    def erased_sessions(self, user: str, ids: Iterable[str]) -> set[str]:
        """Which of these sessions were erased whole, so that an import leaves them out."""
        return {session_id for session_id in ids if self._digests.holds(user, _session_key(session_id))}


def _message_key(message: Message) -> str:
    return "\0".join(normalize(message.role, message.content))


def _session_key(session_id: str) -> str:
    return f"session\0{session_id}"
