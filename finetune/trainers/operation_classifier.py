"""Training a classifier of operations, as Keep Me Updated has it (sections 4.3 and 5.1.1, appendix B.4).

Three regimes: from scratch (the base learns the operations), NLI zero-shot (it learns inference, and the mapping reads
operations off it), and NLI transfer (it learns inference, then operations). Any base of
`finetune.trainers.pair_trainers` will do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from finetune.cross_validation import Fold, hold_out
from localmem.evaluation.datasets.labelled_pairs import SHIPPED, LabelledPair, count_labels, read_inference, read_operations
from finetune.run_folder import About, save
from finetune.trainers.pair_trainers import learner, teach
from finetune.trainers.t5 import FRESH
from finetune.trainers.training import Plan, Trained
from localmem.classification.nli_mapping import INFERENCES
from localmem.classification.pair_weights import config_of, labels_of
from localmem.errors import BadInput
from localmem.text.base import OPERATIONS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Regime = Literal["scratch", "zero-shot", "transfer"]
REGIMES: tuple[Regime, ...] = ("scratch", "zero-shot", "transfer")
NLI = "nli"  # the folder, inside a run's, of the model of inference that it starts from
FINISHED = "run.json"

_PAIRS = "Given a remembered sentence and a new one, "
_WHAT: dict[tuple[str, ...], str] = {
    OPERATIONS: f"{_PAIRS}it says PASS, APPEND, REPLACE or DELETE. CareCall takes it as its option `classifier`.",
    INFERENCES: (
        "Given a premise and a hypothesis, it says entailment, neutral or contradiction. As CareCall's option "
        "`classifier` it decides operations by the mapping of Keep Me Updated (section 5.1.1)."
    ),
}


@dataclass(frozen=True, slots=True)
class Job:
    """What to train from what. `base` is a folder, or a T5 from nothing (`t5:tiny`).

    `nli` are files of inference pairs, `nli_valid` those to stop by (else a tenth of the others is kept back);
    `balance` weighs labels by how rare they are; `apart` lower layers of a BERT read the two texts of a pair apart.
    `window` is in tokens, `limit` bounds the inference pairs.
    """

    base: str | Path
    out: Path
    plan: Plan
    regime: Regime = "scratch"
    data: Sequence[Path] = (SHIPPED,)
    nli: Sequence[Path] = ()
    nli_valid: Sequence[Path] = ()
    nli_plan: Plan = field(default_factory=Plan)
    balance: bool = False
    apart: int = 0
    window: int = 128
    share: float = 0.1
    limit: int | None = None
    licence: str = "that of the base model and of the training data"
    command: str = "localmem finetune operations"


@dataclass(frozen=True, slots=True)
class Lesson:
    """One training: the pairs, the labels, how, and where the folder goes."""

    labels: tuple[str, ...]
    pairs: Fold
    plan: Plan
    files: Sequence[Path]
    title: str
    out: Path


def train(job: Job, *, resume: bool = False, note: Callable[[str], None] = print) -> Trained:
    """Trains as the regime has it and writes the run's folder. Raises BadInput before the first step."""
    if job.regime == "zero-shot":
        return learn(job.base, _inference(job, job.out), job, resume=resume, note=note)
    lesson = _operations(job)  # read first: a mistake in it is told before the longer training
    transfer = job.regime == "transfer"
    start = inferring(job, job.out / NLI, resume=resume, note=note) if transfer else job.base
    return learn(start, lesson, job, resume=resume, note=note)


def at_fresh_rate(job: Job, rate: float) -> Job:
    """The same job; a T5 from nothing learns at this rate, for 5e-5 suits weights that know something."""
    if not (isinstance(job.base, str) and job.base.startswith(FRESH)):
        return job
    plan, nli_plan = (replace(one, learning_rate=rate) for one in (job.plan, job.nli_plan))
    return replace(job, plan=plan, nli_plan=nli_plan)


def inferring(job: Job, out: Path, *, resume: bool, note: Callable[[str], None]) -> Path:
    """The folder of a model of inference: the base, where it is one, else what is trained in `out`, once."""
    if not job.nli:
        if not (isinstance(job.base, Path) and infers(job.base)):
            raise BadInput(f"{job.base} is no model of inference, and there are no inference pairs; give --nli FILE")
        return job.base
    if resume and (out / FINISHED).is_file():
        note(f"{out} holds the model of inference already")
    else:
        learn(job.base, _inference(job, out), job, resume=resume, note=note)
    return out


