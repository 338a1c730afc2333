"""`localmem eval judge`: judges give verdicts on the answers of a run."""

from collections.abc import Sequence
from pathlib import Path

import click

from localmem.cli.options import SettingsFlags, json_option, note, print_json, settings_options
from localmem.experiments.judging import judge_run
from localmem.experiments.runs import FULL_HISTORY

criterion_option = click.option("--criterion", "criteria", multiple=True, help="Judge question. Repeatable.")
judge_model_option = click.option("--judge-model", help="Backbone of the judge.", metavar="NAME")
samples_option = click.option("--samples", type=click.IntRange(1), help="Samples per verdict.", metavar="N")
nli_option = click.option("--nli", help="Trained NLI model for entailment, by name or folder.", metavar="NAME")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@criterion_option
@judge_model_option
@samples_option
@nli_option
@click.option("--baseline", default=FULL_HISTORY, show_default=True, help="Baseline of pairwise judges.", metavar="S")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for samples.")
@settings_options("config", "data_dir")
@json_option
def judge(
    folder: Path,
    criteria: Sequence[str],
    judge_model: str | None,
    samples: int | None,
    nli: str | None,
    baseline: str,
    seed: int,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Judge the answers of a run.

    DIR is the --out of `localmem eval run`. The default criterion is correct; answers that already have a verdict are
    skipped. The judge's model need not be the one that answered. Calibrate the judge first with `localmem eval
    calibrate`; reports mark verdicts of uncalibrated judges.
    """
    settings = flags.load(model=judge_model)
    counts = judge_run(
        folder, settings, criteria=criteria, samples=samples, nli=nli, baseline=baseline, seed=seed, notify=note
    )
    if as_json:
        print_json(counts)
    for name, count in counts.items():
        note(f"{name}: {count} verdicts; run `localmem eval report {folder}`")
