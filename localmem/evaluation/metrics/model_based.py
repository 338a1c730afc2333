"""Measures that need a local model: BERTScore and MAUVE, through their own libraries.

Nothing is downloaded: BERTScore gets the folder of an encoder, MAUVE the vectors from `likelihood.Scorer`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.errors import BadInput, MissingExtra, ModelMissing
from localmem.evaluation.metrics.text import Overlap, check_pairs
from localmem.llm.device import resolve_device
from localmem.weights.loading import no_progress_bar, one_at_a_time

if TYPE_CHECKING:
    import numpy as np
    from bert_score import BERTScorer
    from numpy.typing import NDArray

MIN_TEXTS = 20  # texts from which MAUVE has two clusters of ten, its minimum; its authors recommend thousands
_SEED = 25  # of mauve-text


class BertScore:
    """BERTScore with the encoder in a local folder (Zhang et al., 2020): words matched by the cosines of their vectors.

    `layers` is the layer whose vectors are used. The library knows the best layer of models on the hub (17 for
    roberta-large, for one) but not of a folder, so the default is the last. Figures of different encoders or layers
    cannot be compared. Scores are neither rescaled nor weighted by idf.
    """

    def __init__(self, folder: Path, *, layers: int | None = None, device: str = "auto", batch: int = 16) -> None:
        self._scorer, self.layers = _load_scorer(folder, layers, resolve_device(device))
        self._batch = batch

    def score(self, texts: Sequence[str], golds: Sequence[str]) -> list[Overlap]:
        """One score per text, in order. An empty text scores 0: it has nothing to match."""
        check_pairs(texts, golds)
        filled = [index for index in range(len(texts)) if texts[index].strip() and golds[index].strip()]
        scores = [Overlap(0.0, 0.0, 0.0)] * len(texts)
        if filled:
            ours, theirs = [texts[index] for index in filled], [golds[index] for index in filled]
            columns = self._scorer.score(ours, theirs, batch_size=self._batch)
            for index, row in zip(filled, zip(*(column.tolist() for column in columns), strict=True), strict=True):
                scores[index] = Overlap(*row)
        return scores


def mauve(ours: "NDArray[np.float32]", theirs: "NDArray[np.float32]", *, seed: int = _SEED) -> float:
    """How close the generated texts are to those that people wrote, as two sets of vectors (0 to 1).

    Pillutla et al., 2021, by mauve-text with its own settings: a tenth as many clusters as texts. It describes a
    system's texts together and no single one, and depends on the model behind the vectors and on their number. Raises
    BadInput for fewer than 20 of either, and MissingExtra without mauve-text.
    """
    if min(len(ours), len(theirs)) < MIN_TEXTS:
        raise BadInput(f"MAUVE cannot compare {len(ours)} and {len(theirs)} texts; give at least {MIN_TEXTS} of both")
    try:
        from mauve import compute_mauve
    except ImportError as error:
        raise MissingExtra("MAUVE needs mauve-text; run `pip install 'localmem[eval]'`") from error
    return float(compute_mauve(p_features=ours, q_features=theirs, seed=seed, verbose=False).mauve)


def _load_scorer(folder: Path, layers: int | None, device: str) -> "tuple[BERTScorer, int]":
    try:
        from bert_score import BERTScorer
    except ImportError as error:
        raise MissingExtra("BERTScore needs bert-score; run `pip install 'localmem[eval]'`") from error
    deepest = _count_layers(folder)
    layers = deepest if layers is None else layers
    if not 1 <= layers <= deepest:
        raise BadInput(f"the encoder in {folder} has no layer {layers}; give 1 to {deepest}")
    with one_at_a_time(), no_progress_bar():
        return BERTScorer(model_type=str(folder), num_layers=layers, device=device), layers


def _count_layers(folder: Path) -> int:
    try:
        return int(json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"])
    except (OSError, ValueError, KeyError) as error:
        raise ModelMissing(f"there is no encoder in {folder}; give the folder of a BERT-like model") from error
