"""The forward pass of BERT over arrays of any library, and how numpy computes it.

Does not depend on files, on tokenizers or on what the states are used for.
"""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Array = Any  # of numpy or of torch
Rows = NDArray[np.float32]

WORDS, POSITIONS, KINDS = (f"embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type"))
_BLAS = threading.RLock()
_PART = 16_384  # numbers that GELU is computed of at a time: they stay in the processor's cache
# The error function to 1.5e-7 (Abramowitz and Stegun, 1964, formula 7.1.26), which numpy lacks, of x / sqrt(2).
_ERF_SCALE = np.float32(0.3275911 * math.sqrt(0.5))
_ERF_TERMS = tuple(np.float32(0.5 * term) for term in (1.061405429, -1.453152027, 1.421413741, -0.284496736))
_ERF_LAST = np.float32(0.5 * 0.254829592)


@dataclass(frozen=True, slots=True)
class BertLayout:
    """The shape of a BERT encoder. `window` is in tokens, `pooling` is mean or cls."""

    dimension: int
    layers: int
    heads: int
    epsilon: float
    window: int
    pooling: str


class BertModel:
    """The forward pass of Devlin et al. (NAACL 2019); `weights` by their names in BERT."""

    def __init__(self, heads: int, epsilon: float, weights: Mapping[str, Array]) -> None:
        self._heads = heads
        self._epsilon = epsilon
        self._weights = weights

    def _embed(self, ids: Array) -> Array:
        """(..., tokens, width) states of (..., tokens) ids before the first layer."""
        states = self._weights[WORDS][ids] + self._weights[POSITIONS][: ids.shape[-1]]
        return self._norm("embeddings", states + self._weights[KINDS][0])

    def _block(self, layer: int, states: Array, mask: Array) -> Array:
        """The (..., tokens, width) states after a layer; `mask` is what `_attention` takes."""
        name = f"encoder.layer.{layer}"
        queries, keys, values = (
            self._linear(f"{name}.attention.self.{part}", states)
            .reshape(*states.shape[:-1], self._heads, -1)
            .swapaxes(-3, -2)
            for part in ("query", "key", "value")
        )
        context = self._attention(queries, keys, values, mask).swapaxes(-3, -2).reshape(*states.shape)
        states = self._norm(
            f"{name}.attention.output", states + self._linear(f"{name}.attention.output.dense", context)
        )
        wide = self._gelu(self._linear(f"{name}.intermediate.dense", states))
        return self._norm(f"{name}.output", states + self._linear(f"{name}.output.dense", wide))

    def _linear(self, name: str, states: Array) -> Array:
        raise NotImplementedError

    def _norm(self, name: str, states: Array) -> Array:
        raise NotImplementedError

    def _gelu(self, states: Array) -> Array:
        """May change `states`."""
        raise NotImplementedError

    def _attention(self, queries: Array, keys: Array, values: Array, mask: Array) -> Array:
        """softmax(queries x keys / sqrt(size) + mask) x values; all others are (..., heads, tokens, size)."""
        raise NotImplementedError


class NumpyBert(BertModel):
    """In float32, one text at a time, so that nothing is padded. Call within `one_blas_thread`."""

    def read(self, ids: Sequence[int], layers: int) -> Rows:
        """The (tokens, width) states of a text after this many layers."""
        states = self._embed(np.array(ids))
        for layer in range(layers):
            states = self._block(layer, states, None)
        result: Rows = states
        return result

    def _linear(self, name: str, states: Array) -> Array:
        result = states @ self._weights[f"{name}.weight"].T
        result += self._weights[f"{name}.bias"]
        return result

    def _norm(self, name: str, states: Array) -> Array:
        centred = states - states.mean(-1, keepdims=True)
        variance = np.einsum("...w,...w->...", centred, centred)[..., None] / np.float32(states.shape[-1])
        centred /= np.sqrt(variance + np.float32(self._epsilon))
        centred *= self._weights[f"{name}.LayerNorm.weight"]
        centred += self._weights[f"{name}.LayerNorm.bias"]
        return centred

    def _gelu(self, states: Array) -> Array:
        numbers = states.reshape(-1)
        for start in range(0, len(numbers), _PART):
            _replace_by_gelu(numbers[start : start + _PART])
        return states

    def _attention(self, queries: Array, keys: Array, values: Array, mask: Array) -> Array:
        scores = queries @ keys.swapaxes(-1, -2)
        scores *= np.float32(queries.shape[-1] ** -0.5)
        if mask is not None:
            scores += mask
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        return scores @ values / scores.sum(-1, keepdims=True)


def _replace_by_gelu(numbers: Rows) -> None:
    """max(x, 0) - |x| (1 - erf(|x| / sqrt(2))) / 2, which is x (1 + erf(x / sqrt(2))) / 2."""
    size = np.abs(numbers)
    t = size * _ERF_SCALE
    t += 1
    np.reciprocal(t, out=t)
    series = t * _ERF_TERMS[0]
    for term in (*_ERF_TERMS[1:], _ERF_LAST):
        series += term
        series *= t
    decay = np.multiply(numbers, numbers, out=t)
    decay *= np.float32(-0.5)
    series *= np.exp(decay, out=decay)
    series *= size
    np.maximum(numbers, 0, out=numbers)
    numbers -= series


@cache
def _libraries() -> "ThreadpoolController":
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Lets a product of matrices use one thread, process-wide; other callers wait.

    The matrices are small, and where other work takes the cores (a model server's, on a CPU) the threads of BLAS wait
    for each other, 20 ms on one thread becoming 100 to 900 ms on two.
    """
    with _BLAS, _libraries().limit(limits=1, user_api="blas"):
        yield
