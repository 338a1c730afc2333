"""The end-to-end effect of students: the same evaluation run with each of them, and without any.

Prints nothing: notes and progress go to functions that the caller passes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.errors import BadInput
from localmem.experiments.runs import Notify, Progress, Split, evaluate, ignore_progress, system_settings
from localmem.reporting.sections import Report

if TYPE_CHECKING:
    from finetune.students import Student
    from localmem.config import Settings
    from localmem.evaluation.answers import Line

# The system and its option that a small model serves, by the stage that it learned.
_OPTIONS: Mapping[str, tuple[str, str]] = {"operation": ("carecall", "classifier"), "segment": ("secom", "segmenter")}

_Served = tuple[Mapping[str, Path], Mapping[str, object]]  # adapters by prompt name, options of the system
_NOTHING: _Served = ({}, {})


def compare_end_to_end(
    settings: "Settings",
    folders: Sequence[Path],
    *,
    system: str,
    datasets: Mapping[str, Path],
    out: Path,
    limit: int | None = None,
    split: Split | None = None,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> Report:
    """Let one system answer questions on the base model and with each student; merged models are left out.

    Answers are stored in `out`, in a folder for each student, and not computed again. The base model's rows have the
    system's name. Raises BadInput for a student that the system has no place for.
    """
    from finetune.students import find_student
    from localmem.evaluation.answers import answers_of
    from localmem.evaluation.scores import score_answers
    from localmem.evaluation.summary import section

    students = [student for folder in folders if (student := find_student(folder)).kind != "merged"]
    served = {student.name: _serve(student, system) for student in students}  # reports misfits before the first run
    lines: list[Line] = []
    for name, (adapters, options) in {"base": _NOTHING, **served}.items():
        label = system if name == "base" else f"{system} + {name}"
        notify(f"{system} with {name}: the answers are in {out / name}")
        own = _student_settings(settings, system, adapters, options)
        answered = evaluate(
            own, datasets=datasets, out=out / name, systems=[own.system], baselines=(), limit=limit, split=split,
            resume=True, retry_failed=True, notify=notify, progress=progress,
        )  # fmt: skip
        lines += [replace(line, work=line.work._replace(system=label)) for line in answered]
    scores = score_answers(answers_of(lines), [])
    document = section("End to end", (), lines, scores, out, against=(system,))
    figures = {"system": system, "tables": [asdict(table) for table in document.tables]}
    report = Report(figures, document.tables, document.notes)
    report.save(out, document.title, document.plots)
    return report


def _serve(student: "Student", system: str) -> _Served:
    """Adapters by prompt name and options of the system with which the student is served."""
    from finetune.small_models import trained_stage
    from localmem.llm.adapter_notes import read_notes

    if student.kind == "adapter":
        notes = read_notes(student.folder)
        if not (notes and notes.prompts):
            raise BadInput(f"{student.folder} does not say which prompts it serves; train it again")
        return dict.fromkeys(notes.prompts, student.folder), {}
    owner, option = _OPTIONS[trained_stage(student.folder)]
    if system.partition("/")[0] != owner:
        raise BadInput(f"{student.folder} serves the system {owner}, not {system}")
    return {}, {option: str(student.folder.resolve())}


def _student_settings(
    settings: "Settings", system: str, adapters: Mapping[str, Path], options: Mapping[str, object]
) -> "Settings":
    from finetune.students import with_adapters

    own = system_settings(with_adapters(settings, adapters), system)
    return own.model_copy(update={"options": {**own.options, **options}})
