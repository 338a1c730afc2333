"""Training a classifier of memory operations, as in Keep Me Updated (sections 4.3 and 5.1.1, appendix B.4).

Three regimes: from scratch (the base learns operations), NLI zero-shot (it learns inference, and a mapping turns
inferences into operations), and NLI transfer (it learns inference, then operations). Works with any base of
`finetune.trainers.pair_trainers`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from finetune.operation_pairs import Fold, hold_out
from finetune.operation_statements import make_pairs, read_blocks
from finetune.run_folder import Card, is_first_process, save_run
from finetune.trainers.pair_trainers import FRESH, StoredPart, fit_pairs, freeze_layers, make_learner
from finetune.trainers.training import (
    REPORT,
    TrainingJob,
    TrainingRecipe,
    TrainingResult,
    base_folder,
    has_begun,
    update_recipe,
)
from localmem.classification import OPERATIONS
from localmem.classification.pair_classifier import INFERENCES, config_of, labels_of
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import (
    SHIPPED,
    LabelledPair,
    count_labels,
    read_inference,
    read_operations,
)
from localmem.llm.adapters import AdapterNotes, save_notes
from localmem.retrieval.encoder_part import NOTES, part_notes
from localmem.weights.manifest import Role

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Regime = Literal["scratch", "zero-shot", "transfer"]
NLI = "nli"  # the folder of the inference model inside that of the run that starts from it

_PURPOSE: dict[tuple[str, ...], str] = {
    OPERATIONS: "Given a remembered sentence and a new one, it predicts PASS, APPEND, REPLACE or DELETE. Used as "
    "CareCall's option `classifier`.",
    INFERENCES: "Given a premise and a hypothesis, it predicts entailment, neutral or contradiction. As CareCall's "
    "option `classifier` it decides operations by the mapping of Keep Me Updated (section 5.1.1).",
}


class OperationRecipe(TrainingRecipe):
    """Recipe of `localmem finetune operations`."""

    base: str = "minilm-l6-v2"
    """Encoder or T5 to start from, by name or folder; t5:tiny, t5:mini, t5:small: a randomly initialised T5."""
    regime: Regime = "scratch"
    """Operations only; inference only, mapped to operations; or inference, then operations."""
    data: tuple[Path, ...] = ()
    """Operation pairs: JSONL of memory, summary, label and group, or HaluMem's personas; default: the shipped pairs."""
    repeats: int = Field(1, ge=1)
    """How often the pairs of `data` are learned in an epoch, beside pairs made from statements."""
    statements: int = Field(0, ge=0)
    """Number of pairs made by recombining the shipped statements; they are learned and never validated on."""
    frozen_layers: int | None = Field(None, ge=0)
    """Lower layers of the encoder that stay as they are, with its embeddings; the result is stored without them, as
    int8. Unset, all weights learn and are stored."""
    nli: tuple[Path, ...] = ()
    """Inference pairs (SICK, SNLI, MultiNLI, KLUE-NLI)."""
    nli_valid: tuple[Path, ...] = ()
    """Inference pairs for validation; default: a share of the others."""
    nli_epochs: float = Field(3.0, gt=0)
    """Passes over the inference pairs, at most."""
    limit: int | None = Field(None, ge=2)
    """Use only the first N inference pairs."""
    window: int = Field(128, ge=8)
    """Tokens of a pair that are read."""
    balance: bool = False
    """Weight each label by its rarity."""
    split_layers: int = Field(0, ge=0)
    """Lower layers of a BERT that read a pair's texts separately: faster in batches and less accurate."""
    validation_share: float = 0.1
    """Share of the pairs that is held out for validation."""
    fresh_learning_rate: float = Field(1e-3, gt=0)
    """Learning rate of a randomly initialised T5."""


class PairLesson(NamedTuple):
    """What one training teaches: the labels, the divided pairs, their files, and the title of the card."""

    labels: tuple[str, ...]
    pairs: Fold
    files: Sequence[Path]
    title: str