def infers(folder: Path) -> bool:
    """Whether the model tells the three inferences apart."""
    return {label.lower() for label in labels_of(config_of(folder))} == set(INFERENCES)


def learn(base: str | Path, lesson: Lesson, job: Job, *, resume: bool, note: Callable[[str], None]) -> Trained:
    """One lesson, and the run's folder with the weights, the card, the curves and the report."""
    from transformers import set_seed

    set_seed(lesson.plan.seed)
    pupil = learner(base, lesson.labels, job.window, lesson.pairs.train, job.apart)
    train, valid = lesson.pairs
    note(f"{lesson.title}: {len(train)} pairs to learn from, {len(valid)} to check on")
    weights = class_weights(train, lesson.labels) if job.balance else dict.fromkeys(lesson.labels, 1.0)
    measures = Measures(lesson.labels)
    trained = teach(pupil, lesson.plan, train, valid, weights, measures, lesson.out, resume=resume)
    more = {
        "learned": len(train),
        "checked": len(valid),
        "labels": lesson.labels,
        "weights": weights,
        "confusion": measures.confusion,
    }
    save(lesson.out, pupil.model, pupil.tokenizer, _about(base, lesson, job), lesson.plan, trained, more)
    return trained


class Measures:
    """Accuracy, the labels' F1 and their mean. `confusion` is that of the last call: rows are the truth."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self.confusion: list[list[int]] = []

    def __call__(self, logits: "NDArray[np.float32]", wanted: "NDArray[np.int64]") -> dict[str, float]:
        from sklearn.metrics import confusion_matrix, f1_score

        said, numbers = logits.argmax(axis=1), list(range(len(self._labels)))
        each = f1_score(wanted, said, labels=numbers, average=None, zero_division=0.0).tolist()
        self.confusion = confusion_matrix(wanted, said, labels=numbers).tolist()
        named = {f"f1_{label}": value for label, value in zip(self._labels, each, strict=True)}
        return {"accuracy": float((said == wanted).mean()), "macro_f1": sum(each) / len(each), **named}


def class_weights(pairs: Sequence[LabelledPair], labels: Sequence[str]) -> dict[str, float]:
    """For each label how rare it is: one on the mean over the pairs. Raises BadInput for a label with no example."""
    found = count_labels(pairs, labels)
    return {label: len(pairs) / (len(labels) * number) for label, number in found.items()}


def operation_pairs(files: Sequence[Path]) -> list[LabelledPair]:
    """All pairs of the files; every operation has an example. Raises BadInput."""
    pairs = [pair for path in files for pair in read_operations(path).pairs]
    count_labels(pairs, OPERATIONS)
    return pairs


def _operations(job: Job) -> Lesson:
    pairs = hold_out(operation_pairs(job.data), job.share, job.plan.seed)
    return Lesson(OPERATIONS, pairs, job.plan, job.data, "Memory operations", job.out)


def _inference(job: Job, out: Path) -> Lesson:
    if not job.nli:
        raise BadInput("there are no inference pairs to learn from; give --nli FILE")
    pairs = [pair for path in job.nli for pair in read_inference(path).pairs][: job.limit]
    count_labels(pairs, INFERENCES)
    valid = [pair for path in job.nli_valid for pair in read_inference(path).pairs]
    fold = Fold(pairs, valid) if valid else hold_out(pairs, job.share, job.nli_plan.seed)
    return Lesson(INFERENCES, fold, job.nli_plan, [*job.nli, *job.nli_valid], "Natural language inference", out)


def _about(base: str | Path, lesson: Lesson, job: Job) -> About:
    started = base.name if isinstance(base, Path) else f"nothing ({base.removeprefix(FRESH)} T5)"
    origin = f"{job.base.name if isinstance(job.base, Path) else job.base}, which learned inference first"
    return About(
        title=lesson.title,
        what=_WHAT[lesson.labels],
        command=job.command,
        base=origin if started == NLI else started,
        data=lesson.files,
        licence=job.licence,
        settings={
            "regime": job.regime,
            "balance": job.balance,
            "apart": job.apart,
            "window": job.window,
            "share": job.share,
            "limit": job.limit,
        },
    )
