"""A finished training run on disk: weights, settings, data hashes, measures, curves, and a card that says it in words.

Knows no task. The folder is a model's folder: transformers loads it, and `localmem models import` takes it in. Of the
processes that `accelerate launch` starts, the first alone writes.
"""

import json
import os
import platform
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.trainers.training import CHECKPOINTS, Plan, Trained, quietly
from localmem.reporting.plots import save_plot
from localmem.reporting.provenance import machine, versions
from localmem.weights import Entry
from localmem.weights.import_model import Wishes, take_in
from localmem.weights.manifest import Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class About:
    """What a run is about. `command` is the line that makes it again; `data` are the files that were read.

    `more` are lines of the card's own.
    """

    title: str
    what: str
    command: str
    base: str
    data: Sequence[Path]
    licence: str
    settings: Mapping[str, object]
    more: Sequence[str] = ()


def first_process() -> bool:
    """Whether this process is the one that writes and tells."""
    return int(os.environ.get("RANK", "0")) == 0


def save(
    out: Path,
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None",
    about: About,
    plan: Plan,
    trained: Trained,
    more: Mapping[str, object],
) -> None:
    """Writes everything into `out`, then drops the checkpoints. `more` are further findings, tables of measures say.

    Without a tokenizer none is written: an adapter is served with that of its base.
    """
    if not first_process():
        return
    with quietly():
        model.save_pretrained(str(out))
    if tokenizer is not None:
        tokenizer.save_pretrained(str(out))
    report = {
        "title": about.title,
        "command": about.command,
        "base": about.base,
        "settings": dict(about.settings),
        "plan": asdict(plan),
        "data": dict(hashes(about.data)),
        "measures": trained.measures,
        **more,
        "seconds": round(trained.seconds, 1),
        "steps": trained.steps,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "machine": machine(out),
        "versions": versions(),
        "log": trained.log,
    }
    (out / "run.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (out / "README.md").write_text(_card(about, plan, trained), encoding="utf-8")
    curves(trained.log, out / "curves.png")
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)


def register(
    out: Path, name: str, licence: str, directory: Path | None = None, *, role: Role = "classifier"
) -> Entry | None:
    """Enters the run's folder into the local manifest as `name`, in place of an earlier run of that name."""
    if not first_process():
        return None
    return take_in(out, Wishes(name=name, role=role, licence=licence, replace=True), directory)


def digest(path: Path) -> str:
    """The file's sha256."""
    return sha256(path.read_bytes()).hexdigest()


def curves(log: Sequence[Mapping[str, float]], path: Path) -> None:
    """Loss on the training set, and every measure on the validation set, against the epoch."""
    names = sorted({name for line in log for name in line if name.startswith("eval_")})

    def onto(axes: "Axes") -> None:
        _curve(axes, log, "loss", "training loss")
        for name in names:
            if not name.endswith(("_second", "_runtime")):
                _curve(axes, log, name, name.removeprefix("eval_"))
        axes.set_xlabel("epoch")

    save_plot(path, onto, width=7, height=4)


def _curve(axes: "Axes", log: Sequence[Mapping[str, float]], name: str, label: str) -> None:
    points = [(line["epoch"], line[name]) for line in log if name in line and "epoch" in line]
    if points:
        axes.plot(*zip(*points, strict=True), marker=".", label=label)


def hashes(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Each file's name and sha256; with the folder's name where several files are called alike."""
    names = Counter(path.name for path in files)
    return [(path.name if names[path.name] == 1 else f"{path.parent.name}/{path.name}", digest(path)) for path in files]


def _card(about: About, plan: Plan, trained: Trained) -> str:
    """The model's card, in Markdown."""
    measures = "\n".join(f"| {name} | {value:.4f} |" for name, value in trained.measures.items())
    data = "\n".join(f"- `{name}`, sha256 `{found[:16]}`" for name, found in hashes(about.data))
    more = "".join(f"{line}\n" for line in ("", *about.more)) if about.more else ""
    return f"""# {about.title}

{about.what}

Made by `{about.command}` from {about.base} in {trained.seconds:.0f} s ({trained.steps} steps, seed {plan.seed},
{platform.machine()}). Licence: {about.licence}.
{more}
## Data

{data}

## On the validation set

| measure | value |
|---|---|
{measures}

![curves](curves.png)

`run.json` holds every setting, the whole log, and the versions.
"""