def train(job: TrainingJob[OperationRecipe]) -> TrainingResult:
    """Train in the regime of the recipe and write the run's folder. Raises BadInput before the first step."""
    job = use_fresh_rate(job)
    if job.recipe.regime == "zero-shot":
        return _train_inference(job)
    # Read first, so that a mistake in it is reported before the longer training.
    pairs = hold_out(read_operation_pairs(job.recipe), job.recipe.validation_share, job.recipe.seed)
    pairs = Fold(add_statement_pairs(pairs.train, job.recipe), pairs.held_out)
    lesson = PairLesson(OPERATIONS, pairs, operation_files(job.recipe), "Memory operations")
    base = job.recipe.base
    if job.recipe.regime == "transfer":
        base = prepare_inference_model(replace(job, out=job.out / NLI, name=None))
        if base == str(job.out / NLI):  # an interrupt may have come before the second training
            job = replace(job, resume=has_begun(job.out))
    return train_pairs(job, base, lesson)


def use_fresh_rate(job: TrainingJob[OperationRecipe]) -> TrainingJob[OperationRecipe]:
    """Give a randomly initialised T5 its own learning rate: 5e-5 suits weights that were trained before."""
    if not job.recipe.base.startswith(FRESH):
        return job
    return job.with_recipe(update_recipe(job.recipe, learning_rate=job.recipe.fresh_learning_rate))


def prepare_inference_model(job: TrainingJob[OperationRecipe]) -> str:
    """The base if it is an inference model already, otherwise the folder of one that is trained once into `job.out`."""
    recipe = job.recipe
    if not recipe.nli:
        if recipe.base.startswith(FRESH) or not _is_inference_model(recipe.base):
            raise BadInput(
                f"{recipe.base} is not an inference model and there are no inference pairs; add --nli-pairs FILE"
            )
        return recipe.base
    if job.resume and (job.out / REPORT).is_file():
        job.notify(f"{job.out} already holds the inference model")
    else:
        _train_inference(job)
    return str(job.out)


def train_pairs(job: TrainingJob[OperationRecipe], base: str, lesson: PairLesson) -> TrainingResult:
    """Teach `base` one lesson and write the run's folder: weights, card, curves and report."""
    from transformers import set_seed

    recipe, pairs = job.recipe, lesson.pairs
    set_seed(recipe.seed)
    learner = make_learner(base, lesson.labels, recipe.window, pairs.train, recipe.split_layers)
    if recipe.frozen_layers is not None:
        freeze_layers(learner.model, recipe.frozen_layers)
        setattr(learner.model.config, NOTES, getattr(learner.model.config, NOTES, {}))
    job.notify(f"{lesson.title}: {len(pairs.train)} training pairs, {len(pairs.held_out)} validation pairs")
    weights = label_weights(pairs.train, lesson.labels) if recipe.balance else dict.fromkeys(lesson.labels, 1.0)
    measures = PairMeasures(lesson.labels)
    result = fit_pairs(learner, job, pairs, weights, measures)
    results: dict[str, object] = {"learned": len(pairs.train), "checked": len(pairs.held_out), "labels": lesson.labels}
    results |= {"weights": weights, "confusion": measures.confusion}
    role: Role = "nli" if recipe.regime == "zero-shot" else "classifier"
    model, tokenizer = learner.model, learner.tokenizer
    _refuse_if_trivial(job, base, lesson, result.measures["accuracy"])  # before the run is registered as it is
    if recipe.frozen_layers is not None:
        getattr(model.config, NOTES).update(part_notes(base))
        save_run(
            job, cast("PreTrainedModel", StoredPart(model)), None, _card(recipe, base, lesson), result, results, role
        )
    else:
        save_run(job, model, tokenizer, _card(recipe, base, lesson), result, results, role)
    return result


