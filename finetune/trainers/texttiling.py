"""Training a segmenter on an unchanged encoder: logistic regression over the features of each gap.

It takes minutes on a CPU, most of them for the vectors, while `finetune.trainers.segmenter` takes an hour. The strength
of the regularisation and the threshold are chosen by cross-validation over dialogues, by Score.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from finetune.run_folder import Card, register, write_report
from finetune.trainers.segmenter import best_threshold, read_training_dialogues
from finetune.trainers.training import Recipe, TrainingJob, TrainingResult, base_folder, require_modules
from localmem.segmentation.texttiling import PLAIN, Floats, TilingModel, gap_features

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue

_COMPONENTS = 32  # dimensions of the vectors that the weights may use
_FLAT = 1e-3  # directions whose spread is below this share of the widest one's are dropped
_STRENGTHS = (0.005, 0.02, 0.1)  # scikit-learn's C: lower values keep the weights smaller
_FOLDS = 5
_ROUNDS = 500  # of the solver, at most


class TextTilingRecipe(Recipe):
    """Recipe of `localmem finetune texttiling`."""

    base: str = "minilm-l6-v2"
    """Encoder whose vectors are weighted, by name or folder; it stays unchanged."""
    train: tuple[Path, ...] = ()
    """Labelled dialogues (TIAGE, SuperDialSeg, DialSeg711)."""
    valid: tuple[Path, ...] = ()
    """Dialogues to measure on; default: cross-validation over the training dialogues."""
    limit: int | None = Field(None, ge=2)
    """Use only the first N training dialogues."""


@dataclass(frozen=True, slots=True)
class _GapData:
    """Dialogues with the features of their gaps and the gaps that are boundaries."""

    dialogues: "Sequence[SegmentedDialogue]"
    features: list[Floats]
    boundaries: list[NDArray[np.int64]]

    def fit(self, numbers: Iterable[int], strength: float) -> "Pipeline":
        """A model of the dialogues with these numbers.

        Only the main directions of the two vectors count, so that few gaps do not have to teach many weights.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.decomposition import PCA
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        rows = list(numbers)
        features = np.concatenate([self.features[number] for number in rows])
        width = (features.shape[1] - PLAIN) // 2
        directions = PCA(_count_directions(features[:, PLAIN : PLAIN + width]), svd_solver="full")
        parts = [
            ("plain", "passthrough", slice(0, PLAIN)),
            ("before", directions, slice(PLAIN, PLAIN + width)),
            ("after", directions, slice(PLAIN + width, None)),
        ]
        regression = LogisticRegression(C=strength, max_iter=_ROUNDS)
        model = make_pipeline(ColumnTransformer(parts), StandardScaler(), regression)
        return model.fit(features, np.concatenate([self.boundaries[number] for number in rows]))

    def measure(self, scores: Sequence[Floats]) -> dict[str, float]:
        """Agreement at the best threshold; `scores` are those of each dialogue's gaps."""
        return best_threshold([dialogue.segments for dialogue in self.dialogues], np.concatenate(scores).tolist())


def train(job: TrainingJob[TextTilingRecipe]) -> TrainingResult:
    """Write the run's folder: the encoder, the weights, a report and a card. Raises BadInput before it begins."""
    require_modules("sentence_transformers", "sklearn")
    recipe, base = job.recipe, base_folder(job.recipe.base)
    learned, held_out = read_training_dialogues(recipe.train, recipe.valid, recipe.limit)
    start = perf_counter()
    data = _read_gaps(base, learned)
    job.notify(f"{len(learned)} training dialogues with {sum(map(len, data.features))} gaps")
    trials = [(data.measure(_cross_validate(data, strength, recipe.seed)), strength) for strength in _STRENGTHS]
    measures, strength = max(trials, key=lambda trial: trial[0]["score"])
    model = data.fit(range(len(data.dialogues)), strength)
    if held_out:
        other = _read_gaps(base, held_out)
        measures = other.measure([model.predict_proba(features)[:, 1] for features in other.features])
    tiling = _combine_steps(model, data.features[0].shape[1], measures["threshold"])
    result = TrainingResult({**measures, "strength": strength}, [], perf_counter() - start, 0)
    shutil.copytree(base, job.out, dirs_exist_ok=True)  # the encoder's own folder, with one more file
    tiling.save(job.out)
    card = Card(
        title="Topical segmenter over an encoder's vectors",
        what=f"Predicts whether a new topic begins between two exchanges, from the vectors of {base.name}, which is "
        "unchanged. Used as SeCom's option `segmenter`.",
        base=base.name,
        data=[*recipe.train, *recipe.valid],
        settings={"folds": _FOLDS},
        measured_on="the validation set" if held_out else f"held-out dialogues ({_FOLDS} folds)",
    )
    write_report(job, card, result, {"dialogues": len(learned)})
    register(job, "classifier")
    return result


def _read_gaps(base: Path, dialogues: "Sequence[SegmentedDialogue]") -> _GapData:
    """The data of all dialogues that have a gap."""
    from localmem.retrieval.encoder import SentenceEncoder

    long = [dialogue for dialogue in dialogues if dialogue.segments and dialogue.segments[-1].stop > 1]
    encoder = SentenceEncoder(base, name=base.name)
    features = [rows for rows in gap_features(encoder, [dialogue.session for dialogue in long]) if rows is not None]
    boundaries = []
    for dialogue in long:
        starts = {segment.start for segment in dialogue.segments}
        gaps = range(1, dialogue.segments[-1].stop)
        boundaries.append(np.array([int(gap in starts) for gap in gaps], dtype=np.int64))
    return _GapData(long, features, boundaries)


def _cross_validate(data: _GapData, strength: float, seed: int) -> list[Floats]:
    """The probabilities of each dialogue by a model that did not learn from it."""
    count = len(data.dialogues)
    order = np.random.default_rng(seed).permutation(count).tolist()
    scores: dict[int, Floats] = {}
    for fold in (order[start::_FOLDS] for start in range(min(_FOLDS, count))):
        model = data.fit(sorted(set(range(count)) - set(fold)), strength)
        scores |= {number: model.predict_proba(data.features[number])[:, 1] for number in fold}
    return [scores[number] for number in range(count)]


def _count_directions(vectors: Floats) -> int:
    """How many directions to use; scaling those with hardly any spread would only magnify rounding errors."""
    spread = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False)
    return max(1, min(_COMPONENTS, int((spread > _FLAT * spread[0]).sum())))


def _combine_steps(model: "Pipeline", features: int, threshold: float) -> TilingModel:
    """One weight for each feature: all steps of the pipeline are linear, so their composition is, too."""
    bias = float(model.decision_function(np.zeros((1, features)))[0])
    weights = model.decision_function(np.eye(features)) - bias
    return TilingModel(weights=tuple(weights.tolist()), bias=bias, threshold=threshold)
