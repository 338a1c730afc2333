"""`localmem bench load`."""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import click

from localmem.benchmark.recipes import LoadRecipe
from localmem.cli.options import config_option, json_option, note, print_json, settings_of, system_option
from localmem.cli.recipes import recipe_options

_TIMES = {
    "fsync of the disk": "fsync_ms",
    "turn durable": "acknowledged_ms",
    "turn answered": "turn_ms",
    "beyond the backbone": "beyond_backbone_ms",
}


@click.command()
@recipe_options(LoadRecipe, flags=("users", "turns"))
@click.option("--turn-times", type=click.Path(path_type=Path), metavar="FILE", help="JSONL file for each turn's times.")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Data directory (default: temporary).")
@config_option
@system_option
@json_option
def load(
    recipe: LoadRecipe,
    turn_times: Path | None,
    data_dir: Path | None,
    config: Path | None,
    system: str | None,
    as_json: bool,
) -> None:
    """Measure many users at once.

    Reports how long until a turn is durable and until it is answered. The store is real and on disk; the backbone is
    scripted with fixed times. Afterwards every acknowledged turn is looked up in the store; exit status 1 if one is
    missing or a turn failed.
    """
    from localmem.experiments.benchmarks import measure_load

    with tempfile.TemporaryDirectory(prefix="localmem-load-") as folder:
        report = measure_load(recipe, settings_of(config, data_dir or Path(folder), None, system), note, turn_times)
    if as_json:
        print_json(report)
    else:
        click.echo(_table(recipe, report))
    if report["failed"] or report["lost"]:
        sys.exit(1)


def _table(recipe: LoadRecipe, report: Mapping[str, object]) -> str:
    from tabulate import tabulate

    machine = cast("dict[str, object]", report["machine"])
    figures = [{"milliseconds": name, **cast("dict[str, float]", report[key])} for name, key in _TIMES.items()]
    lines = [
        tabulate(figures, headers="keys", floatfmt=".2f"),
        f"{recipe.users} users, pause {recipe.think} s; failed: {report['failed'] or 0}",
        f"replies of {recipe.answer} words: {recipe.first_token} s to the first, {recipe.per_token} s for each further",
        f"{report['turns']} turns in {report['seconds']} s, {report['turns_per_second']} per second",
        f"{report['acknowledged']} turns acknowledged, {report['lost']} of them missing from the store",
        f"{machine['processor']}, {machine['usable_cores']} cores, load average {machine['load_average']} before",
        f"store on {machine['file_system']}",
    ]
    return "\n".join(lines)
