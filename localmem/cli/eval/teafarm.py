"""`localmem eval teafarm`: counterfactual questions, made from any data set and put to any memory system."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from localmem.cli.options import DatasetFile, SettingsFlags, json_option, note, print_json, settings_options
from localmem.cli.progress import step_progress
from localmem.cli.recipes import recipe_options
from localmem.experiments import counterfactuals
from localmem.experiments.counterfactuals import TeafarmRecipe
from localmem.experiments.runs import ANSWERS


@click.group()
def teafarm() -> None:
    """Test memory with counterfactual questions."""


@teafarm.command()
@click.option("--dataset", type=DatasetFile(), required=True, help="Source data set and its file.", metavar="NAME=FILE")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="TeaBag file to write.", metavar="FILE")
@click.option("--limit", type=click.IntRange(1), help="Use only the first N episodes.", metavar="N")
@click.option("--sessions", type=click.IntRange(1), default=5, show_default=True, help="Sessions per episode.")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="Episodes to make in parallel.")
@settings_options("config", "model")
@json_option
def make(
    dataset: tuple[str, Path],
    out: Path,
    limit: int | None,
    sessions: int,
    threads: int,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Make counterfactual questions.

    Each speaker of an episode gets a question that assumes something untrue, and a session that leads up to it. The
    backbone writes everything, so a larger --model makes better questions; read some before you rely on them. Episodes
    that FILE already contains are skipped.
    """
    with step_progress() as progress:
        report = counterfactuals.make_questions(
            flags.load(), dataset, out, limit=limit, sessions=sessions, threads=threads, notify=note, progress=progress
        )
    if as_json:
        print_json(report)
        return
    existing = f"{report['existing']} of them from before"
    click.echo(f"{report['questions']} questions about {report['episodes']} episodes, {existing}, in {out}")
    for reason, count in sorted(report["counts"].items()):
        click.echo(f"{reason}: {count}")


@teafarm.command(name="run")
@recipe_options(TeafarmRecipe, flags=[("systems", "system"), "limit", "judge_model"])
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the run.", metavar="DIR")
@settings_options("config", "data_dir", "model")
@json_option
def run_teafarm(recipe: TeafarmRecipe, out: Path, flags: SettingsFlags, as_json: bool) -> None:
    """Put counterfactual questions to systems.

    A system reads five sessions and answers the question that a sixth leads up to; a judge decides who was not misled.
    The agent speaks for the replier, so each question has a memory of its own. What DIR already contains is not done
    again. The success rate is the share of questions answered correctly (Theanine, Table 4).
    """
    with step_progress() as progress:
        report = counterfactuals.run_teafarm(flags.load(), recipe, out, notify=note, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print_rates(report, out)


def _print_rates(report: Mapping[str, Any], out: Path) -> None:
    from tabulate import tabulate

    rows = [
        [
            row["system"],
            f"{row['rate']['mean']:.2f} [{row['rate']['low']:.2f}, {row['rate']['high']:.2f}]",
            *(row[name] for name in ("questions", "abstained", "failed", "unjudged")),
        ]
        for row in report["systems"]
    ]
    click.echo(tabulate(rows, ["system", "success rate", "questions", "abstained", "failed", "unjudged"]))
    judge = report["judge"]
    calibration = judge["calibration"] or "not calibrated; run `localmem eval calibrate` for this judge and model"
    click.echo(f"judge {judge['name']} on {judge['model']}: {calibration}")
    note(f"answers are in {out / ANSWERS}; run `localmem eval report {out}`")
