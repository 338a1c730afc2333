"""Vectors as rows of a real PostgreSQL server: the same matches as an index in memory, and what becomes of the rows."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import NullPool, create_engine, text

from localmem.errors import BadInput, BadSettings
from localmem.retrieval.base import Encoder, Match, Scope, Side, passage_digest
from localmem.retrieval.dense import DenseRetriever
from localmem.store import Store
from localmem.store.encryption import Keys
from localmem.store.pgvector import PgVectorRetriever
from localmem.types import Unit
from tests.fakes import START, WordEncoder, unit
from tests.postgres_server import PostgresServer
from tests.store.lives import add_unit, remember

pytestmark = pytest.mark.slow

_WORDS = re.findall(r"\w+", "rain Oslo brown dog barking cat garden Lisbon train piano doctor green letter winter tea")


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.new_database() as place:
        yield place


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened


class NoTies:
    """Each text has a direction of its own, so that no rounding decides an order."""

    identity, dimension = "no-ties", 64

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        draws = [np.random.default_rng(list(each.encode())).normal(size=64) for each in texts]
        return np.stack([row / np.linalg.norm(row) for row in draws]).astype(np.float32)


class QuestionsOnly(WordEncoder):
    """An encoder for a memory whose passages are stored already."""

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        assert side == "query", texts
        return super().encode(texts, side)


def index(store: Store, encoder: Encoder | None = None, user: str = "ann") -> PgVectorRetriever:
    return PgVectorRetriever(encoder or WordEncoder(), store.unit_vectors, user, "evidence")


def draw_units(count: int) -> list[Unit]:
    chance = random.Random(5)
    return [
        replace(
            unit(f"u{n}", " ".join(chance.choices(_WORDS, k=6)), time=START + timedelta(days=n)),
            speaker=chance.choice(["Ann", "Bob", ""]),
        )
        for n in range(count)
    ]


def rounded(results: list[list[Match]]) -> list[list[tuple[str, float]]]:
    return [[(match.id, round(match.score, 5)) for match in matches] for matches in results]


def count_rows(url: str, condition: str = "true") -> int:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM unit_vectors WHERE {condition}")).scalar_one())  # noqa: S608


def test_searches_find_what_an_index_in_memory_finds(store: Store) -> None:
    units, ours, flat = draw_units(700), index(store, NoTies()), DenseRetriever(NoTies(), kind="flat")
    for retriever in (ours, flat):
        retriever.add(units[:300])
        retriever.add(units[200:])
        retriever.remove([f"u{n}" for n in range(0, 700, 3)])
    queries = ["a brown dog", "tea in Lisbon", "", "seven letters from Oslo in the rain"]
    scopes = [
        None,
        Scope(speaker="Bob"),
        Scope(since=START + timedelta(days=500)),
        Scope("Ann", START + timedelta(days=40), START + timedelta(days=60)),
    ]
    for scope in scopes:
        for k in (1, 10, 80):
            assert rounded(ours.search(queries, k, scope)) == rounded(flat.search(queries, k, scope))


def test_equal_keys_come_in_the_order_of_addition(store: Store) -> None:
    ours = index(store)
    ours.add([unit(f"u{n}", "brown dog" if n % 2 else "rain") for n in range(300)])
    assert [match.id for match in ours.search(["brown dog"], 5)[0]] == ["u1", "u3", "u5", "u7", "u9"]


def test_another_server_encodes_nothing_again(store: Store) -> None:
    units = [unit(f"u{n}", " ".join(_WORDS[n : n + 4])) for n in range(12)]
    index(store).add(units)
    other = index(store, QuestionsOnly())
    other.add(units)
    assert rounded(other.search(["brown dog"], 10)) == rounded(index_of(units).search(["brown dog"], 10))
    assert other.memory < 12 * 400
    assert index(store, user="bob").search(["brown dog"], 10) == [[]]


def index_of(units: Sequence[Unit]) -> DenseRetriever:
    flat = DenseRetriever(WordEncoder(), kind="flat")
    flat.add(units)
    return flat


def test_a_unit_with_another_key_replaces_its_row(store: Store, url: str) -> None:
    index(store).add([unit("u1", "rain in Oslo")])
    changed = index(store)
    changed.add([unit("u1", "brown dog")])
    assert changed.search(["brown dog"], 1)[0][0].score == pytest.approx(1)
    assert count_rows(url) == 1


def test_a_naive_time_is_refused(store: Store) -> None:
    ours = index(store)
    with pytest.raises(BadInput, match="has no UTC offset"):
        ours.add([replace(unit("u1", "rain"), time=START.replace(tzinfo=None))])
    assert ours.search(["rain"], 1) == [[]]


def test_an_erasure_deletes_rows(store: Store, url: str) -> None:
    for user in ("ann", "bob"):
        remember(store, user, "evidence", "s1", [add_unit("u1", text=f"{user} likes tea"), add_unit("u2")])
        index(store, user=user).add(list(store.bank(user, "evidence").live()))
    assert store.delete_units("ann", "evidence", "u1").rows["unit_vectors"] == 1
    assert count_rows(url, f"digest = '{passage_digest('key: ann likes tea')}'") == 0
    assert store.delete_user("bob").rows["unit_vectors"] == 2
    assert count_rows(url) == 1, "another user's row stays, also where the words are the same"


def test_another_encoder_leaves_no_rows_of_the_old(store: Store, url: str) -> None:
    index(store).add(draw_units(3))
    store.vectors.change_encoder("another", 8)
    assert count_rows(url) == 0


def test_a_store_that_cannot_search_says_so(url: str, tmp_path: Path) -> None:
    with Store.open(tmp_path) as file, pytest.raises(BadSettings, match="set database to PostgreSQL"):
        index(file)
    keys = Keys.create(tmp_path / "memory.keys", b"secret")
    with Store.open(url, keys=keys) as sealed, pytest.raises(BadSettings, match="the store is encrypted"):
        index(sealed)
