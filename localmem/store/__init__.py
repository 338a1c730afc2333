"""The store: one user's words, what systems made of them, and the jobs in between, in one database.

`Store.open` is the way in; an agent writes through `Store.journal`.
"""

from localmem.store.importing import Imported
from localmem.store.journal import StoreJournal
from localmem.store.records import Event, Job, Receipt, SessionInfo, UnitHistory, Unread
from localmem.store.sql import Store

__all__ = ["Event", "Imported", "Job", "Receipt", "SessionInfo", "Store", "StoreJournal", "UnitHistory", "Unread"]
