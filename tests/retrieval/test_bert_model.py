"""NumpyBert's arithmetic, and the threads that it leaves to others."""

from math import erf, sqrt

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from localmem.retrieval.bert_model import NumpyBert, one_blas_thread


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_gelu_is_that_of_the_error_function() -> None:
    numbers = np.linspace(-30, 30, 40_000, dtype=np.float32).reshape(8, -1)
    exact = [value * (1 + erf(value / sqrt(2))) / 2 for value in numbers.ravel().tolist()]
    result = NumpyBert(1, 1e-12, {})._gelu(numbers.copy())
    assert result.ravel() == pytest.approx(np.array(exact), abs=2e-6)


def test_products_use_one_thread_within_the_block_only() -> None:
    before = blas_threads()
    with one_blas_thread(), one_blas_thread():
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
