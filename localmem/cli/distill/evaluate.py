"""`localmem distill evaluate`: students beside their teacher and their base model, stage by stage and end to end.

Wires up `finetune.students`; measures nothing itself.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.distill.judge_options import bench_for, judge_options, line_of
from localmem.cli.finetune.training_options import base_folder, command_line
from localmem.cli.options import DatasetFile, config_option, data_option, json_option, note, print_json, settings_of
from localmem.cli.progress import step_progress
from localmem.errors import BadInput
from localmem.experiments.end_to_end import Whole
from localmem.experiments.runs import counting

if TYPE_CHECKING:
    from finetune.students import Student
    from finetune.traces.trace import Trace
    from localmem.config import Settings
    from localmem.evaluation.judgements import JudgeSetup
    from localmem.reporting.sections import Table

Row = dict[str, object]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--stage", "stages", multiple=True, required=True, help="May be given again.", metavar="X")
@click.option("--student", required=True, help="The students' base model, by its name.", metavar="M")
@click.option(
    "--adapter",
    "runs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="What `distill train` or `merge` made: an adapter, a trained part, a merged model. May be given again.",
    metavar="RUN",
)
@click.option(
    "--merged",
    type=click.Path(path_type=Path),
    help="The one LoRA among them merged with its base; is made there if it is not.",
    metavar="DIR",
)
@click.option("--limit", type=click.IntRange(1), help="The first so many traces of a stage only.")
@judge_options
@click.option("--end-to-end", "system", help="Then this system answers --questions with and without.", metavar="SYSTEM")
@click.option(
    "--questions",
    "sources",
    type=DatasetFile(),
    multiple=True,
    help="With --end-to-end: a data set and its file; may be given again.",
    metavar="NAME=FILE",
)
@click.option("--probes", type=click.IntRange(1), help="With --end-to-end: the first so many of each data set only.")
@click.option("--half", type=click.Choice(["all", "choose", "report"]), default="report", show_default=True)
@click.option("--card", is_flag=True, help="Write the table into each RUN's card, too.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the figures here.", metavar="DIR")
@config_option
@data_option
@json_option
def evaluate(
    folder: Path,
    stages: Sequence[str],
    student: str,
    runs: Sequence[Path],
    merged: Path | None,
    limit: int | None,
    judge: str | None,
    by: str,
    system: str | None,
    sources: Sequence[tuple[str, Path]],
    probes: int | None,
    half: str,
    card: bool,
    out: Path | None,
    config: Path | None,
    data: Path | None,
    as_json: bool,
) -> None:
    """Compare students with their base model and their teacher on held-out conversations, in one table.

    Score: how near to what the teacher did: agreement for choices, SeCom's Score for segments, ROUGE-L for texts, whose
    facts are counted, too. Where traces carry gold, every answer is compared with that as well, the teacher's among
    them. A judge is listened to where it was calibrated. With --end-to-end the same `localmem eval run` is done with
    each student in place and without.
    """
    from finetune.students import student_in
    from localmem.reporting.pages import terminal

    _check(runs, system, sources, out)
    settings = settings_of(config, data, model=student)
    students = [student_in(path) for path in runs]
    found = _Found(folder, settings, limit)
    with ExitStack() as stack:
        if merged:
            students.append(_merged(students, student, merged))
        bench = _believable(settings_of(config, data, model=judge), by, stack) if judge else None
        for stage in stages:
            found.grade(stage, student, students, bench, stack)
    found.tell_deltas(students)
    found.tell_curves(students)
    if system and out:
        limits = {"split": None if half == "all" else half, "limit": probes}
        with step_progress() as show:
            whole = Whole(settings, system, sources, limits, out, note, show)
            found.tables += whole.run([one for one in students if one.kind != "merged"], found.traces)
    report = _report(folder, stages, found)
    if out:
        _keep(out, found, students, report)
    if card:
        _write_cards(found, students)
    if as_json:
        print_json(report)
        return
    click.echo(terminal(found.tables))
    for line in found.notes:
        note(line)


def _report(folder: Path, stages: Sequence[str], found: "_Found") -> Row:
    """Every figure, and what they were measured on."""
    from localmem.reporting.provenance import machine, versions

    return {
        "command": command_line(),
        "stage": ", ".join(stages),
        "students": found.rows,
        "deltas": found.deltas,
        "curves": found.curves,
        "notes": found.notes,
        "tables": [{"caption": table.caption, "head": table.head, "rows": table.rows} for table in found.tables],
        "machine": machine(folder),
        "versions": versions(),
    }


def _check(runs: Sequence[Path], system: str | None, sources: Sequence[tuple[str, Path]], out: Path | None) -> None:
    if bool(system) != bool(sources):
        raise click.UsageError("--end-to-end and --questions go together: a system, and what it is asked")
    if system and not (out and runs):
        raise click.UsageError("--end-to-end needs --adapter to put in place, and --out for the runs' answers")


@dataclass
class _Found:
    """What was measured so far: rows, tables, and what a reader must know."""

    folder: Path
    settings: "Settings"
    limit: int | None
    rows: list[Row] = field(default_factory=list)
    deltas: list[Row] = field(default_factory=list)
    curves: dict[str, list[Row]] = field(default_factory=dict)
    tables: "list[Table]" = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    traces: "dict[str, list[Trace]]" = field(default_factory=dict)

    def grade(
        self, stage: str, base: str, students: "Sequence[Student]", bench: "JudgeSetup | None", stack: ExitStack
    ) -> None:
        """One stage's rows: the teacher's, the base model's, each student's."""
        from finetune.grading import teacher
        from finetune.students import Student, graded
        from finetune.traces.trace import read_traces
        from localmem.reporting.sections import Table

        traces = read_traces(self.folder / "test" / f"{stage}.jsonl")[: self.limit]
        if not traces:
            raise BadInput(f"{self.folder / 'test'} holds no trace of {stage!r}; collect from more conversations")
        whole = self.folder / "traces" / f"{stage}.jsonl"
        self.traces[stage] = traces
        asked = [Student(base, "base"), *students]
        bar = counting(stack.enter_context(step_progress()), "answering", len(traces) * len(asked))
        grades = [teacher(stage, traces, read_traces(whole) if whole.exists() else [])]
        grades += [graded(one, stage, traces, self.settings, note=note, track=bar) for one in asked]
        rows: list[Row] = []
        for kind, one in zip(("teacher", *(one.kind for one in asked)), grades, strict=True):
            said = _judged(bench, one.said) if bench else {}
            rows.append({"stage": stage, "kind": kind, **one.row(), **said})
        self.rows += rows
        shown = [{name: value for name, value in row.items() if name not in ("stage", "what")} for row in rows]
        self.tables.append(
            Table.of(f"{stage}: {grades[1].what} with the teacher on {len(traces)} held-out traces", shown)
        )
        self.notes += _times_base(stage, rows)
        if whole.exists():
            self.notes.append(f"{stage}: the teacher's validity is that of all its answers, before sifting")

    def tell_deltas(self, students: "Sequence[Student]") -> None:
        """A merged model beside the adapter that it was made of."""
        from localmem.reporting.sections import Table

        kinds = [one.kind for one in students]
        if kinds.count("merged") != 1 or kinds.count("adapter") != 1:
            return
        for stage in self.traces:
            rows = {str(row["kind"]): row for row in self.rows if row["stage"] == stage}
            adapter, merged = rows.get("adapter"), rows.get("merged")
            if adapter and merged:
                names = ("score", "valid", "tokens_per_second", "p50_ms", "p95_ms", "memory_mib")
                self.deltas.append({"stage": stage, **{name: merged[name] - adapter[name] for name in names}})  # type: ignore[operator]  # numbers
        if self.deltas:
            self.tables.append(Table.of("merged minus adapter", self.deltas))

    def tell_curves(self, students: "Sequence[Student]") -> None:
        """Loss by epoch of each run."""
        from finetune.students import curve, losses
        from localmem.reporting.sections import Table

        for one in students:
            if rows := losses(curve(one.folder)):
                self.curves[one.name] = rows
                self.tables.append(Table.of(f"{one.name}: loss by epoch", rows))


def _believable(settings: "Settings", by: str, stack: ExitStack) -> "JudgeSetup | None":
    """A judge that was calibrated and found believable; any other is not listened to, and that is said."""
    bench = bench_for(settings, by, stack)
    if bench.calibration and bench.calibration.believable:
        return bench
    note(f"the judge {by} on {settings.model} is left out: {line_of(bench)}")
    return None


def _judged(bench: "JudgeSetup", said: "Sequence[Trace]") -> Row:
    """The mean of the judge's scores, over the answers that it gave one."""
    from finetune.traces.judge_scores import ask

    scores = [score for score in ask(bench, said) if score is not None]
    return {f"judge: {bench.judge.name}": sum(scores) / len(scores)} if scores else {}


