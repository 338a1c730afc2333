"""The common part of all trainers: recipes, jobs, and transformers' Trainer run so that it can resume bit by bit.

Does not depend on any task: a trainer passes a model, encoded examples and a measure. With `accelerate launch` the same
code trains on several GPUs.
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from finetune import resuming
from localmem.errors import BadInput, MissingExtra
from localmem.llm.device import quiet_loading
from localmem.weights import model_path

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from transformers import (
        DataCollatorForTokenClassification,
        DataCollatorWithPadding,
        PreTrainedModel,
        PreTrainedTokenizerFast,
        Trainer,
        TrainerState,
    )

Notify = Callable[[str], None]
Example = Mapping[str, object]
Measure = Callable[["NDArray[np.float32]", "NDArray[np.int64]"], dict[str, float]]  # (logits, labels) -> named measures

_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory|CUBLAS_STATUS_ALLOC_FAILED")
CHECKPOINTS = "checkpoints"
REPORT = "run.json"


class Recipe(BaseModel):
    """What every recipe has: a base model, a seed, and the licence of the result."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    base: str = "minilm-l6-v2"
    """Encoder to start from, by name or folder."""
    seed: int = 0
    """Seed of the weights, the order of examples and every sample."""
    licence: str = "that of the base model and of the training data"
    """Licence of the trained weights, for their card and the manifest."""


class TrainingRecipe(Recipe):
    """The hyperparameters of gradient training. Defaults: Keep Me Updated (appendix B)."""

    epochs: float = Field(20.0, gt=0)
    """Passes over the training data, at most."""
    batch_size: int = Field(8, ge=1)
    """Examples in a batch."""
    accumulate: int = Field(1, ge=1)
    """Batches in a step of the optimiser."""
    learning_rate: float = Field(5e-5, gt=0)
    """Peak learning rate."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the learning rate rises."""
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay of AdamW."""
    patience: int = Field(3, ge=1)
    """Epochs without improvement after which training stops."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format; `auto` is bfloat16 on a GPU that supports it and float32 elsewhere."""


PLAN_FIELDS = tuple(name for name in TrainingRecipe.model_fields if name not in ("base", "licence"))

RecipeT = TypeVar("RecipeT", bound=BaseModel)
RecipeT_co = TypeVar("RecipeT_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True, slots=True)
class TrainingJob(Generic[RecipeT_co]):
    """One training run: the recipe, the folder it fills, and how it is reported.

    `name` registers the finished model in the local manifest. `command` is the line that repeats the run, for its card.
    `resume` continues from the last checkpoint in `out`. `data` are files to learn from that are not in the recipe.
    """

    recipe: RecipeT_co
    out: Path
    name: str | None = None
    command: str = ""
    resume: bool = False
    notify: Notify = print
    data: tuple[Path, ...] = ()

    def with_recipe(self, recipe: RecipeT) -> "TrainingJob[RecipeT]":
        """The same job with another recipe."""
        return TrainingJob(recipe, self.out, self.name, self.command, self.resume, self.notify, self.data)


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The measures of the best epoch on the validation set, every line of the log, and the cost.

    `seconds` are those of training, of a resumed run in all its parts but without the steps that an interrupt lost.
    """

    measures: dict[str, float]
    log: list[dict[str, float]]
    seconds: float
    steps: int


def update_recipe(recipe: RecipeT, **fields: object) -> RecipeT:
    """The recipe with some fields replaced, validated."""
    return type(recipe).model_validate({**recipe.model_dump(exclude_unset=True), **fields})


def base_folder(base: str) -> Path:
    """The folder of a base model, which is given as a folder or as a model's name. Raises ModelMissing."""
    return Path(base) if Path(base).is_dir() else model_path(base)


def reject_base(base: Path, kind: str, error: Exception) -> NoReturn:
    """Raise BadInput for a folder that transformers cannot load as this kind of model."""
    raise BadInput(f"{base} cannot be loaded as {kind}: {' '.join(str(error).split())[:200]}") from error


def load_encoder(base: Path, kind: str, labels: Sequence[str]) -> "tuple[PreTrainedModel, PreTrainedTokenizerFast]":
    """An encoder with an untrained head for these labels, and its tokenizer.

    `kind` is the end of the auto class's name: SequenceClassification or TokenClassification. Raises BadInput.
    """
    import transformers

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer: PreTrainedTokenizerFast = transformers.AutoTokenizer.from_pretrained(str(base), **local)
        with quiet_loading():
            model: PreTrainedModel = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
                str(base), num_labels=len(labels), id2label=dict(enumerate(labels)), **local
            )
    except (OSError, ValueError) as error:
        reject_base(base, "an encoder", error)
    return model, tokenizer


