"""A classifier of text pairs in a local folder, as `localmem finetune` writes it: an encoder with a head, or a T5.

It gives each pair the probability of each label, and does not depend on what the labels mean. The model's config holds,
under "localmem", the training's notes to the code that uses the model.
"""

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localmem.batching import Batched
from localmem.classification.pair_weights import (
    EncoderWeights,
    Pairs,
    PairWeights,
    Probabilities,
    T5Weights,
    config_of,
    is_t5,
    split_layers_of,
)
from localmem.weights.loading import one_at_a_time

_ON_CPU, _ON_GPU = 16, 256  # pairs a batch


class PairModel:
    """The model in a folder; its weights load when first needed.

    `device` is auto, cpu, cuda or cuda:N; a GPU computes in bfloat16, and so does a CPU with instructions for it. Calls
    from many threads are joined into batches.
    """

    def __init__(self, folder: Path, *, device: str = "auto", batch: int | None = None) -> None:
        self._folder = folder
        self._device = device
        self._batch = batch
        self._guard = threading.Lock()
        self._weights: PairWeights | None = None
        self._batched = Batched(self._run, limit=batch or _ON_GPU)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' names, in the order of the columns."""
        return self._load().labels

    @property
    def notes(self) -> Mapping[str, object]:
        """The training's notes in the config."""
        return self._load().notes

    def probabilities(self, pairs: Pairs) -> NDArray[np.float32]:
        """(n, labels) float32 rows that sum to 1, in the order of `pairs`; a pair longer than the window is cut."""
        rows = self._batched(list(pairs))
        return np.stack(rows) if rows else np.zeros((0, len(self.labels)), dtype=np.float32)

    def _load(self) -> PairWeights:
        with self._guard:
            if self._weights is None:
                with one_at_a_time():
                    self._weights = _load_weights(self._folder, self._device)
            return self._weights

    def _run(self, pairs: list[tuple[str, str]]) -> list[Probabilities]:
        weights = self._load()
        return weights.classify(pairs, self._batch or (_ON_CPU if weights.on_cpu else _ON_GPU))


def _load_weights(folder: Path, device: str) -> PairWeights:
    config = config_of(folder)
    if is_t5(config):
        return T5Weights(folder, device)
    if not split_layers_of(config):
        return EncoderWeights(folder, device)
    from localmem.classification.split_bert import SplitBertWeights

    return SplitBertWeights(folder, device)
