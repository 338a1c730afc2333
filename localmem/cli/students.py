"""The commands of `localmem distill` that compare students: with their teachers, in whole systems, and before use."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast, get_args

import click

from localmem.cli.finetune import command_line
from localmem.cli.options import (
    EXISTING_FILE,
    FOLDER,
    config_option,
    dataset_option,
    files_by_name,
    json_option,
    note,
    print_json,
    print_report,
    settings_of,
    step_progress,
)
from localmem.cli.recipes import recipe_options
from localmem.errors import BadInput
from localmem.experiments.runs import Split
from localmem.experiments.student_comparison import StudentComparisonRecipe, compare_end_to_end, compare_students
from localmem.experiments.student_gate import check_student
from localmem.experiments.student_proof import ProofRecipe, prove_student

_student_option = click.option("--student", required=True, help="Base model of the students, by name.", metavar="MODEL")
_adapter_option = click.option(
    "--adapter",
    "runs",
    type=FOLDER,
    multiple=True,
    help="Run of `distill train` or `merge`. Repeatable.",
    metavar="RUN",
)


@click.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--stage", "stages", multiple=True, required=True, help="Stage to compare. Repeatable.", metavar="NAME")
@_student_option
@_adapter_option
@recipe_options(StudentComparisonRecipe, flags=["limit"])
@click.option("--out", type=FOLDER, help="Folder for the report.", metavar="DIR")
@config_option
@json_option
def evaluate(
    folder: Path,
    stages: Sequence[str],
    student: str,
    runs: Sequence[Path],
    recipe: StudentComparisonRecipe,
    out: Path | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Compare students on held-out traces.

    The score is the similarity to the teacher's answers: agreement for choices, SeCom's Score for segments, ROUGE-L for
    texts, whose facts are counted, too. If traces carry gold answers, all answers are compared with these as well.
    """
    with step_progress() as progress:
        settings = settings_of(config, model=student)
        command = command_line()
        report = compare_students(
            folder, stages, settings, runs, recipe, out=out, command=command, notify=note, progress=progress
        )
    print_report(report, as_json=as_json)


@click.command()
@click.argument("adapter", type=FOLDER, metavar="RUN")
@_student_option
@click.option("--people", type=FOLDER, required=True, help="Scenarios that were not learned from.", metavar="DIR")
@click.option(
    "--free-chat", type=EXISTING_FILE, help="Replies of `distill free-chat`, for the perplexity.", metavar="FILE"
)
@click.option("--limit", type=click.IntRange(1), help="Use only the first N people.")
@click.option("--force", is_flag=True, help="Allow the adapter even if it fails.")
@config_option
@json_option
def check(
    adapter: Path,
    student: str,
    people: Path,
    free_chat: Path | None,
    limit: int | None,
    force: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    """Check that a student's replies are not worse than its base's.

    Both answer people's questions and ordinary requests. Fewer right answers, more false denials, more refused requests
    or a higher perplexity fail the check, and the adapter in RUN is then refused wherever it is named.
    """
    with step_progress() as progress:
        verdict = check_student(
            settings_of(config, model=student),
            adapter,
            people,
            free_chat=free_chat,
            limit=limit,
            force=force,
            notify=note,
            progress=progress,
        )
    if as_json:
        print_json(asdict(verdict))
    note(verdict.line(str(adapter), student))
    if verdict.worse and not (force or verdict.shows_nothing):
        raise BadInput(f"{adapter} will be refused; --force allows it")


@click.command()
@dataset_option
@click.option("--system", required=True, help="Memory system that answers the questions.", metavar="NAME")
@_student_option
@_adapter_option
@click.option("--out", type=FOLDER, required=True, help="Folder for the answers.", metavar="DIR")
@click.option("--limit", type=click.IntRange(1), help="Use only the first N questions per dataset.")
@click.option(
    "--split",
    type=click.Choice([*get_args(Split), "all"]),
    default="report",
    show_default=True,
    help="Half of the data, or all of it.",
)
@config_option
@json_option
def end_to_end(
    datasets: Sequence[tuple[str, Path]],
    system: str,
    student: str,
    runs: Sequence[Path],
    out: Path,
    limit: int | None,
    split: str,
    config: Path | None,
    as_json: bool,
) -> None:
    """Compare whole systems with and without students.

    The same evaluation runs with the base model alone and with each student in place. Repeat the command to resume.
    """
    with step_progress() as progress:
        report = compare_end_to_end(
            settings_of(config, model=student),
            runs,
            system=system,
            datasets=files_by_name(datasets),
            out=out,
            limit=limit,
            split=None if split == "all" else cast("Split", split),
            notify=note,
            progress=progress,
        )
    print_report(report, as_json=as_json)


@click.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--stage", "stages", multiple=True, required=True, help="Stage to prove. Repeatable.", metavar="NAME")
@_student_option
@click.option("--adapter", type=FOLDER, required=True, help="Run of `distill train` or `merge`.", metavar="RUN")
@click.option("--teacher", required=True, help="Model that the student learned from.", metavar="MODEL")
@recipe_options(ProofRecipe, file=False)
@click.option("--out", type=FOLDER, required=True, help="Folder for the report.", metavar="DIR")
@click.option("--force", is_flag=True, help="Allow the student even if it fails.")
@config_option
@json_option
def prove(
    folder: Path,
    stages: Sequence[str],
    student: str,
    adapter: Path,
    teacher: str,
    recipe: ProofRecipe,
    out: Path,
    force: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    """Prove that a student can take over from its teacher.

    Student, teacher, base and two trivial rules answer held-out traces in one run. To pass, the student needs 97 % of
    the teacher's score by human answers (100 % where the lessons were compared with these), more than the better rule,
    99.5 % valid answers even without the grammar, three times the teacher's tokens a second, and no harm to whole
    systems where `people` are named. A student that fails is refused wherever it is named.
    """
    with step_progress() as progress:
        report = prove_student(
            folder,
            stages,
            settings_of(config, model=student),
            teacher,
            adapter,
            recipe,
            out=out,
            force=force,
            command=command_line(),
            notify=note,
            progress=progress,
        )
    print_report(report, as_json=as_json)
    note(f"the page is {out / 'report.html'}")
    if report.figures["passed"] is None and not force:
        note("so few measurements show nothing: this run neither allows nor refuses the student")
    elif not (report.figures["passed"] or force):
        raise BadInput(f"{adapter} failed its proof and will be refused; --force allows it")


COMMANDS = (evaluate, check, end_to_end, prove)
