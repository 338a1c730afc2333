"""Comparison of students with their teacher and their base model on held-out traces, stage by stage.

Prints nothing: notes and progress go to functions that the caller passes.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from localmem.errors import BadInput
from localmem.experiments.judging import judge_on_backbone, open_backbone
from localmem.experiments.runs import Notify, Progress, counting, ignore_progress
from localmem.reporting.sections import Report, Table

if TYPE_CHECKING:
    from finetune.students import Student
    from localmem.config import Settings
    from localmem.evaluation.judgements import JudgeSetup

Row = dict[str, Any]

NOT_CALIBRATED = "not calibrated on this model; run `localmem eval calibrate` first"
_DELTAS = ("score", "valid", "tokens_per_second", "p50_ms", "p95_ms", "memory_mib")


class StudentComparisonRecipe(BaseModel):
    """The options of a comparison of students."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: int | None = Field(default=None, ge=1)
    """Use only the first N traces of a stage."""
    merged: Path | None = None
    """Also compare the only LoRA merged with its base, in this folder; merged there if it is missing."""
    judge_model: str | None = None
    """Model that also judges the answers. Only calibrated judges are used."""
    criterion: str = "score"
    """Judge question: score, rating, entailment or correct."""
    card: bool = False
    """Write the table into the card of each student, too."""


@dataclass(frozen=True, slots=True)
class _StageComparison:
    """One stage: rows of the teacher, the base model and each student, and what a reader must know."""

    stage: str
    rows: tuple[Row, ...]
    table: Table
    notes: tuple[str, ...]


