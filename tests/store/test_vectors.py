"""One encoder for all memories of a store: recorded with its first vector, kept to, changed in one step."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from localmem.errors import EncoderMismatch
from localmem.retrieval.base import EmbeddingCache
from localmem.store import Store
from localmem.store.database import Database
from tests.store.lives import add_unit, remember

OLD, NEW = "minilm@1", "gte@2"


def test_the_first_vector_records_its_encoder(store: Store) -> None:
    cache: EmbeddingCache = store.vectors
    store.vectors.check(OLD)
    store.vectors.check(NEW)
    cache.put(OLD, {})
    assert store.vectors.encoder() is None
    cache.put(OLD, {"d": bytes(16)})
    assert store.vectors.encoder() == (OLD, 4)
    cache.put(OLD, {"e": bytes(16)})
    assert cache.get(OLD, ["d", "e", "f"]) == {"d": bytes(16), "e": bytes(16)}


def test_another_encoder_is_refused_in_one_line_that_says_the_cure(store: Store) -> None:
    store.vectors.put(OLD, {"d": bytes(16)})
    for use in (
        lambda: store.vectors.check(NEW),
        lambda: store.vectors.get(NEW, ["d"]),
        lambda: store.vectors.put(NEW, {"d": bytes(8)}),
    ):
        with pytest.raises(EncoderMismatch) as caught:
            use()
        line = str(caught.value)
        assert "\n" not in line
        for part in (store.where, repr(OLD), repr(NEW), "`localmem reindex`", "set retrieval.encoder to 'minilm'"):
            assert part in line
    assert store.embeddings.get(NEW, ["d"]) == {}


def test_the_change_is_one_step(store: Store) -> None:
    store.vectors.put(OLD, {"d": bytes(16), "e": bytes(16)})
    store.embeddings.put(NEW, {"d": bytes(8)})
    store.vectors.check(OLD)  # vectors beside those in use change nothing
    assert store.vectors.change_encoder(NEW, 2) == 2
    assert store.vectors.encoder() == (NEW, 2)
    assert store.embeddings.get(OLD, ["d", "e"]) == {}
    assert store.vectors.get(NEW, ["d", "e"]) == {"d": bytes(8)}
    with pytest.raises(EncoderMismatch):
        store.vectors.get(OLD, ["d"])


def test_a_change_that_fails_changes_nothing(store: Store) -> None:
    store.vectors.put(OLD, {"d": bytes(16)})
    with pytest.raises(TypeError, match="no dimension"):
        store.vectors.change_encoder(NEW, _Broken())  # type: ignore[arg-type]
    assert store.vectors.encoder() == (OLD, 4)
    assert store.vectors.get(OLD, ["d"]) == {"d": bytes(16)}


class _Broken:
    def __getattr__(self, name: str) -> object:
        raise TypeError("no dimension")


def test_another_process_changes_the_encoder(store: Store, place: str) -> None:
    store.vectors.put(OLD, {"d": bytes(16)})
    with Store.open(place) as other:
        other.vectors.change_encoder(NEW, 2)
    with pytest.raises(EncoderMismatch):
        store.vectors.put(OLD, {"e": bytes(16)})
    assert store.embeddings.get(OLD, ["e"]) == {}


@pytest.mark.parametrize(
    "stored, expected",
    [((), None), ((OLD,), (OLD, 3)), ((OLD, NEW, NEW), (NEW, 3))],
    ids=["none", "one", "the most"],
)
def test_a_store_from_before_adopts_the_encoder_of_its_vectors(
    place: str, stored: tuple[str, ...], expected: tuple[str, int] | None
) -> None:
    with Store.open(place) as store:
        remember(store, "ann", "rsum", "s1", [add_unit("u1")])
        for number, identity in enumerate(stored):
            store.embeddings.put(identity, {str(number): bytes(12)})
        before = list(store.export("ann"))
    database = Database(place)
    with database.write() as connection:
        connection.execute(text("DROP TABLE encoder"))
        connection.execute(text("DROP INDEX ix_sessions_open"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    database.close()
    with Store.open(place) as store:
        assert store.vectors.encoder() == expected
        assert list(store.export("ann")) == before


def test_keys_are_those_of_live_units_of_everyone(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text="one")])
    remember(store, "ann", "facts", "s2", [add_unit("u1", "s2", text="two")])
    remember(store, "bob", "rsum", "s1", [add_unit("u1", text="three"), add_unit("u2", text="four")])
    store.undo("ann", "facts", "s2")
    assert sorted(store.unit_keys()) == ["key: four", "key: one", "key: three"]


def test_what_is_known_is_told_without_its_bytes(store: Store) -> None:
    store.embeddings.put(OLD, {str(number): bytes(4) for number in range(1200)})
    assert store.embeddings.find_digests(OLD, ["7", "1100", "1200"]) == {"7", "1100"}
    assert store.embeddings.find_digests(NEW, ["7"]) == set()


def test_index_files_lie_in_the_data_directory(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data") as store:
        file = store.indexes.path("ann/../x", "rsum", OLD)
        assert file is not None
        assert file.is_relative_to(tmp_path / "data" / "index")
        assert "ann" not in str(file.relative_to(tmp_path))
        assert len({file, store.indexes.path("ann/../x", "rsum", NEW), store.indexes.path("bob", "rsum", OLD)}) == 3


def test_what_is_put_is_got(store: Store) -> None:
    cache: EmbeddingCache = store.embeddings
    rows = {f"{number:064x}": bytes([number % 256]) * 1536 for number in range(1200)}
    cache.put("minilm@1", rows)
    assert cache.get("minilm@1", [*rows, "unknown"]) == rows
    assert cache.get("minilm@1", []) == {}
    cache.put("minilm@1", {})


def test_encoders_do_not_mix(store: Store) -> None:
    store.embeddings.put("minilm@1", {"d": b"one"})
    assert store.embeddings.get("minilm@2", ["d"]) == {}
    store.embeddings.put("minilm@2", {"d": b"two"})
    assert store.embeddings.get("minilm@1", ["d"]) == {"d": b"one"}


def test_a_damaged_vector_is_replaced(store: Store) -> None:
    store.embeddings.put("minilm@1", {"d": b"damaged"})
    store.embeddings.put("minilm@1", {"d": b"sound", "e": b"new"})
    assert store.embeddings.get("minilm@1", ["d", "e"]) == {"d": b"sound", "e": b"new"}


def test_many_threads_put_the_same(store: Store) -> None:
    rows = {str(number): bytes(8) for number in range(50)}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: store.embeddings.put("minilm@1", rows), range(64)))
    assert store.embeddings.get("minilm@1", list(rows)) == rows
