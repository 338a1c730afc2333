"""A classifier of text pairs in a local folder, as `localmem finetune` writes it: an encoder with a head, or a T5.

Knows neither operations nor segments: it gives each pair the probability of each label. The model's config carries,
under "localmem", what whoever trained it has to tell whoever uses it.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localmem.batching import Batched
from localmem.classification.pair_weights import (
    EncoderWeights,
    Pairs,
    PairWeights,
    Row,
    T5Weights,
    apart_of,
    config_of,
    is_t5,
)
from localmem.weights.loading import one_at_a_time

_ON_CPU, _ON_GPU = 16, 256  # pairs a batch


class PairModel:
    """Weights load when first asked. `find` gives the folder, and raises what there is to raise when it is not there.

    `device` is auto, cpu, cuda or cuda:N; a GPU computes in bfloat16, and so does a CPU that has instructions for it.
    Calls of many threads join into batches.
    """

    def __init__(self, find: Path | Callable[[], Path], *, device: str = "auto", batch: int | None = None) -> None:
        self._find = find
        self._device = device
        self._batch = batch
        self._guard = threading.Lock()
        self._loaded: PairWeights | None = None
        self._batched = Batched(self._run, limit=batch or _ON_GPU)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' names, in the order of the columns."""
        return self._model().labels

    @property
    def notes(self) -> Mapping[str, object]:
        """What the training left in the config."""
        return self._model().notes

    def probabilities(self, pairs: Pairs) -> NDArray[np.float32]:
        """(n, labels) float32 rows that sum to 1, in the order of `pairs`; a pair over the window is cut."""
        rows = self._batched(list(pairs))
        return np.stack(rows) if rows else np.zeros((0, len(self.labels)), dtype=np.float32)

    def _model(self) -> PairWeights:
        with self._guard:
            if self._loaded is None:
                folder = self._find if isinstance(self._find, Path) else self._find()
                with one_at_a_time():
                    self._loaded = _loaded(folder, self._device)
            return self._loaded

    def _run(self, pairs: list[tuple[str, str]]) -> list[Row]:
        model = self._model()
        return model.read(pairs, self._batch or (_ON_CPU if model.on_cpu else _ON_GPU))


def _loaded(folder: Path, device: str) -> PairWeights:
    config = config_of(folder)
    if is_t5(config):
        return T5Weights(folder, device)
    if not apart_of(config):
        return EncoderWeights(folder, device)
    from localmem.classification.split_bert import ApartWeights

    return ApartWeights(folder, device)
