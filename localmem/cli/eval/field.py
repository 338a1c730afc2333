"""`localmem eval table`: the table of the field."""

from pathlib import Path

import click

from localmem.cli.options import SettingsFlags, json_option, note, print_report, settings_options, step_progress
from localmem.cli.recipes import recipe_options
from localmem.experiments.system_table import TablePlan, run_table

_FOLDER = click.Path(path_type=Path)


@click.command()
@recipe_options(TablePlan, flags=[("systems", "system"), ("backbones", "backbone")])
@click.option("--sources", "data", type=_FOLDER, required=True, help="Folder of the data sets' files.", metavar="DIR")
@click.option("--out", type=_FOLDER, required=True, help="Folder for runs, table and pages.", metavar="DIR")
@settings_options("config")
@json_option
def table(recipe: TablePlan, data: Path, out: Path, flags: SettingsFlags, as_json: bool) -> None:
    """Compare memory systems on local backbones.

    A plan (--recipe) names systems, backbones, data sets and the judge, which is a local model as well and is
    calibrated before it judges. What the folder already contains is not done again, so an interrupted table continues.
    scripts/reproduce_table.sh runs the shipped plans.
    """
    with step_progress() as progress:
        report = run_table(flags.load(), recipe, data, out, notify=note, progress=progress)
    print_report(report, as_json=as_json)
    note(f"the table and every answer are in {out / 'report.html'}")
