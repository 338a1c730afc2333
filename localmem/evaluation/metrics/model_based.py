"""Measures that ask a local model: BERTScore and MAUVE, by their own libraries. Knows no system and no data set.

Nothing is fetched: BERTScore gets the folder of an encoder, and MAUVE gets vectors that `likelihood.Scorer` made.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.errors import BadInput, MissingExtra, ModelMissing
from localmem.evaluation.metrics.text import Overlap
from localmem.llm.device import resolve_device
from localmem.weights.loading import no_progress_bar, one_at_a_time

if TYPE_CHECKING:
    import numpy as np
    from bert_score import BERTScorer
    from numpy.typing import NDArray

FEWEST = 20  # texts from which MAUVE has two clusters of ten, its fewest; its authors advise thousands
_SEED = 25  # of mauve-text


class BertScore:
    """BERTScore over the encoder in a local folder (Zhang et al., 2020): words matched by the cosines of their vectors.

    `layers` is the layer whose vectors are taken; the library knows which is best for models of the hub (17 of
    roberta-large, for one) and cannot know it of a folder, so without one it is the last. Figures of two encoders, or
    of two layers, cannot be compared. Scores are neither rescaled nor weighed by idf.
    """

    def __init__(self, folder: Path, *, layers: int | None = None, device: str = "auto", batch: int = 16) -> None:
        self._scorer, self.layers = _scorer(folder, layers, resolve_device(device))
        self._batch = batch

    def score(self, texts: Sequence[str], golds: Sequence[str]) -> list[Overlap]:
        """Of each text, in order. An empty one scores 0: there is nothing in it to match."""
        if len(texts) != len(golds):
            raise BadInput(f"{len(texts)} texts and {len(golds)} gold texts cannot be paired; give as many of both")
        held = [index for index in range(len(texts)) if texts[index].strip() and golds[index].strip()]
        found = [Overlap(0.0, 0.0, 0.0)] * len(texts)
        if held:
            ours, theirs = [texts[index] for index in held], [golds[index] for index in held]
            columns = self._scorer.score(ours, theirs, batch_size=self._batch)
            for index, row in zip(held, zip(*(column.tolist() for column in columns), strict=True), strict=True):
                found[index] = Overlap(*row)
        return found


def mauve(ours: "NDArray[np.float32]", theirs: "NDArray[np.float32]", *, seed: int = _SEED) -> float:
    """How near the texts that were generated are to those that people wrote, as two clouds of vectors (0 to 1).

    Pillutla et al., 2021, by mauve-text with its own settings: a tenth as many clusters as texts. It says something of
    a system's texts as a whole and nothing of one, and depends on the model that made the vectors and on how many there
    are. Raises BadInput for fewer than 20 of either, and MissingExtra without mauve-text.
    """
    if min(len(ours), len(theirs)) < FEWEST:
        raise BadInput(f"MAUVE of {len(ours)} and {len(theirs)} texts says nothing; give at least {FEWEST} of both")
    try:
        from mauve import compute_mauve
    except ImportError as error:
        raise MissingExtra("MAUVE needs mauve-text; run `pip install 'localmem[eval]'`") from error
    return float(compute_mauve(p_features=ours, q_features=theirs, seed=seed, verbose=False).mauve)


def _scorer(folder: Path, layers: int | None, device: str) -> "tuple[BERTScorer, int]":
    try:
        from bert_score import BERTScorer
    except ImportError as error:
        raise MissingExtra("BERTScore needs bert-score; run `pip install 'localmem[eval]'`") from error
    deepest = _layers(folder)
    layers = deepest if layers is None else layers
    if not 1 <= layers <= deepest:
        raise BadInput(f"the encoder in {folder} has no layer {layers}; give 1 to {deepest}")
    with one_at_a_time(), no_progress_bar():
        return BERTScorer(model_type=str(folder), num_layers=layers, device=device), layers


def _layers(folder: Path) -> int:
    try:
        return int(json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"])
    except (OSError, ValueError, KeyError) as error:
        raise ModelMissing(f"no encoder is in {folder}; give the folder of a BERT-like model") from error
