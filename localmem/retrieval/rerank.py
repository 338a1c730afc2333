"""RerankingRetriever: a retriever whose first matches a reranker orders; and a cross-encoder to do that.

Does not depend on how the inner retriever searches. A reranker is slow, so it has a time budget, and matches that it
did not score in time follow in their own order.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from localmem.errors import BadSettings, BadVectors, ModelMissing
from localmem.llm.device import no_progress_bar, one_at_a_time, resolve_device, resolve_dtype
from localmem.retrieval.base import Match, Reranker, Retriever, Scope
from localmem.retrieval.wrappers import RetrieverWrapper
from localmem.types import Unit

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

log = logging.getLogger(__name__)

_ENTRY_BYTES = 90  # of a dict's entry for a unit; its id and its key belong to the unit


class RerankingRetriever(RetrieverWrapper):
    """`inner`, whose first `depth` matches the reranker orders by their keys.

    They are scored in the inner order, `batch` at a time, until all are scored or `budget_seconds` have passed since
    the first batch of the query began; None sets no limit, and a batch that has begun is finished. Scored matches come
    first, by the reranker's score, ties in the inner order. All others follow in the inner order; their scores fall
    from the lowest score of the first as the inner scores fall. A query that ran out of time is counted in
    `unfinished`.
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
            raise BadSettings(f"depth is {depth} and batch is {batch}; give numbers above 0")
        super().__init__(inner)
        self._reranker = reranker
        self._depth = depth
        self._budget = budget_seconds
        self._batch = batch
        self._clock = clock
        self._keys: dict[str, str] = {}
        self.unfinished = 0

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        if k <= 0:
            return [[] for _ in queries]
        results = self._inner.search(queries, max(k, self._depth), scope)
        return [self._rerank(query, matches)[:k] for query, matches in zip(queries, results, strict=True)]

    @property
    def memory(self) -> int:
        return self._inner.memory + len(self._keys) * _ENTRY_BYTES

    def _record(self, units: Sequence[Unit]) -> Sequence[str]:
        new = {unit.id: unit.key for unit in reversed(units) if unit.id not in self._keys}
        self._keys |= new
        return list(new)

    def _forget(self, ids: Sequence[str]) -> None:
        with self._guard:
            for unit_id in ids:
                self._keys.pop(unit_id, None)

    def _rerank(self, query: str, matches: Sequence[Match]) -> list[Match]:
        with self._guard:
            present = [match for match in matches if match.id in self._keys]  # another thread may have removed some
            texts = [self._keys[match.id] for match in present[: self._depth]]
        scores = self._score(query, texts)
        if not scores:
            return present
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        reranked = [Match(present[index].id, scores[index]) for index in order]
        shift = reranked[-1].score - present[len(scores) - 1].score
        return [*reranked, *(Match(match.id, match.score + shift) for match in present[len(scores) :])]

    def _score(self, query: str, texts: Sequence[str]) -> list[float]:
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
    longer text is truncated. `device` is as SentenceEncoder's; numbers are float16 on a GPU and float32 on a CPU.
    Threads wait for one another.
    """

    def __init__(self, path: Path, *, name: str, device: str = "auto") -> None:
        if not (path / "config.json").is_file():
            raise ModelMissing(f"reranker {name} is not at {path}; get it with `localmem models pull {name}`")
        self.name = name
        self._path = path
        self._device = device
        self._guard = threading.Lock()
        self._loaded: CrossEncoder | None = None

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text suits the query. Raises BadVectors for scores that are not finite."""
        if not texts:
            return []
        from torch.nn import Identity

        pairs = [(query, text) for text in texts]
        with self._guard:  # no activation: the one in a model's settings would give each reranker its own scale
            logits = self._model().predict(
                pairs, batch_size=len(texts), show_progress_bar=False, activation_fn=Identity()
            )
        scores = 1 / (1 + np.exp(-np.asarray(logits, dtype=np.float64)))
        if not np.isfinite(scores).all():
            raise BadVectors(
                f"{self.name} returned scores that are not finite; verify its weights, or set retrieval.device to cpu"
            )
        return [float(score) for score in scores]

    def _model(self) -> "CrossEncoder":
        with one_at_a_time():
            if self._loaded is None:
                from sentence_transformers import CrossEncoder

                device = resolve_device(self._device)
                options = {"dtype": resolve_dtype("auto", device)}
                with no_progress_bar():
                    model = CrossEncoder(
                        str(self._path),
                        device=device,
                        local_files_only=True,
                        trust_remote_code=False,
                        model_kwargs=options,
                    )
                if model.num_labels != 1:
                    raise BadSettings(
                        f"{self.name} has {model.num_labels} classes; use a reranker, which has one score"
                    )
                self._loaded = model
            return self._loaded
