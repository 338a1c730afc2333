"""Training a segmenter: which gaps of a dialogue are those at which people saw a new topic begin.

An encoder with a new head learns the gaps, as the RoBERTa in SeCom (section 3.3) that its LLM is compared with; or
logistic regression over the features of each gap weights the vectors of an unchanged encoder, which takes minutes on a
CPU, most of them for the vectors, in place of an hour. `localmem.segmentation.texttiling` decides how a gap is
presented. The threshold is chosen by Score: on the validation dialogues, or by cross-validation over dialogues, as is
the strength of the regularisation.
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

from finetune.run_folder import Card, register, save_run, write_report
from finetune.trainers.training import (
    Recipe,
    TrainingJob,
    TrainingRecipe,
    TrainingResult,
    base_folder,
    fit,
    load_encoder,
    require_modules,
)
from localmem.errors import BadInput
from localmem.evaluation.datasets.segmented_dialogues import (
    Agreement,
    SegmentedDialogue,
    agreement,
    mean_agreement,
    read_segmented_dialogues,
)
from localmem.segmentation.segmenters import segments_between
from localmem.segmentation.texttiling import BOUNDARY, PLAIN, Floats, Gaps, TilingModel, exchange_texts, gap_features

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline
    from transformers import PreTrainedTokenizerBase


LABELS = ("inside", BOUNDARY)
_THRESHOLDS = tuple(number / 20 for number in range(2, 19))


class SegmenterRecipe(TrainingRecipe):
    """Recipe of `localmem finetune segmenter`."""

    train: tuple[Path, ...] = ()
    """Labelled dialogues (TIAGE, SuperDialSeg, DialSeg711)."""
    valid: tuple[Path, ...] = ()
    """Validation dialogues, also for the threshold; default: a tenth of the training dialogues."""
    limit: int | None = Field(None, ge=2)
    """Use only the first N training dialogues."""
    before: int = Field(2, ge=1)
    """Exchanges shown before a gap."""
    after: int = Field(2, ge=1)
    """Exchanges shown after a gap."""
    window: int = Field(256, ge=8)
    """Tokens of a gap's two sides that are read."""
    epochs: float = Field(4.0, gt=0)
    """Passes over the training data, at most."""
    batch_size: int = Field(32, ge=1)
    """Examples in a batch."""
    patience: int = Field(2, ge=1)
    """Epochs without improvement after which training stops."""


def train(job: TrainingJob[SegmenterRecipe]) -> TrainingResult:
    """Train, choose the threshold, write the run's folder. Raises BadInput before the first step."""
    from transformers import DataCollatorWithPadding, set_seed

    recipe = job.recipe
    learned, held_out = read_training_dialogues(recipe.train, recipe.valid, recipe.limit)
    if not held_out:
        share = len(learned) // 10
        learned, held_out = learned[share:], learned[:share]
        _check_boundaries("validation", held_out)
    set_seed(recipe.seed)
    base = base_folder(recipe.base)
    model, tokenizer = load_encoder(base, "SequenceClassification", LABELS)
    gaps = Gaps(before=recipe.before, after=recipe.after)
    examples, checked = (_encode(part, gaps, recipe.window, tokenizer) for part in (learned, held_out))
    job.notify(f"{len(learned)} training dialogues with {len(examples)} gaps, {len(held_out)} validation dialogues")
    segments = [dialogue.segments for dialogue in held_out]
    collate = DataCollatorWithPadding(tokenizer)
    result = fit(job, model, examples, checked, collate, lambda logits, _: _measure(segments, logits), "score")
    notes = Gaps(recipe.before, recipe.after, threshold=result.measures["threshold"]).notes()
    model.config.localmem = notes
    card = Card(
        title="Topical segmenter",
        what="Predicts whether a new topic begins between two utterances of a dialogue. Used as SeCom's option "
        "`segmenter`.",
        base=base.name,
        data=[*recipe.train, *recipe.valid],
        settings=notes,
    )
    save_run(job, model, tokenizer, card, result, {"dialogues": len(learned)})
    return result


