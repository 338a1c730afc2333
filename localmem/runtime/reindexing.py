"""The change to another encoder: every bank's keys are encoded with it beside the vectors in use, then it takes over.

What was encoded is kept batch by batch, so an interrupted run goes on where it was. Until the last step, which is one
transaction, whoever uses the old encoder is not disturbed; from then on it is refused. Knows no settings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from localmem.retrieval.base import Encoder, passage_digest
from localmem.store.sql import Store

_BATCH = 256  # keys that are encoded, and kept, at a time

Track = Callable[[Sequence[Sequence[str]]], Iterable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Reindexed:
    """`keys` is how many the banks hold, `encoded` how many of them this run encoded, `dropped` vectors of others."""

    encoder: str
    dimension: int
    keys: int
    encoded: int
    dropped: int


def reindex(store: Store, encoder: Encoder, track: Track = iter) -> Reindexed:
    """`encoder` keeps what it makes in `store.embeddings`; `track` sees the batches go by."""
    encoded = 0
    while missing := _missing(store, encoder.identity):  # again for what was remembered meanwhile
        for batch in track([missing[start : start + _BATCH] for start in range(0, len(missing), _BATCH)]):
            encoder.encode(batch, "passage")
        encoded += len(missing)
    keys = len(set(store.unit_keys()))
    dropped = store.vectors.change_encoder(encoder.identity, encoder.dimension)
    store.indexes.delete_all()
    return Reindexed(encoder.identity, encoder.dimension, keys, encoded, dropped)


def _missing(store: Store, identity: str) -> list[str]:
    """The keys without a vector of this encoder, each once."""
    by_digest = {passage_digest(key): key for key in store.unit_keys()}
    known = store.embeddings.find_digests(identity, list(by_digest))
    return [key for digest, key in by_digest.items() if digest not in known]
