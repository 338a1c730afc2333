"""Quick questions about users, which need no reading of everybody's rows: who is there, who is active, how much.

Servers ask these often, and a store may hold a million users.
"""

from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime

from sqlalchemy import ColumnElement, LargeBinary, and_, cast, func, literal_column, select

from localmem.store.change_log import of_bank
from localmem.store.database import Database
from localmem.store.postgres import Listener
from localmem.store.schema import batches, changes, sessions, turns
from localmem.store.serialization import from_micros, to_micros
from localmem.store.sessions import SessionInfo, newest_sessions, sessions_of_turns


class UserLookups:
    """Reads of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def watch(self, on_change: Callable[[str], None]) -> Listener | None:
        """Call this, until closed, with each user whose memory another process changes; None where it is a file."""
        return self._database.watch(on_change)

    def exists(self, user: str) -> bool:
        """Whether there is a session or a memory of this user."""
        columns = (sessions.c.user, batches.c.user)
        with self._database.read() as connection:
            return any(connection.execute(select(each).where(each == user).limit(1)).first() for each in columns)

    def with_open_sessions(self) -> dict[str, int]:
        """The users with open sessions, and their number."""
        is_open = sessions.c.state == literal_column("'open'")  # the words of the index, so that it serves
        query = select(sessions.c.user, func.count()).where(is_open).group_by(sessions.c.user)
        with self._database.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def newest_sessions(self, user: str, start: int, count: int) -> list[SessionInfo]:
        """A page of the user's sessions without their text, the last first."""
        with self._database.read() as connection:
            return newest_sessions(connection, user, start, count)

    def count_sessions(self, user: str) -> int:
        """The number of the user's sessions."""
        query = select(func.count()).where(sessions.c.user == user)
        with self._database.read() as connection:
            return int(connection.execute(query).scalar_one())

    def sessions_of_turns(self, user: str, ids: Collection[str]) -> dict[str, str]:
        """The ids of the sessions that hold these turns, by turn."""
        with self._database.read() as connection:
            return sessions_of_turns(connection, user, ids)

    def has_changes_of(self, user: str, system: str, session_id: str) -> bool:
        """Whether something stands of what the system made of a session."""
        query = select(changes.c.batch).join(batches, changes.c.batch == batches.c.number)
        query = query.where(of_bank(user, system), batches.c.session == session_id).limit(1)
        with self._database.read() as connection:
            return connection.execute(query).first() is not None

    def turn_times(self, user: str, since: datetime) -> list[datetime]:
        """When the user's own turns after `since` were said, in order."""
        of_user = and_(turns.c.user == user, turns.c.role == "user", turns.c.time > to_micros(since))
        with self._database.read() as connection:
            times = connection.execute(select(turns.c.time).where(of_user).order_by(turns.c.time))
            return [from_micros(time) for time in times.scalars()]

    def closed_sessions_with(self, user: str, is_sent: Callable[[str, str], bool]) -> list[str]:
        """The ids of closed sessions with turns for which `is_sent(role, text)`: the most last, of as many the latest.

        Reads all of the user's turns, because a sealed text can only be compared once it is opened.
        """
        of_session = and_(turns.c.user == sessions.c.user, turns.c.session == sessions.c.id)
        query = select(turns.c.session, turns.c.role, turns.c.text).select_from(sessions.join(turns, of_session))
        query = query.where(sessions.c.user == user, sessions.c.state == "closed").order_by(sessions.c.ended)
        with self._database.read() as connection:
            counts = Counter(session for session, role, text in connection.execute(query) if is_sent(role, text))
        return sorted(counts, key=counts.__getitem__)

    def text_size(self, user: str) -> int:
        """Bytes of the texts of a user: of the turns, and of the changes that were made of them."""
        is_file = bool(self._database.files)

        def size(column: ColumnElement[str]) -> ColumnElement[int]:
            return func.length(cast(column, LargeBinary)) if is_file else func.octet_length(column)

        texts = ((turns.c.text, turns.c.user), (changes.c.body, changes.c.user))
        queries = [select(func.sum(size(text))).where(owner == user) for text, owner in texts]
        with self._database.read() as connection:
            return sum(int(connection.execute(query).scalar() or 0) for query in queries)