def read_training_dialogues(
    train: Sequence[Path], valid: Sequence[Path], limit: int | None
) -> tuple[list[SegmentedDialogue], list[SegmentedDialogue]]:
    """Training and validation dialogues; the latter may be empty. Raises BadInput for none and without a boundary."""
    learned = [dialogue for path in train for dialogue in read_segmented_dialogues(path)][:limit]
    held_out = [dialogue for path in valid for dialogue in read_segmented_dialogues(path)]
    if not learned:
        raise BadInput("there are no training dialogues; add --train FILE")
    _check_boundaries("training", learned)
    if held_out:
        _check_boundaries("validation", held_out)
    return learned, held_out


def best_threshold(segments: Sequence[Sequence[range]], scores: Sequence[float]) -> dict[str, float]:
    """The agreement at the best threshold, over whole dialogues; `scores` are those of all their gaps, in order."""
    best, threshold = max(
        ((_agreement_at(segments, scores, threshold), threshold) for threshold in _THRESHOLDS),
        key=lambda candidate: (candidate[0].score, -abs(candidate[1] - 0.5)),
    )
    return {**best._asdict(), "score": best.score, "threshold": threshold}


def _check_boundaries(part: str, dialogues: Sequence[SegmentedDialogue]) -> None:
    if not any(len(dialogue.segments) > 1 for dialogue in dialogues):
        raise BadInput(f"no boundary in the {part} dialogues ({len(dialogues)}); use labelled dialogues")


def _encode(
    dialogues: Sequence[SegmentedDialogue], gaps: Gaps, window: int, tokenizer: "PreTrainedTokenizerBase"
) -> list[dict[str, object]]:
    """Every gap of every dialogue, in order, as input of the model with its label."""
    rows: list[dict[str, object]] = []
    for dialogue in dialogues:
        starts = {segment.start for segment in dialogue.segments}
        for gap, (before, after) in enumerate(gaps.pairs(exchange_texts(dialogue.session)), start=1):
            tokens = tokenizer(before, after, truncation=True, max_length=window)
            rows.append({**tokens, "labels": int(gap in starts)})
    return rows


def _measure(segments: Sequence[Sequence[range]], logits: NDArray[np.float32]) -> dict[str, float]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return best_threshold(segments, (powers[:, 1] / powers.sum(axis=1)).tolist())


def _agreement_at(segments: Sequence[Sequence[range]], scores: Sequence[float], threshold: float) -> Agreement:
    remaining = iter(scores)
    agreements = []
    for expected in segments:
        count = expected[-1].stop if expected else 0
        starts = {gap for gap in range(1, count) if next(remaining) >= threshold}
        agreements.append(agreement(expected, segments_between(starts, count)))
    return mean_agreement(agreements)


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
        """A model of the dialogues with these numbers. Raises BadInput if they do not hold gaps of both kinds.

        Only the main directions of the two vectors count, so that few gaps do not have to teach many weights.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.decomposition import PCA
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        rows = list(numbers)
        boundaries = np.concatenate([np.empty(0, np.int64), *(self.boundaries[number] for number in rows)])
        if len(np.unique(boundaries)) < 2:
            raise BadInput(
                f"too few dialogues ({len(self.dialogues)}): without those of one fold of {_FOLDS}, no boundary or "
                "nothing else remains to learn from; give more with --train FILE"
            )
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
        return model.fit(features, boundaries)

    def measure(self, scores: Sequence[Floats]) -> dict[str, float]:
        """Agreement at the best threshold; `scores` are those of each dialogue's gaps."""
        return best_threshold([dialogue.segments for dialogue in self.dialogues], np.concatenate(scores).tolist())


def train_tiling(job: TrainingJob[TextTilingRecipe]) -> TrainingResult:
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