def fit(
    job: TrainingJob[TrainingRecipe],
    model: "PreTrainedModel",
    train: Sequence[Example],
    valid: Sequence[Example],
    collate: "DataCollatorWithPadding | DataCollatorForTokenClassification",
    measure: Measure,
    best: str,
    **options: Any,  # noqa: ANN401  # further arguments of transformers' Trainer
) -> TrainingResult:
    """Train `model` in place, to the weights of the epoch with the highest `best`.

    A resumed run ends with the same weights as an uninterrupted one on a CPU. Raises BadInput if the job's folder holds
    a finished run, or checkpoints and the job does not resume.
    """
    from transformers import EarlyStoppingCallback, Trainer, TrainingArguments

    check_checkpoints(job)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**trainer_arguments(job, best)),
        train_dataset=list(train),
        eval_dataset=list(valid),
        data_collator=collate,
        compute_metrics=lambda predicted: measure(predicted.predictions, predicted.label_ids),
        callbacks=[EarlyStoppingCallback(job.recipe.patience)],
        **options,
    )
    return run_trainer(trainer, job)


def run_trainer(trainer: "Trainer", job: TrainingJob[Recipe], template: str = "") -> TrainingResult:
    """Train from the last checkpoint of the job, or record what it begins with, and evaluate the best weights.

    `template` is as in `check_checkpoints`. Raises BadInput if the training would not fit into memory.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)  # it writes to stdout, which is reserved for results
    _check_memory(trainer.model)
    checkpoint = _last_checkpoint(job.out)
    if checkpoint is None:
        if job.resume:
            job.notify(f"{job.out} holds no checkpoint yet, so the training starts from its beginning")
        resuming.record_beginning(job.out / CHECKPOINTS, job.recipe, _base_of(job), template, job.data)
    clock = _add_clock(trainer)
    with quiet_loading(), _enough_memory(trainer):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        seconds = clock()
        metrics = trainer.evaluate()
    figures = {name: float(value) for name, value in metrics.items() if name.startswith("eval_")}
    measures = {n.removeprefix("eval_"): v for n, v in figures.items() if not n.endswith(("_second", "_runtime"))}
    return TrainingResult(measures, trainer.state.log_history, seconds, trainer.state.global_step)


def _add_clock(trainer: "Trainer") -> Callable[[], float]:
    """A function that gives the seconds of training, with those up to the checkpoint that it goes on from.

    transformers saves the state of such a callback in each checkpoint, and restores it.
    """
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState

    class TrainingClock(TrainerCallback, ExportableState):
        def __init__(self, before: float = 0.0) -> None:
            self._before, self._start = before, perf_counter()

        def seconds(self) -> float:
            return self._before + perf_counter() - self._start

        def state(self) -> dict[str, dict[str, float]]:
            return {"args": {"before": self.seconds()}, "attributes": {}}

        def on_train_begin(self, _args: object, state: "TrainerState", _control: object, **_: object) -> None:
            """Add the clock's state, which a checkpoint of an earlier version does not hold."""
            state.stateful_callbacks.setdefault(type(self).__name__, self.state())

    trainer.add_callback(TrainingClock())
    handler = trainer.callback_handler
    return lambda: next(each.seconds() for each in handler.callbacks if isinstance(each, TrainingClock))


