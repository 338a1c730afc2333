"""Comparison of students with their teacher and their base model: on held-out traces, and end to end in a system.

Prints nothing: notes and progress go to functions that the caller passes.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from finetune.grading import grade_teacher
from finetune.run_folder import losses_by_epoch, plot_curves, read_log, write_card_section
from finetune.students import Student, find_student, grade_student, trained_stage, with_adapters
from finetune.traces.answer_scores import find_answer_judge, score_answers
from finetune.traces.trace import read_stage, read_traces
from finetune.trainers.lora import merge
from finetune.trainers.training import base_folder
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.answers import JudgeSetup, Line, answers_of
from localmem.evaluation.summary import score_answers as score_probes
from localmem.evaluation.summary import section
from localmem.experiments import runs
from localmem.experiments.judging import judge_on_backbone
from localmem.experiments.runs import ExperimentRecipe, Notify, Progress, ignore_progress
from localmem.llm.adapters import read_notes
from localmem.reporting.intervals import Estimate
from localmem.reporting.provenance import machine, versions
from localmem.reporting.sections import Report, Section, Table, markdown_table

Row = dict[str, Any]

NOT_CALIBRATED = "not calibrated on this model; run `localmem eval calibrate` first"
# The system and its option that a small model serves, by the stage that it learned.
_OPTIONS: Mapping[str, tuple[str, str]] = {"operation": ("carecall", "classifier"), "segment": ("secom", "segmenter")}
# The heads of the tables; report.json keeps the short names.
_HEADS: Mapping[str, str] = {
    "by gold": "score by human answers",
    "valid": "valid format",
    "grounded": "words from the prompt",
}
_UNITS: Mapping[str, tuple[str, int]] = {
    "tokens_per_second": ("tokens/s", 1),
    "p50_ms": ("p50 latency, ms", 0),
    "p95_ms": ("p95 latency, ms", 0),
    "memory_mib": ("peak memory, MiB", 0),
    "gpu_mib": ("peak GPU memory, MiB", 0),
}
_DELTAS = ("score", "valid", "tokens_per_second", "p50_ms", "p95_ms", "memory_mib")


class StudentComparisonRecipe(ExperimentRecipe):
    """The options of a comparison of students."""

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


def compare_students(
    collection: Path,
    stages: Sequence[str],
    settings: Settings,
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
    students = [find_student(folder) for folder in folders]
    if recipe.merged:
        students.append(_merged_student(students, settings.model, recipe.merged, notify))
    with ExitStack() as stack:
        judge = _calibrated_judge(settings, recipe, stack, notify) if recipe.judge_model else None
        comparisons = [
            _compare_stage(collection, stage, settings, students, recipe.limit, judge, notify, progress)
            for stage in stages
        ]
    rows = [row for stage_rows, _ in comparisons for row in stage_rows]
    tables = [part.tables[0] for _, part in comparisons]
    notes = tuple(note for _, part in comparisons for note in part.notes)
    if deltas := _merged_deltas(students, [stage_rows for stage_rows, _ in comparisons]):
        tables.append(Table.of("merged model minus adapter", [_cells(row) for row in deltas]))
    curves = {student.name: losses_by_epoch(read_log(student.folder)) for student in students}
    tables += [
        Table.of(f"{name}: loss by epoch", [_loss_cells(row) for row in losses])
        for name, losses in curves.items()
        if losses
    ]
    figures = {
        "command": command,
        "stage": ", ".join(stages),
        "students": rows,
        "deltas": deltas,
        "curves": {name: losses for name, losses in curves.items() if losses},
        "notes": notes,
        "tables": [asdict(table) for table in tables],
        "machine": machine(collection),
        "versions": versions(),
    }
    report = Report(figures, tuple(tables), notes)
    if out:
        report.save(out, f"Students for {', '.join(stages)}", _plot_losses(students, out))
    if recipe.card:
        _write_cards(students, rows, command)
    return report


def _compare_stage(
    collection: Path,
    stage: str,
    settings: Settings,
    students: Sequence[Student],
    limit: int | None,
    judge: JudgeSetup | None,
    notify: Notify,
    progress: Progress,
) -> tuple[list[Row], Section]:
    """Rows of the teacher, the base model and each student, and the section that shows them."""
    traces = read_stage(collection, "test", stage)[:limit]
    if not traces:
        raise BadInput(f"{collection / 'test'} holds no trace of {stage!r}; collect from more conversations")
    collected = collection / "traces" / f"{stage}.jsonl"
    models = [Student(settings.model, "base"), *students]
    track = runs.counting(progress, f"grading {stage}", len(traces) * len(models))
    grades = [grade_teacher(stage, traces, read_traces(collected) if collected.exists() else [])]
    grades += [grade_student(model, stage, traces, settings, notify=notify, track=track) for model in models]
    kinds = ("teacher", *(model.kind for model in models))
    rows = [
        {"stage": stage, "kind": kind, **grade.row(), **(_judge_score(judge, grade.traces) if judge else {})}
        for kind, grade in zip(kinds, grades, strict=True)
    ]
    columns = [_cells({name: value for name, value in row.items() if name not in ("stage", "what")}) for row in rows]
    caption = f"{stage}: {len(traces)} test traces; the score is the {grades[1].what} with the teacher's answers"
    notes = _base_ratios(stage, rows)
    if collected.exists():
        notes.append(f"{stage}: the teacher's valid format is that of all its collected answers, before `distill sift`")
    return rows, Section(stage, tuple(notes), (Table.of(caption, columns),))


def _cells(row: Row) -> Row:
    """A row of a table from one of report.json: plain heads with units, and the score with its interval."""
    cells: Row = {}
    for name, value in row.items():
        if name == "score" and "low" in row:
            cells["score [95 % interval]"] = Estimate(value, row["low"], row["high"]).as_text()
        elif name in _UNITS:
            head, digits = _UNITS[name]
            cells[head] = f"{value:.{digits}f}"
        elif name not in ("low", "high"):
            cells[_HEADS.get(name, name)] = value
    return cells


def _loss_cells(row: Row) -> Row:
    return {f"{name} loss" if name != "epoch" else name: value for name, value in row.items()}


def _calibrated_judge(
    settings: Settings, recipe: StudentComparisonRecipe, stack: ExitStack, notify: Notify
) -> JudgeSetup | None:
    """The recipe's judge, or None if it was not calibrated or not found believable."""
    judge = open_judge(settings.model_copy(update={"model": recipe.judge_model}), recipe.criterion, stack, notify)
    if judge.calibration and judge.calibration.believable:
        return judge
    notify(f"the judge {recipe.criterion} on {recipe.judge_model} is not used: {calibration_line(judge)}")
    return None