def compare_students(
    collection: Path,
    stages: Sequence[str],
    settings: "Settings",
    folders: Sequence[Path] = (),
    recipe: StudentComparisonRecipe = StudentComparisonRecipe(),  # noqa: B008  # immutable
    *,
    out: Path | None = None,
    command: str = "",
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> Report:
    """Grade the teacher, the base model (`settings.model`) and the students in `folders` on a collection's test traces.

    The score is the similarity to the teacher's answers: agreement for choices, SeCom's Score for segments, ROUGE-L for
    texts, whose facts are counted, too. If traces carry gold answers, all answers are compared with these as well.
    `out` receives the report and the loss curves. Raises BadInput.
    """
    from finetune.run_folder import losses_by_epoch, read_log
    from finetune.students import find_student

    students = [find_student(folder) for folder in folders]
    if recipe.merged:
        students.append(_merged_student(students, settings.model, recipe.merged, notify))
    with ExitStack() as stack:
        judge = _calibrated_judge(settings, recipe, stack, notify) if recipe.judge_model else None
        comparisons = [
            _compare_stage(collection, stage, settings, students, recipe.limit, judge, notify, progress)
            for stage in stages
        ]
    rows = [row for comparison in comparisons for row in comparison.rows]
    tables = [comparison.table for comparison in comparisons]
    deltas = _merged_deltas(students, comparisons)
    if deltas:
        tables.append(Table.of("merged minus adapter", deltas))
    curves = {student.name: losses_by_epoch(read_log(student.folder)) for student in students}
    tables += [Table.of(f"{name}: loss by epoch", losses) for name, losses in curves.items() if losses]
    notes = tuple(note for comparison in comparisons for note in comparison.notes)
    report = Report(_figures(collection, stages, command, rows, deltas, curves, notes, tables), tuple(tables), notes)
    if out:
        report.save(out, f"Students for {', '.join(stages)}", _plot_losses(students, out))
    if recipe.card:
        _write_cards(students, rows, command)
    return report


def _compare_stage(
    collection: Path,
    stage: str,
    settings: "Settings",
    students: "Sequence[Student]",
    limit: int | None,
    judge: "JudgeSetup | None",
    notify: Notify,
    progress: Progress,
) -> _StageComparison:
    from finetune.grading import grade_teacher
    from finetune.students import Student, grade_student
    from finetune.traces.trace import read_traces

    traces = read_traces(collection / "test" / f"{stage}.jsonl")[:limit]
    if not traces:
        raise BadInput(f"{collection / 'test'} holds no trace of {stage!r}; collect from more conversations")
    collected = collection / "traces" / f"{stage}.jsonl"
    models = [Student(settings.model, "base"), *students]
    track = counting(progress, f"grading {stage}", len(traces) * len(models))
    grades = [grade_teacher(stage, traces, read_traces(collected) if collected.exists() else [])]
    grades += [grade_student(model, stage, traces, settings, notify=notify, track=track) for model in models]
    kinds = ("teacher", *(model.kind for model in models))
    rows = tuple(
        {"stage": stage, "kind": kind, **grade.row(), **(_judge_score(judge, grade.traces) if judge else {})}
        for kind, grade in zip(kinds, grades, strict=True)
    )
    columns = [{name: value for name, value in row.items() if name not in ("stage", "what")} for row in rows]
    caption = f"{stage}: {grades[1].what} with the teacher on {len(traces)} held-out traces"
    notes = _base_ratios(stage, rows)
    if collected.exists():
        notes.append(f"{stage}: the teacher's validity is that of all its answers, before filtering")
    return _StageComparison(stage, rows, Table.of(caption, columns), tuple(notes))


def _calibrated_judge(
    settings: "Settings", recipe: StudentComparisonRecipe, stack: ExitStack, notify: Notify
) -> "JudgeSetup | None":
    """The recipe's judge, or None if it was not calibrated or not found believable."""
    judge = open_judge(settings.model_copy(update={"model": recipe.judge_model}), recipe.criterion, stack, notify)
    if judge.calibration and judge.calibration.believable:
        return judge
    notify(f"the judge {recipe.criterion} on {recipe.judge_model} is not used: {calibration_line(judge)}")
    return None


def open_judge(settings: "Settings", criterion: str, stack: ExitStack, notify: Notify) -> "JudgeSetup":
    """A judge of single answers on the settings' backbone, which closes with the stack. Raises BadInput."""
    from finetune.traces.judge_scores import find_answer_judge

    judge = find_answer_judge(criterion)
    setup = judge_on_backbone(judge, settings, open_backbone(settings, stack, notify))
    notify(f"judge {criterion} on {settings.model}: {calibration_line(setup)}")
    return setup


def calibration_line(judge: "JudgeSetup") -> str:
    """How far the judge can be trusted."""
    return judge.calibration.line if judge.calibration else NOT_CALIBRATED


def _judge_score(judge: "JudgeSetup", traces: Sequence[Any]) -> Row:
    """The mean of the judge's scores, over the answers that it scored."""
    from finetune.traces.judge_scores import score_answers

    scores = [score for score in score_answers(judge, traces) if score is not None]
    return {f"judge: {judge.judge.name}": sum(scores) / len(scores)} if scores else {}


def _merged_student(students: "Sequence[Student]", base: str, out: Path, notify: Notify) -> "Student":
    """The merged model of the only adapter, made in `out` if there is none."""
    from finetune.students import Student
    from finetune.trainers.lora import merge
    from finetune.trainers.training import base_folder

    adapters = [student for student in students if student.kind == "adapter"]
    if len(adapters) != 1:
        raise BadInput(f"`merged` needs exactly one LoRA adapter, and --adapter names {len(adapters)}")
    if not (out / "config.json").is_file():
        merge(adapters[0].folder, base_folder(base), out)
        notify(f"the merged model is in {out}")
    names = {student.name for student in students}
    return Student(f"{out.name} (merged)" if out.name in names else out.name, "merged", out)


def _base_ratios(stage: str, rows: Sequence[Row]) -> list[str]:
    """Each student's score relative to the base model's."""
    scores = {str(row["model"]): float(row["score"]) for row in rows if "score" in row}
    (base, reference), *others = scores.items()
    return [
        f"{stage}: {name} scores {score / reference:.2f} times as high as {base}"
        if reference > 0
        else f"{stage}: {name} scores {score:.3f}, {base} scores 0"
        for name, score in others
    ]


def _merged_deltas(students: "Sequence[Student]", comparisons: Sequence[_StageComparison]) -> list[Row]:
    """Figures of a merged model minus those of the adapter it was made of, if there is one of each."""
    kinds = [student.kind for student in students]
    if kinds.count("merged") != 1 or kinds.count("adapter") != 1:
        return []
    deltas = []
    for comparison in comparisons:
        by_kind = {row["kind"]: row for row in comparison.rows}
        adapter, merged = by_kind["adapter"], by_kind["merged"]
        deltas.append({"stage": comparison.stage, **{name: merged[name] - adapter[name] for name in _DELTAS}})
    return deltas


def _figures(
    collection: Path,
    stages: Sequence[str],
    command: str,
    rows: Sequence[Row],
    deltas: Sequence[Row],
    curves: Mapping[str, Sequence[Mapping[str, object]]],
    notes: Sequence[str],
    tables: Sequence[Table],
) -> dict[str, Any]:
    """Every figure, and what it was measured on."""
    from localmem.reporting.provenance import machine, versions

    return {
        "command": command,
        "stage": ", ".join(stages),
        "students": list(rows),
        "deltas": list(deltas),
        "curves": {name: losses for name, losses in curves.items() if losses},
        "notes": list(notes),
        "tables": [{"caption": table.caption, "head": table.head, "rows": table.rows} for table in tables],
        "machine": machine(collection),
        "versions": versions(),
    }


def _plot_losses(students: "Sequence[Student]", out: Path) -> tuple[str, ...]:
    from finetune.run_folder import plot_curves, read_log

    plots = []
    for student in students:
        if log := read_log(student.folder):
            out.mkdir(parents=True, exist_ok=True)
            plots.append(f"loss-{student.name}.png")
            plot_curves(log, out / plots[-1])
    return tuple(plots)


def _write_cards(students: "Sequence[Student]", rows: Sequence[Row], command: str) -> None:
    """Write the rows of the teacher, the base model and the student into each student's card."""
    from finetune.run_folder import write_card_section
    from localmem.reporting.pages import markdown_table

    for student in students:
        own = [row for row in rows if row["kind"] in ("teacher", "base") or row["model"] == student.name]
        columns = [{name: value for name, value in row.items() if name != "grounded"} for row in own]
        text = markdown_table(Table.of("", columns))
        write_card_section(student.folder, f"Measured by `{command}`:\n\n{text}")
