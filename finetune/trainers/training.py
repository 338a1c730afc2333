"""One way to train a small model: transformers' Trainer under a plan that a card can repeat.

Knows no task: it receives a model, encoded examples and a measure. `accelerate launch` makes it several GPUs.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from localmem.errors import BadInput, MissingExtra
from localmem.weights.loading import no_progress_bar

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding, PreTrainedModel, Trainer

Example = Mapping[str, object]
Measure = Callable[["NDArray[np.float32]", "NDArray[np.int64]"], dict[str, float]]  # logits, labels: named measures

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is trained. The defaults are those of Keep Me Updated (appendix B): batch 8, 20 epochs, 5e-5, linear.

    Training ends early when the measure has not risen for `patience` epochs. `precision` auto is bfloat16 on a GPU that
    has it and float32 elsewhere.
    """

    epochs: float = 20.0
    batch: int = 8
    accumulate: int = 1
    learning_rate: float = 5e-5
    warmup_steps: int = 0
    weight_decay: float = 0.01
    patience: int = 3
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of it: the measures of the best epoch on the validation set, and every line of the log."""

    measures: dict[str, float]
    log: list[dict[str, float]]
    seconds: float
    steps: int


def fit(
    model: "PreTrainedModel",
    plan: Plan,
    train: Sequence[Example],
    valid: Sequence[Example],
    collate: "DataCollatorWithPadding | DataCollatorForTokenClassification",
    measure: Measure,
    best: str,
    out: Path,
    *,
    resume: bool = False,
) -> Trained:
    """Trains `model` in place, to the weights of the epoch with the highest `best`; checkpoints go under `out`.

    With `resume` it goes on from the last checkpoint, to the weights that an uninterrupted run on a CPU gives. Raises
    BadInput when there are checkpoints and no `resume`.
    """
    from transformers import EarlyStoppingCallback, Trainer, TrainingArguments

    check_checkpoints(out, resume=resume)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**arguments(plan, best, out)),
        train_dataset=list(train),
        eval_dataset=list(valid),
        data_collator=collate,
        compute_metrics=lambda predicted: measure(predicted.predictions, predicted.label_ids),
        callbacks=[EarlyStoppingCallback(plan.patience)],
    )
    return run(trainer, out)


def run(trainer: "Trainer", out: Path) -> Trained:
    """Trains under `arguments`, from the last checkpoint of `out` if there is one, and measures what came of it.

    Raises BadInput when what training holds beside the weights would not fit into memory.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)  # it writes to stdout, which is for results
    _check_room(trainer.model)
    last = _last_checkpoint(out)
    began = perf_counter()
    with quietly():
        trainer.train(resume_from_checkpoint=str(last) if last else None)
        seconds = perf_counter() - began
        found = trainer.evaluate()
    measures = {
        name.removeprefix("eval_"): float(value)
        for name, value in found.items()
        if name.startswith("eval_") and not name.endswith(("_second", "_runtime"))
    }
    return Trained(measures, trainer.state.log_history, seconds, trainer.state.global_step)


def check_checkpoints(out: Path, *, resume: bool) -> None:
    """Raises BadInput when `out` holds a run that is done, or checkpoints and no `resume`."""
    if (out / "run.json").exists():
        raise BadInput(f"{out} holds a run that is done; give another --out")
    if _last_checkpoint(out) and not resume:
        raise BadInput(f"{out} holds checkpoints of an unfinished run; go on with --resume, or give another --out")


def _check_room(model: "torch.nn.Module") -> None:
    """Raises BadInput where gradients and the two moments of AdamW, 12 bytes a number, are more than is free."""
    import psutil  # type: ignore[import-untyped]  # publishes no types
    import torch

    on_gpu = next(model.parameters()).is_cuda
    free = torch.cuda.mem_get_info()[0] if on_gpu else psutil.virtual_memory().available
    needed = 12 * sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    if needed > free:
        raise BadInput(
            f"training needs {needed / 1e9:.1f} GB beside the weights and {free / 1e9:.1f} GB are free; take a smaller "
            "base model or a machine with more memory"
        )


def need(*modules: str) -> None:
    """Raises MissingExtra for a library of training that is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtra(f"training needs {module!r}; run `pip install 'localmem[cpu,train]'`")


def arguments(plan: Plan, best: str, out: Path) -> dict[str, object]:
    """The plan as TrainingArguments take it. The weights of the epoch with the highest `best` are kept."""
    need("torch", "accelerate")
    import torch

    on_gpu = torch.cuda.is_available()
    wide = plan.precision == "bfloat16" or (plan.precision == "auto" and on_gpu and torch.cuda.is_bf16_supported())
    return {
        "output_dir": str(out / CHECKPOINTS),
        "num_train_epochs": plan.epochs,
        "per_device_train_batch_size": plan.batch,
        "per_device_eval_batch_size": 4 * plan.batch,
        "gradient_accumulation_steps": plan.accumulate,
        "learning_rate": plan.learning_rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": plan.warmup_steps,
        "weight_decay": plan.weight_decay,
        "bf16": wide,
        "use_cpu": not on_gpu,
        "seed": plan.seed,
        "data_seed": plan.seed,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "save_total_limit": 2,
        "logging_strategy": "steps",
        "logging_steps": 20,
        "load_best_model_at_end": True,
        "metric_for_best_model": best,
        "greater_is_better": True,
        "restore_callback_states_from_checkpoint": True,
        "report_to": [],
        "disable_tqdm": not sys.stderr.isatty(),
        "dataloader_pin_memory": on_gpu,
    }


@contextmanager
def quietly() -> Iterator[None]:
    """Read and write weights without the library's bars, and without its notice that a head is new."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with no_progress_bar():
            yield
    finally:
        logging.set_verbosity(level)


def _last_checkpoint(out: Path) -> Path | None:
    from transformers.trainer_utils import get_last_checkpoint

    folder = out / CHECKPOINTS
    found = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    return Path(found) if found else None