def open_judge(settings: Settings, criterion: str, stack: ExitStack, notify: Notify) -> JudgeSetup:
    """A judge of single answers on the settings' backbone, which closes with the stack. Raises BadInput."""
    judge = find_answer_judge(criterion)
    setup = judge_on_backbone(judge, settings, runs.open_backbone(settings, stack, notify))
    notify(f"judge {criterion} on {settings.model}: {calibration_line(setup)}")
    return setup


def calibration_line(judge: JudgeSetup) -> str:
    """How far the judge can be trusted."""
    return judge.calibration.line if judge.calibration else NOT_CALIBRATED


def _judge_score(judge: JudgeSetup, traces: Sequence[Any]) -> Row:
    """The mean of the judge's scores, over the answers that it scored."""
    scores = [score for score in score_answers(judge, traces) if score is not None]
    return {f"judge: {judge.judge.name}": sum(scores) / len(scores)} if scores else {}


def _merged_student(students: Sequence[Student], base: str, out: Path, notify: Notify) -> Student:
    """The merged model of the only adapter, made in `out` if there is none."""
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
        f"{stage}: the score of {name} is {score / reference:.2f} times that of {base}"
        if reference > 0
        else f"{stage}: the score of {name} is {score:.3f}, that of {base} is 0"
        for name, score in others
    ]


