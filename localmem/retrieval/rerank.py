"""RerankingRetriever: the first matches of a retriever, read once more beside the query; and a cross-encoder that reads them.

Knows nothing of how the inner retriever searches. A reranker is slow, so it gets a budget of time, and what it could
not read in it keeps its place behind what it has read.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from localmem.errors import BadSettings, BadVectors, ModelMissing
from localmem.llm.device import Dtype, resolve_device, resolve_dtype
from localmem.retrieval.base import Match, Reranker, Retriever, Scope
from localmem.types import Unit
from localmem.weights.loading import no_progress_bar, one_at_a_time

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder
    from torch.nn import Module

log = logging.getLogger(__name__)

_OBJECTS = 90  # bytes of a dict's entry for a unit; its id and its key belong to the unit


class RerankingRetriever:
    """`inner`, whose first `depth` matches (or `k`, if that is fewer than found) the reranker orders by their keys.

    They are read in the inner order, `batch` at a time, until all are read or `budget_seconds` have passed since the
    query's reading began; None sets no bound, and a batch that has begun is finished. Those read stand first, by the
    reranker's score, ties in the inner order, with that score. All others follow in the inner order; their scores fall
    from the lowest of the first as the inner scores fall. A query that ran out of time is counted in `unfinished`.
    """

    def __init__(
        self,
        inner: Retriever,
        reranker: Reranker,
        *,
        depth: int = 50,
        budget_seconds: float | None = None,
        batch: int = 16,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if depth < 1 or batch < 1:
            raise BadSettings(f"cannot rerank {depth} matches, {batch} at a time; give numbers above 0")
        self._inner = inner
        self._reranker = reranker
        self._depth = depth
        self._budget = budget_seconds
        self._batch = batch
        self._clock = clock
        self._guard = threading.Lock()
        self._keys: dict[str, str] = {}
        self.unfinished = 0

    def add(self, units: Sequence[Unit]) -> None:
        """Index the units' keys."""
        with self._guard:
            new = {unit.id: unit.key for unit in reversed(units) if unit.id not in self._keys}
            self._keys |= new
        try:
            self._inner.add(units)
        except BaseException:
            self._forget(list(new))
            raise

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units."""
        self._inner.remove(ids)
        self._forget(ids)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """The inner matches in the reranker's order, at most `k` a query, best first."""
        if k <= 0:
            return [[] for _ in queries]
        found = self._inner.search(queries, max(k, self._depth), scope)
        return [self._reranked(query, matches)[:k] for query, matches in zip(queries, found, strict=True)]

    @property
    def memory(self) -> int:
        """Bytes of the inner retriever, and of the table of keys, about."""
        return self._inner.memory + len(self._keys) * _OBJECTS

    def _forget(self, ids: Sequence[str]) -> None:
        with self._guard:
            for key in ids:
                self._keys.pop(key, None)

    def _reranked(self, query: str, matches: Sequence[Match]) -> list[Match]:
        with self._guard:
            there = [match for match in matches if match.id in self._keys]  # another thread may have removed some
            texts = [self._keys[match.id] for match in there[: self._depth]]
        scores = self._scores(query, texts)
        if not scores:
            return there
        order = sorted(range(len(scores)), key=lambda at: -scores[at])
        read = [Match(there[at].id, scores[at]) for at in order]
        down = read[-1].score - there[len(scores) - 1].score
        return [*read, *(Match(match.id, match.score + down) for match in there[len(scores) :])]

    def _scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """The scores of the first texts, of as many as there was time for."""
        start, scores = self._clock(), list[float]()
        while len(scores) < len(texts):
            if self._budget is not None and self._clock() - start >= self._budget:
                self.unfinished += 1
                log.warning("reranking ran out of time after %d of %d matches", len(scores), len(texts))
                break
            scores += self._reranker.score(query, texts[len(scores) : len(scores) + self._batch])
        return scores


class CrossEncoderReranker:
    """A cross-encoder in a local folder, as sentence-transformers or transformers saves one; scores from 0 to 1.

    The weights load when first needed; a missing folder is an error at once. Of a pair over the model's window the
    longer text is cut. `device` is as SentenceEncoder's; `dtype` auto is float16 on a GPU and float32 on a CPU. Threads
    wait for one another.
    """

    def __init__(self, path: Path, *, name: str, device: str = "auto", dtype: Dtype = "auto") -> None:
        if not (path / "config.json").is_file():
            raise ModelMissing(f"reranker {name} is not at {path}; get it with `localmem models pull {name}`")
        self.name = name
        self._path = path
        self._device = device
        self._dtype = dtype
        self._guard = threading.Lock()
        self._loaded: CrossEncoder | None = None

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text suits the query. Raises BadVectors for scores that are no numbers."""
        if not texts:
            return []
        with self._guard:
            model = self._model()
            logits = model.predict(
                [(query, text) for text in texts],
                batch_size=len(texts),
                show_progress_bar=False,
                activation_fn=_as_it_is(),
            )
        scores = 1 / (1 + np.exp(-np.asarray(logits, dtype=np.float64)))
        if not np.isfinite(scores).all():
            raise BadVectors(
                f"{self.name} gave scores that are no numbers; verify its weights, or set dtype to float32"
            )
        return [float(score) for score in scores]

    def _model(self) -> "CrossEncoder":
        with one_at_a_time():
            if self._loaded is None:
                self._loaded = _load(self._path, self._device, self._dtype)
                labels = self._loaded.num_labels
                if labels != 1:
                    self._loaded = None
                    raise BadSettings(f"{self.name} tells {labels} classes apart; a reranker gives one score")
            return self._loaded


def _load(path: Path, device: str, dtype: Dtype) -> "CrossEncoder":
    from sentence_transformers import CrossEncoder

    where = resolve_device(device)
    with no_progress_bar():
        return CrossEncoder(
            str(path),
            device=where,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": resolve_dtype(dtype, where)},
        )


def _as_it_is() -> "Module":
    """No activation: what a model card sets would give each reranker another scale."""
    import torch

    return torch.nn.Identity()