def _merged(students: "Sequence[Student]", base: str, out: Path) -> "Student":
    """The merged model's folder, made if there is none."""
    from finetune.merge import merge

    from finetune.students import Student

    adapters = [one for one in students if one.kind == "adapter"]
    if len(adapters) != 1:
        raise click.UsageError(f"--merged is of one LoRA adapter, and {len(adapters)} are given with --adapter")
    if not (out / "config.json").is_file():
        merge(adapters[0].folder, base_folder(base), out)
        note(f"the merged model is in {out}")
    name = out.name if out.name not in {one.name for one in students} else f"{out.name} (merged)"
    return Student(name, "merged", out)


def _times_base(stage: str, rows: Sequence[Row]) -> list[str]:
    """How often the base model's score each student reaches."""
    scores = {str(row["model"]): row["score"] for row in rows if isinstance(row.get("score"), float)}
    (base, before), *others = scores.items()
    return [
        f"{stage}: {name} scores {score / before:.2f} times as high as {base}"
        if isinstance(score, float) and isinstance(before, float) and before > 0
        else f"{stage}: {name} scores {score}, and {base} nothing"
        for name, score in others
    ]


def _keep(out: Path, found: _Found, students: "Sequence[Student]", report: Row) -> None:
    from finetune.run_folder import curves
    from finetune.students import curve
    from localmem.reporting.sections import Section, save_report

    pictures = []
    for one in students:
        if log := curve(one.folder):
            out.mkdir(parents=True, exist_ok=True)
            pictures.append(f"loss-{one.name}.png")
            curves(log, out / pictures[-1])
    title = f"Students for {', '.join(found.traces)}"
    save_report(out, Section(title, tuple(found.notes), tuple(found.tables), tuple(pictures)), report)


def _write_cards(found: _Found, students: "Sequence[Student]") -> None:
    """Into each run's own card: the teacher, the base model, and itself."""
    from finetune.cards import put_section

    from localmem.reporting.pages import markdown_table
    from localmem.reporting.sections import Table

    for one in students:
        rows = [row for row in found.rows if row["kind"] in ("teacher", "base") or row["model"] == one.name]
        shown = [{name: value for name, value in row.items() if name != "grounded"} for row in rows]
        text = markdown_table(Table.of("", shown))
        put_section(one.folder, f"Measured by `{command_line()}`:\n\n{text}")
