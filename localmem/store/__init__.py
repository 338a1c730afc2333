"""The store: users' conversations, what memory systems made of them, and pending work, in one database.

Open it with `Store.open`. An agent writes through `Store.journal`.
"""

from localmem.store.change_log import Event, UnitHistory
from localmem.store.jobs import SessionJob
from localmem.store.receipts import Receipt
from localmem.store.sessions import Backlog, SessionInfo
from localmem.store.sql import Store, StoreJournal
from localmem.store.transfer import ImportSummary

__all__ = [
    "Backlog",
    "Event",
    "ImportSummary",
    "Receipt",
    "SessionInfo",
    "SessionJob",
    "Store",
    "StoreJournal",
    "UnitHistory",
]
