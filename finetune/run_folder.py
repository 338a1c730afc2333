"""A finished training run on disk: weights, settings, data hashes, measures, curves, and a card.

Does not depend on any task. The folder is a model folder: transformers loads it, and `localmem models import` accepts
it. If `accelerate launch` starts several processes, only the first one writes.
"""

import os
import platform
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.trainers import training
from finetune.trainers.training import CHECKPOINTS, REPORT, Recipe, TrainingJob, TrainingResult
from localmem.files import read_json, write_atomic, write_json
from localmem.llm.device import quiet_loading
from localmem.reporting.provenance import machine, versions
from localmem.reporting.sections import save_plot
from localmem.weights.manifest import Role
from localmem.weights.offline import ImportOptions, import_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CARD = "README.md"
MEASURES_TITLE = "## Before and after"

# Recipe fields that the report holds elsewhere.
_ELSEWHERE = {"base", "licence", "train", "valid", "data", "nli", "nli_valid"}

_Log = Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Card:
    """What the card of a run says besides its recipe and measures.

    `base` is the name of the base model and `data` are the files that were read. `settings` replace or complete the
    recipe's fields; `more` are further lines of Markdown; `measured_on` ends the heading of the measures.
    """

    title: str
    what: str
    base: str
    data: Sequence[Path]
    settings: Mapping[str, object] = field(default_factory=dict)
    more: Sequence[str] = ()
    measured_on: str = "the validation set"


def is_first_process() -> bool:
    """Whether this is the process that writes and prints."""
    return int(os.environ.get("RANK", "0")) == 0


def save_run(
    job: TrainingJob[Recipe],
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None",
    card: Card,
    result: TrainingResult,
    results: Mapping[str, object],
    role: Role = "classifier",
) -> None:
    """Write weights, tokenizer, report, card and curves, drop the checkpoints, and register the model if it is named.

    `results` are further entries of the report. An adapter has no tokenizer of its own (None).
    """
    if not is_first_process():
        return
    with quiet_loading():
        model.save_pretrained(str(job.out))
    if tokenizer is not None:
        tokenizer.save_pretrained(str(job.out))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    write_report(job, card, result, {**results, "parameters": parameters})
    plot_curves(result.log, job.out / "curves.png")
    shutil.rmtree(job.out / CHECKPOINTS, ignore_errors=True)
    register(job, role)


def write_report(job: TrainingJob[Recipe], card: Card, result: TrainingResult, results: Mapping[str, object]) -> None:
    """Write run.json and the card."""
    recipe = job.recipe.model_dump(mode="json", exclude=_ELSEWHERE)
    plan = {name: recipe.pop(name) for name in training.PLAN_FIELDS if name in recipe}
    report = {
        "title": card.title,
        "command": job.command,
        "base": card.base,
        "settings": {**recipe, **card.settings},
        "plan": plan,
        "data": dict(hash_files(card.data)),
        "measures": result.measures,
        **results,
        "seconds": round(result.seconds, 1),
        "steps": result.steps,
        "machine": machine(job.out),
        "versions": versions(),
        "log": result.log,
    }
    write_json(job.out / REPORT, report)
    write_atomic(job.out / CARD, _render_card(job, card, result))


def register(job: TrainingJob[Recipe], role: Role) -> None:
    """Enter the run's folder into the local manifest under the job's name, replacing an earlier run of that name."""
    if job.name and is_first_process():
        import_model(job.out, ImportOptions(name=job.name, role=role, licence=job.recipe.licence, replace=True), None)


def write_card_section(folder: Path, lines: str) -> None:
    """Put a section of measures into the card of a run's folder, replacing an earlier one. Raises BadInput."""
    path = folder / CARD
    text = path.read_text(encoding="utf-8") if path.exists() else f"# {folder.name}\n"
    section = rf"^{re.escape(MEASURES_TITLE)}\n.*?(?=^## |\Z)"
    remaining = re.sub(section, "", text, flags=re.DOTALL | re.MULTILINE).rstrip()
    write_atomic(path, f"{remaining}\n\n{MEASURES_TITLE}\n\n{lines.strip()}\n", "leave out --set card=true")


def hash_files(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Name and sha256 of each file; files of the same name are preceded by their folder's name."""
    names = Counter(path.name for path in files)
    labels = [path.name if names[path.name] == 1 else f"{path.parent.name}/{path.name}" for path in files]
    return [(label, sha256(path.read_bytes()).hexdigest()) for label, path in zip(labels, files, strict=True)]


def read_log(folder: Path) -> list[dict[str, float]]:
    """The training log of a run, or an empty list if the folder holds none."""
    path = folder / REPORT
    log = read_json(path, dict[str, object]).get("log") if path.is_file() else None
    return [line for line in log if "epoch" in line] if isinstance(log, list) else []


def losses_by_epoch(log: _Log) -> list[dict[str, object]]:
    """A row for each evaluated epoch: the mean training loss since the previous one, and the validation loss."""
    rows: list[dict[str, object]] = []
    losses: list[float] = []
    for line in log:
        if "loss" in line:
            losses.append(line["loss"])
        if "eval_loss" in line:
            training: dict[str, object] = {"training": sum(losses) / len(losses)} if losses else {}
            row = {"epoch": line["epoch"], **training, "validation": line["eval_loss"]}
            if not rows or rows[-1]["epoch"] != row["epoch"]:  # the best epoch is evaluated once more at the end
                rows.append(row)
            losses = []
    return rows


def plot_curves(log: _Log, path: Path) -> None:
    """Plot the training loss and every measure on the validation set against the epoch."""
    names = sorted({name for line in log for name in line if name.startswith("eval_")})
    labels = {name: name.removeprefix("eval_") for name in names if not name.endswith(("_second", "_runtime"))}

    def draw(axes: "Axes") -> None:
        for name, label in {"loss": "training loss", **labels}.items():
            if points := [(line["epoch"], line[name]) for line in log if name in line and "epoch" in line]:
                axes.plot(*zip(*points, strict=True), marker=".", label=label)
        axes.set_xlabel("epoch")

    save_plot(path, draw, width=7, height=4)


def _render_card(job: TrainingJob[Recipe], card: Card, result: TrainingResult) -> str:
    measures = "\n".join(f"| {name} | {value:.4f} |" for name, value in result.measures.items())
    data = "\n".join(f"- `{name}`, sha256 `{digest[:16]}`" for name, digest in hash_files(card.data))
    more = "".join(f"{line}\n" for line in ("", *card.more)) if card.more else ""
    curves = "\n![curves](curves.png)\n" if result.log else ""
    return f"""# {card.title}

{card.what}

Made by `{job.command}` from {card.base} in {result.seconds:.0f} s ({result.steps} steps, seed {job.recipe.seed},
{platform.machine()}). Licence: {job.recipe.licence}.
{more}
## Data

{data}

## On {card.measured_on}

| measure | value |
|---|---|
{measures}
{curves}
`run.json` holds every setting, the whole log, and the versions.
"""