def check_checkpoints(job: TrainingJob[Recipe], template: str = "") -> None:
    """Compare a run that goes on with what it began with.

    `template` is the checksum of the chat template, if the base has one. Raises BadInput if the job's folder holds a
    finished run, checkpoints and the job does not resume, or if the job resumes what did not begin there, or began with
    other data, settings or models.
    """
    if (job.out / REPORT).exists():
        raise BadInput(f"{job.out} holds a finished run; choose another --out")
    if not job.resume:
        if _last_checkpoint(job.out) is None:
            return
        raise BadInput(f"{job.out} holds checkpoints of an unfinished run; use --resume, or choose another --out")
    if not has_begun(job.out):
        raise BadInput(
            f"no training began in {job.out}: it has no {CHECKPOINTS}/{resuming.FILE}; leave out --resume to begin "
            "one, or give the --out of an interrupted one"
        )
    resuming.compare_beginning(job.out / CHECKPOINTS, job.recipe, _base_of(job), template, job.data)


def has_begun(out: Path) -> bool:
    """Whether the folder holds a training that has begun, be it finished or not."""
    return (out / REPORT).exists() or (out / CHECKPOINTS / resuming.FILE).exists() or _last_checkpoint(out) is not None


def _base_of(job: TrainingJob[Recipe]) -> Path:
    base = Path(job.recipe.base)
    return base if base.is_dir() or ":" in job.recipe.base else model_path(job.recipe.base)


def require_modules(*modules: str) -> None:
    """Raise MissingExtra if a library that training needs is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtra(f"training needs {module!r}; run `pip install 'localmem[cpu,train]'`")


def trainer_arguments(job: TrainingJob[TrainingRecipe], best: str) -> dict[str, object]:
    """The recipe as arguments of TrainingArguments; the weights of the epoch with the highest `best` are kept.

    transformers takes the lowest value of a measure whose name ends in "loss".
    """
    require_modules("torch", "accelerate")
    import torch

    recipe, on_gpu = job.recipe, torch.cuda.is_available()
    return {
        "output_dir": str(job.out / CHECKPOINTS),
        "num_train_epochs": recipe.epochs,
        "per_device_train_batch_size": recipe.batch_size,
        "per_device_eval_batch_size": 4 * recipe.batch_size,
        "gradient_accumulation_steps": recipe.accumulate,
        "learning_rate": recipe.learning_rate,
        "warmup_steps": recipe.warmup_steps,
        "weight_decay": recipe.weight_decay,
        "bf16": in_bfloat16(recipe),
        "use_cpu": not on_gpu,
        "seed": recipe.seed,
        "data_seed": recipe.seed,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "save_total_limit": 2,
        "logging_steps": 20,
        "load_best_model_at_end": True,
        "metric_for_best_model": best,
        # Without this, early stopping would count its patience from zero after a resume.
        "restore_callback_states_from_checkpoint": True,
        "report_to": [],
        "disable_tqdm": not sys.stderr.isatty(),
        "dataloader_pin_memory": on_gpu,
    }


def in_bfloat16(recipe: TrainingRecipe) -> bool:
    """Whether to compute in bfloat16: if the recipe says so, by itself where a GPU does."""
    import torch

    on_gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return recipe.precision == "bfloat16" or (recipe.precision == "auto" and on_gpu)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence the warnings of a library that is being imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _check_memory(model: "torch.nn.Module") -> None:
    """Raise BadInput if gradients and the two moments of AdamW (12 bytes a parameter) exceed the free memory."""
    import psutil
    import torch

    on_gpu = next(model.parameters()).is_cuda
    free = torch.cuda.mem_get_info()[0] if on_gpu else psutil.virtual_memory().available
    needed = 12 * sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    if needed > free:
        raise BadInput(
            f"training needs {needed / 1e9:.1f} GB besides the weights and {free / 1e9:.1f} GB are free; use a smaller "
            "base model or a machine with more memory"
        )


@contextmanager
def _enough_memory(trainer: "Trainer") -> Iterator[None]:
    """Turns the errors of an allocator into a BadInput of one line."""
    import torch

    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        rows, step = trainer.args.per_device_train_batch_size, trainer.state.global_step
        raise BadInput(
            f"out of memory at step {step} with batch_size {rows}; use --set batch_size={max(1, rows // 2)} with a "
            "higher accumulate, shorter rows, a smaller base model or --set four_bit=true, in another --out"
        ) from error


def _last_checkpoint(out: Path) -> Path | None:
    from transformers.trainer_utils import get_last_checkpoint

    folder = out / CHECKPOINTS
    checkpoint = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    return Path(checkpoint) if checkpoint else None
