"""A fresh store a test, on each kind of database: SQLite in a folder, and a real PostgreSQL server if one is here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localmem.store import Store


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a store may be opened; nothing is there yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "data")
        return
    with request.getfixturevalue("postgres").new_database() as url:
        yield url


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    """Open and empty; sound when the test is over."""
    with Store.open(place) as opened:
        yield opened
        assert opened.problems() == []