def _merged_deltas(students: Sequence[Student], comparisons: Sequence[Sequence[Row]]) -> list[Row]:
    """Figures of a merged model minus those of the adapter it was made of, if there is one of each."""
    kinds = [student.kind for student in students]
    if kinds.count("merged") != 1 or kinds.count("adapter") != 1:
        return []
    deltas = []
    for rows in comparisons:
        by_kind = {row["kind"]: row for row in rows}
        adapter, merged = by_kind["adapter"], by_kind["merged"]
        deltas.append({"stage": adapter["stage"], **{name: merged[name] - adapter[name] for name in _DELTAS}})
    return deltas


def _plot_losses(students: Sequence[Student], out: Path) -> tuple[str, ...]:
    plots = []
    for student in students:
        if log := read_log(student.folder):
            out.mkdir(parents=True, exist_ok=True)
            plots.append(f"loss-{student.name}.png")
            plot_curves(log, out / plots[-1])
    return tuple(plots)


def _write_cards(students: Sequence[Student], rows: Sequence[Row], command: str) -> None:
    """Write the rows of the teacher, the base model and the student into each student's card."""
    for student in students:
        own = [row for row in rows if row["kind"] in ("teacher", "base") or row["model"] == student.name]
        columns = [_cells({name: value for name, value in row.items() if name != "grounded"}) for row in own]
        text = markdown_table(Table.of("", columns))
        write_card_section(student.folder, f"Measured by `{command}`:\n\n{text}")


def compare_end_to_end(
    settings: Settings,
    folders: Sequence[Path],
    *,
    system: str,
    datasets: Mapping[str, Path],
    out: Path,
    limit: int | None = None,
    split: runs.Split | None = None,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> Report:
    """Let one system answer questions on the base model and with each student; merged models are left out.

    Answers are stored in `out`, in a folder for each student, and not computed again. The base model's rows have the
    system's name. Raises BadInput for a student that the system has no place for.
    """
    students = [student for folder in folders if (student := find_student(folder)).kind != "merged"]
    variants = {"base": runs.system_settings(with_adapters(settings, {}), system)}
    variants |= {student.name: _settings_with(student, settings, system) for student in students}
    lines: list[Line] = []
    for name, own in variants.items():
        label = system if name == "base" else f"{system} + {name}"
        notify(f"{system} with {name}: the answers are in {out / name}")
        recipe = runs.EvaluationRecipe(systems=(own.system,), limit=limit, split=split, retry_failed=True)
        answered = runs.evaluate(
            own, recipe, datasets=datasets, out=out / name, baselines=(), resume=(out / name / runs.RUN).exists(),
            notify=notify, progress=progress,
        )  # fmt: skip
        lines += [replace(line, work=line.work._replace(system=label)) for line in answered]
    scores = score_probes(answers_of(lines), [])
    document = section("End to end", (), lines, scores, out, against=(system,))
    figures = {"system": system, "tables": [asdict(table) for table in document.tables]}
    report = Report(figures, document.tables, document.notes)
    report.save(out, document.title, document.plots)
    return report


def _settings_with(student: Student, settings: Settings, system: str) -> Settings:
    """The settings of the system with the student in its place."""
    if student.kind == "adapter":
        notes = read_notes(student.folder)
        if not (notes and notes.prompts):
            raise BadInput(f"{student.folder} does not say which prompts it serves; train it again")
        return runs.system_settings(with_adapters(settings, dict.fromkeys(notes.prompts, student.folder)), system)
    owner, option = _OPTIONS[trained_stage(student.folder)]
    if system.partition("/")[0] != owner:
        raise BadInput(f"{student.folder} serves the system {owner}, not {system}")
    own = runs.system_settings(with_adapters(settings, {}), system)
    return own.model_copy(update={"options": {**own.options, option: str(student.folder.resolve())}})
