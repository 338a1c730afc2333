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
from localmem.text.pair_weights import EncoderWeights, Pairs, PairWeights, Row, T5Weights, config_of, is_t5
from localmem.weights.loading import one_at_a_time

_ON_CPU, _ON_GPU = 16, 256  # pairs a batch


class PairModel:
    """Weights load when first asked. `find` gives the folder, and raises what there is to raise when it is not there.

    `device` is auto, cpu, cuda or cuda:N; a GPU computes in bfloat16. Calls of many threads join into batches.
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
                    weights = T5Weights if is_t5(config_of(folder)) else EncoderWeights
                    self._loaded = weights(folder, self._device)
            return self._loaded

    def _run(self, pairs: list[tuple[str, str]]) -> list[Row]:
        """Batches of pairs of like length, so that little of a batch is padding."""
        model = self._model()
        size = self._batch or (_ON_CPU if model.on_cpu else _ON_GPU)
        coded = model.code(pairs)
        order = sorted(range(len(coded)), key=lambda index: len(coded[index]["input_ids"]))
        found: dict[int, Row] = {}
        for start in range(0, len(order), size):
            part = order[start : start + size]
            found.update(zip(part, model.rows([coded[index] for index in part]), strict=True))
        return [found[index] for index in range(len(pairs))]
