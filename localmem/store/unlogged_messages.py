"""What is not to be stored when it comes again: messages that were erased or never to be stored, and erased sessions.

They are known by keyed digests in the data directory, or in the database where that is PostgreSQL. A client resends
the whole dialogue: without this, the first request that stores would store what was said before without storing, or
what was erased since; and an import would bring erased sessions back. To other stores they are unknown. They outlast
their user.
"""

from collections.abc import Iterable
from secrets import token_hex

from localmem.store.digest_files import DigestFiles
from localmem.store.digest_rows import DigestRows
from localmem.text.dialogue import normalize
from localmem.types import Message


class UnloggedMessages:
    """Messages and erased sessions by user, for many threads and processes."""

    def __init__(self, digests: DigestFiles | DigestRows) -> None:
        self._digests = digests

    def add(self, user: str, *messages: Message) -> None:
        """These messages of the user's dialogues are not to be stored. Raises StoreError."""
        self._digests.add(user, *map(_message_key, messages))

    def holds(self, user: str, message: Message) -> bool:
        """Whether these words of this side were added for the user, without regard to white space."""
        return bool(self.find(user, [message]))

    def find(self, user: str, messages: Iterable[Message]) -> set[Message]:
        """Those of the messages that `holds` is true of."""
        keys = {message: _message_key(message) for message in messages}
        matches = self._digests.find(user, keys.values())
        return {message for message, key in keys.items() if key in matches}

    def add_erased(self, user: str, messages: Iterable[Message], sessions: Iterable[str]) -> None:
        """An erasure: of these messages, and of these sessions as a whole. Raises StoreError."""
        self._digests.add(user, *map(_message_key, messages), *map(_session_key, sessions))
        self._digests.add(_erasures_key(user), token_hex())

    def count_erasures(self, user: str) -> int:
        """Grows with each erasure of the user, whichever process made it."""
        return self._digests.count(_erasures_key(user))

    def erased_sessions(self, user: str, ids: Iterable[str]) -> set[str]:
        """Which of these sessions were erased whole, so that an import leaves them out."""
        keys = {session_id: _session_key(session_id) for session_id in ids}
        matches = self._digests.find(user, keys.values())
        return {session_id for session_id, key in keys.items() if key in matches}


def _message_key(message: Message) -> str:
    return "\0".join(normalize(message.role, message.content))


def _erasures_key(user: str) -> str:
    return f"erasures\0{user}"


def _session_key(session_id: str) -> str:
    return f"session\0{session_id}"
