"""What an index is compared with: brute force in numpy, and bm25s as its own documentation uses it. Knows no units."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]


class Brute:
    """All inner products at single precision, the best of them sorted. Ids are the rows' numbers."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def search(self, queries: Rows, k: int) -> list[list[tuple[str, float]]]:
        """For each query the best `k` with their scores."""
        scores = queries @ self._rows.T
        k = min(k, scores.shape[1])
        best = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, -k:]
        return [_sorted(row, found) for row, found in zip(scores, best, strict=True)]


def _sorted(scores: Rows, found: NDArray[np.intp]) -> list[tuple[str, float]]:
    order = found[np.argsort(-scores[found])]
    return [(str(number), float(scores[number])) for number in order]


def bare_bm25s(texts: Sequence[str], k: int) -> Callable[[Sequence[str]], object]:
    """An index of bm25s with its tokeniser and the stemmer it recommends; gives its search."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    tokens = bm25s.tokenize(list(texts), stopwords="en", stemmer=stemmer, show_progress=False)
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)

    def search(asked: Sequence[str]) -> object:
        words = bm25s.tokenize(list(asked), stopwords="en", stemmer=stemmer, show_progress=False)
        return index.retrieve(words, k=min(k, len(texts)), show_progress=False)

    return search
