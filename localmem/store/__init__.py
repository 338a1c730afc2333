"""The store: users' conversations, what memory systems made of them, and pending work, in one database.

Open it with `Store.open`. An agent writes through `Store.journal`.
"""

from localmem.store.journal import StoreJournal
from localmem.store.records import Backlog, Event, ImportSummary, Receipt, SessionInfo, SessionJob, UnitHistory
from localmem.store.sql import Store

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
