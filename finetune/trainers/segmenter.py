"""Training a segmenter: an encoder with a fresh head learns at which gaps of a dialogue people saw a new topic begin.

SeCom, section 3.3, compares its LLM with a RoBERTa trained so; how a gap is shown is decided in
`localmem.segmentation.boundary_classifier`.
The threshold is chosen on the validation dialogues, by Score.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.run_folder import About, save
from finetune.trainers.training import Plan, Trained, fit, quietly
from localmem.errors import BadInput
from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue, read_segmented_dialogues
from localmem.evaluation.metrics.segmentation import Agreement, agreement, mean_agreement
from localmem.segmentation.boundary_classifier import BOUNDARY, Gaps, exchange_texts
from localmem.segmentation.segmenters import between

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LABELS = ("inside", BOUNDARY)
_THRESHOLDS = tuple(number / 20 for number in range(2, 19))


@dataclass(frozen=True, slots=True)
class Job:
    """What to train from what. Without `valid` a tenth of the training dialogues is kept back."""

    base: Path
    train: Sequence[Path]
    valid: Sequence[Path]
    out: Path
    plan: Plan
    gaps: Gaps = field(default_factory=Gaps)
    limit: int | None = None
    window: int = 256
    licence: str = "that of the base model and of the training data"
    command: str = "localmem finetune segmenter"


def train(job: Job, *, resume: bool = False, note: Callable[[str], None] = print) -> Trained:
    """Trains, chooses the threshold, writes the run's folder. Raises BadInput before the first step."""
    from transformers import DataCollatorWithPadding, set_seed

    learned, held_out = dialogues(job.train, job.valid, job.limit)
    if not held_out:
        learned, held_out = learned[len(learned) // 10 :], learned[: len(learned) // 10]
        check_boundaries("validation", held_out)
    set_seed(job.plan.seed)
    model, tokenizer = _fresh(job)
    examples, checked = (_encoded(part, job, tokenizer) for part in (learned, held_out))
    note(f"{len(learned)} dialogues with {len(examples)} gaps to learn from, {len(held_out)} to check on")
    seen = [one.segments for one in held_out]
    trained = fit(
        model,
        job.plan,
        examples,
        checked,
        DataCollatorWithPadding(tokenizer),
        lambda logits, _: _measures(seen, logits),
        "score",
        job.out,
        resume=resume,
    )
    gaps = replace(job.gaps, threshold=trained.measures["threshold"])
    model.config.localmem = gaps.notes()
    save(job.out, model, tokenizer, _about(job, gaps), job.plan, trained, {"dialogues": len(learned)})
    return trained


def dialogues(
    train: Sequence[Path], valid: Sequence[Path], limit: int | None
) -> tuple[list[SegmentedDialogue], list[SegmentedDialogue]]:
    """Those to learn from and those to check on, which may be none. Raises BadInput where either hold no boundary."""
    learned = [one for path in train for one in read_segmented_dialogues(path)][:limit]
    held_out = [one for path in valid for one in read_segmented_dialogues(path)]
    check_boundaries("training", learned)
    if held_out:
        check_boundaries("validation", held_out)
    return learned, held_out


def check_boundaries(name: str, found: Sequence[SegmentedDialogue]) -> None:
    """Raises BadInput where the dialogues hold none."""
    if not any(len(one.segments) > 1 for one in found):
        raise BadInput(f"the {len(found)} {name} dialogues hold no boundary; give labelled ones")


def _fresh(job: Job) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The encoder with an untrained head of two labels."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(job.base), **local)
        with quietly():
            model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(
                str(job.base), num_labels=len(LABELS), id2label=dict(enumerate(LABELS)), **local
            )
    except (OSError, ValueError) as error:
        raise BadInput(f"{job.base} is no encoder to start from: {' '.join(str(error).split())[:200]}") from error
    return model, tokenizer


def _encoded(
    marked: Sequence[SegmentedDialogue], job: Job, tokenizer: "PreTrainedTokenizerBase"
) -> list[dict[str, object]]:
    """Each gap of each dialogue, in order, as the model reads it, with its label."""
    rows: list[dict[str, object]] = []
    for one in marked:
        starts = {segment.start for segment in one.segments}
        for gap, (left, right) in enumerate(job.gaps.pairs(exchange_texts(one.session)), start=1):
            coded = tokenizer(left, right, truncation=True, max_length=job.window)
            rows.append({**coded, "labels": int(gap in starts)})
    return rows


def _measures(right: Sequence[Sequence[range]], logits: "NDArray[np.float32]") -> dict[str, float]:
    return best_cut(right, _boundary_probabilities(logits))


def best_cut(right: Sequence[Sequence[range]], scores: Sequence[float]) -> dict[str, float]:
    """The agreement at the best threshold, over whole dialogues; `scores` are those of all their gaps, in order."""
    best, threshold = max(
        ((_agreement(right, scores, at), at) for at in _THRESHOLDS),
        key=lambda found: (found[0].score, -abs(found[1] - 0.5)),
    )
    return {**best._asdict(), "score": best.score, "threshold": threshold}


def _agreement(right: Sequence[Sequence[range]], scores: Sequence[float], threshold: float) -> Agreement:
    left = iter(scores)
    found = []
    for segments in right:
        count = segments[-1].stop if segments else 0
        starts = {gap for gap in range(1, count) if next(left) >= threshold}
        found.append(agreement(segments, between(starts, count)))
    return mean_agreement(found)


def _boundary_probabilities(logits: "NDArray[np.float32]") -> list[float]:
    import numpy as np

    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: list[float] = (powers[:, 1] / powers.sum(axis=1)).tolist()
    return probabilities


def _about(job: Job, gaps: Gaps) -> About:
    return About(
        title="Topical segmenter",
        what=(
            "Tells whether a new topic begins between two utterances of a dialogue. Used as SeCom's segmenter with "
            "option `segmenter`."
        ),
        command=job.command,
        base=job.base.name,
        data=[*job.train, *job.valid],
        licence=job.licence,
        settings={**gaps.notes(), "window": job.window, "limit": job.limit},
    )