def _refuse_if_trivial(job: TrainingJob[OperationRecipe], base: str, lesson: PairLesson, accuracy: float) -> None:
    """Note against the use of a classifier that is right no more often than always the most frequent label."""
    label, count = Counter(pair.label for pair in lesson.pairs.held_out).most_common(1)[0]
    share = count / len(lesson.pairs.held_out)
    if accuracy > share or not is_first_process():
        return
    failure = f"it is right for {accuracy:.3f} of the validation pairs, and always {label} for {share:.3f}"
    job.notify(f"{job.out} is no better than a trivial rule: {failure}; memory systems refuse it")
    save_notes(job.out, AdapterNotes(base=base, failed=(failure,)))


def add_statement_pairs(pairs: Sequence[LabelledPair], recipe: OperationRecipe) -> list[LabelledPair]:
    """The training pairs as often as the recipe says, and those made from statements."""
    extra = make_pairs(read_blocks(), recipe.statements, recipe.seed) if recipe.statements else []
    return [*extra, *list(pairs) * recipe.repeats]


class PairMeasures:
    """Accuracy, F1 of each label and their mean. `confusion` is that of the last call; its rows are the true labels."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self.confusion: list[list[int]] = []

    def __call__(self, logits: NDArray[np.float32], targets: NDArray[np.int64]) -> dict[str, float]:
        """Measure predictions; `logits` (n, labels), `targets` (n,)."""
        from sklearn.metrics import confusion_matrix, f1_score

        predicted, numbers = logits.argmax(axis=1), list(range(len(self._labels)))
        scores = f1_score(targets, predicted, labels=numbers, average=None, zero_division=0.0).tolist()
        self.confusion = confusion_matrix(targets, predicted, labels=numbers).tolist()
        by_label = {f"f1_{label}": score for label, score in zip(self._labels, scores, strict=True)}
        return {"accuracy": float((predicted == targets).mean()), "macro_f1": sum(scores) / len(scores), **by_label}


def label_weights(pairs: Sequence[LabelledPair], labels: Sequence[str]) -> dict[str, float]:
    """Inverse frequency of each label, with mean 1 over the pairs. Raises BadInput for a label with no example."""
    return {label: len(pairs) / (len(labels) * count) for label, count in count_labels(pairs, labels).items()}


def read_operation_pairs(recipe: OperationRecipe) -> list[LabelledPair]:
    """All operation pairs of the recipe's files. Raises BadInput if an operation has no example."""
    pairs = [pair for path in operation_files(recipe) for pair in read_operations(path).pairs]
    count_labels(pairs, OPERATIONS)
    return pairs


def operation_files(recipe: OperationRecipe) -> tuple[Path, ...]:
    """The recipe's files of operation pairs, by default the shipped one."""
    return recipe.data or (SHIPPED,)


def _train_inference(job: TrainingJob[OperationRecipe]) -> TrainingResult:
    recipe = update_recipe(job.recipe, epochs=job.recipe.nli_epochs)
    if not recipe.nli:
        raise BadInput("there are no inference pairs to learn from; add --nli-pairs FILE")
    pairs = [pair for path in recipe.nli for pair in read_inference(path).pairs][: recipe.limit]
    count_labels(pairs, INFERENCES)
    valid = [pair for path in recipe.nli_valid for pair in read_inference(path).pairs]
    fold = Fold(pairs, valid) if valid else hold_out(pairs, recipe.validation_share, recipe.seed)
    lesson = PairLesson(INFERENCES, fold, [*recipe.nli, *recipe.nli_valid], "Natural language inference")
    return train_pairs(job.with_recipe(recipe), recipe.base, lesson)


def _is_inference_model(base: str) -> bool:
    return {label.lower() for label in labels_of(config_of(base_folder(base)))} == set(INFERENCES)


def _card(recipe: OperationRecipe, base: str, lesson: PairLesson) -> Card:
    if base.startswith(FRESH):
        name = f"a randomly initialised T5 ({base.removeprefix(FRESH)})"
    elif Path(base).name == NLI:
        name = f"{Path(recipe.base).name}, after training on inference"
    else:
        name = Path(base).name
    return Card(title=lesson.title, what=_PURPOSE[lesson.labels], base=name, data=lesson.files)
