"""The shape of a SplitReranker's network (see pair_network), and its scores by numpy, in float32.

For a process that has not imported torch: that takes longer than a search's pairs take here. Each pair is computed by
itself, without padding, and as many at a time as there are cores. Does not depend on files or on tokenizers.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from localmem.llm.device import core_count
from localmem.retrieval.bert_model import NumpyBert, Rows, one_blas_thread

SCALARS, PRODUCT, DIFFERENCE = "head.scalars", "head.product", "head.difference"
HEAD_RATE = 20.0  # the head's two vectors start at 0 and learn as fast as if they were this much larger
_THREADS = ThreadPoolExecutor(core_count(), "localmem-pairs")  # starts a thread when it is first needed


@dataclass(frozen=True, slots=True)
class PairShape:
    """`split` of the `layers` read each text by itself. `crossing` is added to attention from one text to the other."""

    layers: int
    split: int
    heads: int
    epsilon: float
    crossing: float = -1.0

    def reads_pairs(self, name: str) -> bool:
        """Whether the weight of this name is one of the upper layers or of the head."""
        kind, _, path = name.partition(".layer.")
        return name.startswith("head.") or (kind == "encoder" and int(path.partition(".")[0]) >= self.split)


class NumpyPairs(NumpyBert):
    """`weights` by their names in BERT, and the head's."""

    def __init__(self, shape: PairShape, weights: Mapping[str, Rows]) -> None:
        super().__init__(shape.heads, shape.epsilon, weights)
        self._shape = shape

    def read_texts(self, texts: Sequence[Sequence[int]]) -> list[Rows]:
        """The (tokens, width) states of each text after the lower layers."""
        with one_blas_thread():
            return list(_THREADS.map(lambda ids: self.read(ids, self._shape.split), texts))

    def compare(self, query: Rows, texts: Sequence[Rows]) -> Rows:
        """The score of the query with each text, all as `read_texts` gave them."""
        with one_blas_thread():
            return np.array(list(_THREADS.map(lambda text: self._score(query, text), texts)), dtype=np.float32)

    def _score(self, query: Rows, text: Rows) -> float:
        is_query = np.arange(len(query) + len(text)) < len(query)
        crossing = (is_query[:, None] != is_query) * np.float32(self._shape.crossing)
        states = np.concatenate([query, text])
        for layer in range(self._shape.split, self._shape.layers):
            states = self._block(layer, states, crossing)
        query, text = states[: len(query)], states[len(query) :]
        closest = (_unit(query) @ _unit(text).T).max(1).mean()
        query, text = _unit(query.sum(0)), _unit(text.sum(0))
        cosine, token, offset = self._weights[SCALARS]
        learned = (query * text) @ self._weights[PRODUCT] + np.abs(query - text) @ self._weights[DIFFERENCE]
        return float(cosine * (query @ text) + token * closest + offset + np.float32(HEAD_RATE) * learned)


def _unit(rows: Rows) -> Rows:
    unit: Rows = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.float32(1e-6))
    return unit
