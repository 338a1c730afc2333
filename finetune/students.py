"""Students by what they are: the base model, adapters on it, small task models, merged models; opened and graded.

Depends on what a run's folder holds; `localmem.factory` builds every model.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from finetune.grading import Answer, Grade, ask_llm, grade
from finetune.small_models import answer_with, model_kind
from finetune.traces.trace import Trace
from localmem import factory
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.factory.parts import folder_backbone

Kind = Literal["base", "adapter", "part", "merged"]


@dataclass(frozen=True, slots=True)
class Student:
    """A student with its name in tables; the base model has no folder."""

    name: str
    kind: Kind
    folder: Path = Path()


def find_student(folder: Path) -> Student:
    """The student that `localmem distill train` or `merge` wrote into the folder. Raises BadInput."""
    if (folder / "adapter_config.json").is_file():
        return Student(folder.name, "adapter", folder)
    if not (folder / "config.json").is_file():
        raise BadInput(f"there is no student in {folder}; use the --out of `localmem distill train`")
    return Student(folder.name, "merged" if model_kind(str(folder)) == "chat" else "part", folder)


def grade_student(
    student: Student,
    stage: str,
    traces: Sequence[Trace],
    settings: Settings,
    *,
    notify: Callable[[str], None],
    track: Callable[[int], object],
) -> Grade:
    """Let the student answer these traces and measure the answers."""
    answer, close = _open(student, stage, traces, settings, notify)
    try:
        return grade(answer, student.name, stage, traces, track=track)
    finally:
        close()
        del answer
        gc.collect()  # the weights are freed before the next student loads


def with_adapters(settings: Settings, adapters: Mapping[str, Path]) -> Settings:
    """The settings with these adapters, by prompt name, instead of any others, shipped ones included."""
    llm = settings.llm.model_copy(update={"adapters": dict(adapters), "shipped_adapters": False})
    return settings.model_copy(update={"llm": llm})


def _open(
    student: Student, stage: str, traces: Sequence[Trace], settings: Settings, notify: Callable[[str], None]
) -> tuple[Answer, Callable[[], None]]:
    """A function that answers traces, and one that releases the model."""
    if student.kind == "part":
        return answer_with(student.folder, stage, settings.llm.device), lambda: None
    if student.kind == "merged":
        if factory.wants_vllm(settings):
            raise BadInput(
                f"merged models are compared in process, and the settings ask for vLLM; set llm.backend to "
                f"transformers, or register {student.folder} with `localmem models import` and use it as --student"
            )
        backbone = folder_backbone(student.folder, settings, name=student.name)
    else:
        names = {trace.metadata.prompt for trace in traces} if student.kind == "adapter" else set[str]()
        backbone = factory.backbone(with_adapters(settings, dict.fromkeys(names, student.folder)), notify)
    return ask_llm(backbone.llm), backbone.close
