"""A fresh store a test: in a folder, or on the PostgreSQL server that LOCALMEM_TEST_DATABASE names."""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, make_url, text

from localmem.store import Store


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """Where a store may be opened; nothing is there yet."""
    server = os.environ.get("LOCALMEM_TEST_DATABASE")
    if server is None:
        yield str(tmp_path / "data")
        return
    name = f"localmem_{uuid4().hex}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield make_url(server).set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    """Open and empty; sound when the test is over."""
    with Store.open(place) as opened:
        yield opened
        assert opened.problems() == []
