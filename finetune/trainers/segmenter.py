"""Training a segmenter: an encoder with a new head learns the gaps of a dialogue at which people saw a new topic begin.

SeCom, section 3.3, compares its LLM with a RoBERTa trained in this way. `localmem.segmentation.boundary_classifier`
decides how a gap is presented. The threshold is chosen on the validation dialogues, by Score.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from finetune.run_folder import Card, save_run
from finetune.trainers.training import TrainingJob, TrainingRecipe, TrainingResult, base_folder, fit, load_encoder
from localmem.errors import BadInput
from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue, read_segmented_dialogues
from localmem.evaluation.metrics.segmentation import Agreement, agreement, mean_agreement
from localmem.segmentation.boundary_classifier import BOUNDARY, Gaps, exchange_texts
from localmem.segmentation.segmenters import segments_between

if TYPE_CHECKING:
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
    """Training and validation dialogues; the latter may be empty. Raises BadInput if either hold no boundary."""
    learned = [dialogue for path in train for dialogue in read_segmented_dialogues(path)][:limit]
    held_out = [dialogue for path in valid for dialogue in read_segmented_dialogues(path)]
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
        raise BadInput(f"the {len(dialogues)} {part} dialogues hold no boundary; use labelled dialogues")


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
