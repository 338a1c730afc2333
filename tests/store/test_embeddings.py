"""The cache of vectors: bytes as they were put, found under their encoder only."""

from concurrent.futures import ThreadPoolExecutor

from localmem.retrieval.base import EmbeddingCache
from localmem.store import Store


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
