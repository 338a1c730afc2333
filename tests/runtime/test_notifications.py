"""What another server changed arrives without being asked for, on a real PostgreSQL server."""

from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from localmem.config import load_settings
from localmem.llm.scripted import ScriptedLLM
from localmem.runtime import Runtime
from localmem.store import Store
from tests.fakes import WordEncoder
from tests.postgres_server import PostgresServer
from tests.store.lives import add_unit
from tests.waiting import wait_until

SYSTEM = "exchange_retrieval"

pytestmark = pytest.mark.slow


def test_a_bank_and_its_index_catch_up_before_the_user_comes(postgres: PostgresServer, tmp_path: Path) -> None:
    with postgres.new_database() as url:
        settings = load_settings(None, {"data": tmp_path, "database": url, "system": SYSTEM})
        with Runtime(settings, llm=ScriptedLLM(lambda _: "I see."), encoder=WordEncoder()) as runtime:
            changed: list[str] = []

            def on_change(user: str) -> None:
                changed.append(user)
                runtime.refresh(user)

            listener = runtime.store.lookups.watch(on_change)
            assert listener is not None
            with closing(listener), Store.open(url) as other:
                memory = runtime.agent("ann").memory
                # Notifications begin with the thread's connection, which it does not announce.
                wait_until(lambda: _commit(other, "bob") and "bob" in changed)
                other.journal("ann", SYSTEM).commit("one", [add_unit("u1", text="A dog barks.")])
                wait_until(lambda: "u1" in memory.bank.units)
                assert [hit.unit.id for hit in memory.search("dog", 1)] == ["u1"]
                runtime.store.journal("eve", SYSTEM).commit("one", [add_unit("u1")])
                _drop_connections(url)
                other.journal("ann", SYSTEM).commit("two", [add_unit("u2", text="A cat sleeps.")])
                wait_until(lambda: _commit(other, "ann") and "u2" in memory.bank.units)
                assert "eve" not in changed  # its own


def _commit(store: Store, user: str) -> bool:
    journal = store.journal(user, SYSTEM)
    number = len(journal.bank().units)
    journal.commit(f"c{number}", [add_unit(f"n{number}")])
    return True


def _drop_connections(url: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        listening = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        connection.execute(text(listening))
