"""`localmem distill evaluate` and `end-to-end`: students compared with their teacher and their base model."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

import click

from localmem.cli.finetune.training_options import command_line
from localmem.cli.options import config_option, dataset_option, json_option, note, print_report, settings_of
from localmem.cli.progress import step_progress
from localmem.cli.recipes import recipe_options
from localmem.experiments.runs import Split
from localmem.experiments.student_comparison import StudentComparisonRecipe

_student_option = click.option("--student", required=True, help="Base model of the students, by name.", metavar="MODEL")
_adapter_option = click.option(
    "--adapter",
    "runs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Run of `distill train` or `merge`. Repeatable.",
    metavar="RUN",
)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--stage", "stages", multiple=True, required=True, help="Stage to compare. Repeatable.", metavar="NAME")
@_student_option
@_adapter_option
@recipe_options(StudentComparisonRecipe, flags=["limit"])
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the report.", metavar="DIR")
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
    from localmem.experiments.student_comparison import compare_students

    with step_progress() as progress:
        report = compare_students(
            folder,
            stages,
            settings_of(config, model=student),
            runs,
            recipe,
            out=out,
            command=command_line(),
            notify=note,
            progress=progress,
        )
    print_report(report, as_json=as_json)


@click.command()
@dataset_option
@click.option("--system", required=True, help="Memory system that answers the questions.", metavar="NAME")
@_student_option
@_adapter_option
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the answers.", metavar="DIR")
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
    from localmem.experiments.end_to_end import compare_end_to_end

    with step_progress() as progress:
        report = compare_end_to_end(
            settings_of(config, model=student),
            runs,
            system=system,
            datasets=dict(datasets),
            out=out,
            limit=limit,
            split=None if split == "all" else cast("Split", split),
            notify=note,
            progress=progress,
        )
    print_report(report, as_json=as_json)
