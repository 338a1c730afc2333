"""Students side by side: the base model, adapters on it, trained parts, merged models; each opened, graded and closed.

Knows what lies in a run's folder, and the backbone by the settings that it is built from.
"""

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from finetune.grading import Ask, Grade, asking, grade
from finetune.small_models import asked, kind_of
from finetune.traces.trace import Trace
from localmem import factory
from localmem.errors import BadInput

if TYPE_CHECKING:
    from localmem.config import Settings

Kind = Literal["base", "adapter", "part", "merged"]


@dataclass(frozen=True, slots=True)
class Student:
    """By its name in tables; the base model has no folder."""

    name: str
    kind: Kind
    folder: Path = Path()


class Opened(NamedTuple):
    """How it is asked, and what to do when it is no longer needed."""

    ask: Ask
    close: Callable[[], None]


def student_in(folder: Path) -> Student:
    """What `localmem distill train` or `merge` left there. Raises BadInput."""
    if (folder / "adapter_config.json").is_file():
        return Student(folder.name, "adapter", folder)
    if not (folder / "config.json").is_file():
        raise BadInput(f"there is no student in {folder}; give the --out of `localmem distill train`")
    return Student(folder.name, "merged" if kind_of(folder) == "chat" else "part", folder)


def graded(
    student: Student,
    stage: str,
    traces: Sequence[Trace],
    settings: "Settings",
    *,
    note: Callable[[str], None],
    track: Callable[[int], object],
) -> Grade:
    """The student's answers to these traces."""
    found = _opened(student, stage, traces, settings, note)
    try:
        return grade(found.ask, student.name, stage, traces, track=track)
    finally:
        found.close()
        del found
        gc.collect()  # the weights go before the next ones come


def routed(settings: "Settings", adapters: Mapping[str, Path]) -> "Settings":
    """The settings with these adapters, by prompt name, in place of any others, those that come with localmem too."""
    alone = {"adapters": dict(adapters), "shipped_adapters": False}
    return settings.model_copy(update={"llm": settings.llm.model_copy(update=alone)})


def curve(folder: Path) -> list[dict[str, float]]:
    """A run's log: loss by epoch, in training and on the validation set; none where the folder tells none."""
    try:
        log = json.loads((folder / "run.json").read_text(encoding="utf-8"))["log"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [line for line in log if "epoch" in line]


def losses(log: Sequence[Mapping[str, float]]) -> list[dict[str, object]]:
    """A row for each epoch that was checked: the mean training loss since the last one, and the validation loss."""
    rows: list[dict[str, object]] = []
    since: list[float] = []
    for line in log:
        if "loss" in line:
            since.append(line["loss"])
        if "eval_loss" in line:
            told: dict[str, object] = {"training": sum(since) / len(since)} if since else {}
            row = {"epoch": line["epoch"], **told, "validation": line["eval_loss"]}
            if not rows or rows[-1]["epoch"] != row["epoch"]:  # the best epoch is checked once more at the end
                rows.append(row)
            since = []
    return rows


def _opened(
    student: Student, stage: str, traces: Sequence[Trace], settings: "Settings", note: Callable[[str], None]
) -> Opened:
    if student.kind == "part":
        return Opened(asked(student.folder, stage, settings.llm.device), lambda: None)
    if student.kind == "merged":
        return Opened(_merged(student, settings), lambda: None)
    names = {trace.metadata.prompt for trace in traces}
    adapters = dict.fromkeys(names, student.folder) if student.kind == "adapter" else {}
    backbone = factory.backbone(routed(settings, adapters), note)
    return Opened(asking(backbone.llm), backbone.close)


def _merged(student: Student, settings: "Settings") -> Ask:
    if factory.wants_vllm(settings):
        raise BadInput(
            f"{student.folder} is compared in process, and these settings ask for vLLM; set llm.backend to "
            "transformers, or register it with `localmem models import` and evaluate it as --student"
        )
    from localmem.llm.transformers import TransformersLLM

    wanted = settings.llm
    return asking(
        TransformersLLM(
            student.folder,
            name=student.name,
            context_length=wanted.context_length,
            device=wanted.device,
            dtype=wanted.dtype,
        )
    )
