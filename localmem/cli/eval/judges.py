"""`localmem eval judge` and `localmem eval calibrate`: verdicts on the answers of a run, and how far to trust them."""

from collections.abc import Sequence
from pathlib import Path

import click
from tabulate import tabulate

from localmem.cli.options import SettingsFlags, json_option, note, print_json, settings_options, step_progress
from localmem.evaluation.judging.calibration import CalibrationRecord
from localmem.experiments.judging import calibrate_judges, describe_calibration, judge_run
from localmem.experiments.runs import FULL_HISTORY
from localmem.files import write_json

_criterion_option = click.option("--criterion", "criteria", multiple=True, help="Judge question. Repeatable.")
_judge_model_option = click.option("--judge-model", help="Backbone of the judge.", metavar="NAME")
_samples_option = click.option("--samples", type=click.IntRange(1), help="Samples per verdict.", metavar="N")
_nli_option = click.option("--nli", help="Trained NLI model for entailment, by name or folder.", metavar="NAME")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@_criterion_option
@_judge_model_option
@_samples_option
@_nli_option
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


@click.command()
@_criterion_option
@_judge_model_option
@click.option("--labelled", type=click.Path(path_type=Path), help="Labels for one criterion.", metavar="FILE")
@_samples_option
@_nli_option
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for samples and intervals.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file for the figures.", metavar="FILE")
@settings_options("config", "data_dir")
@json_option
def calibrate(
    criteria: Sequence[str],
    judge_model: str | None,
    labelled: Path | None,
    samples: int | None,
    nli: str | None,
    seed: int,
    out: Path | None,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Compare judges with labelled verdicts.

    Measures accuracy, kappa, position bias and accepted wrong answers, by default of every judge on the shipped labels.
    The figures are stored in the data directory, so that reports can mark uncalibrated judges. A judge is believable
    from a kappa (for numbers, a mean Spearman) of 0.6.
    """
    settings = flags.load(model=judge_model)
    with step_progress() as progress:
        records = calibrate_judges(
            settings,
            criteria=criteria,
            labelled=labelled,
            samples=samples,
            nli=nli,
            seed=seed,
            notify=note,
            progress=progress,
        )
    documents = [describe_calibration(record) for record in records]
    if out:
        write_json(out, documents, "choose another --out")
    if as_json:
        print_json(documents)
        return
    click.echo("\n\n".join(map(_table, records)))
    note(f"stored in {settings.data} for reports")


def _table(record: CalibrationRecord) -> str:
    """One judge's figures for the terminal; a line for each that there is."""
    figures = record.figures
    samples = f", {record.samples} samples" if record.samples > 1 else ""
    title = f"{record.judge} on {record.model.name}{samples}, {figures.items} items of {record.labelled}"
    lines = [title, figures.line]
    if figures.accuracy:
        mean, low, high = figures.accuracy
        lines.append(f"accuracy {mean:.2f} [{low:.2f}, {high:.2f}]")
    if figures.flipped is not None:
        sides = ", ".join(f"{share:.0%} to reply {position}" for position, share in figures.favoured.items())
        lines.append(f"{figures.flipped:.0%} flip with the order" + (f" ({sides})" if sides else ""))
    if figures.unusable or figures.trimmed:
        lines.append(f"{figures.unusable} without a verdict, {figures.trimmed} with a prompt cut to fit")
    if figures.kinds:
        accepted = {kind: f"{share:.0%}" for kind, share in figures.passed.items()}
        heads = ["kind", "items", "agreed", "accepted"][: 4 if accepted else 3]
        rows = [[kind, *row, accepted.get(kind, "")][: len(heads)] for kind, row in figures.kinds.items()]
        lines.append(tabulate(rows, heads))
    if figures.spearman:
        scales = [
            [scale, f"{rho:.2f}", ", ".join(f"{label}: {mean:.1f}" for label, mean in figures.means[scale].items())]
            for scale, rho in figures.spearman.items()
        ]
        lines.append(tabulate(scales, ["scale", "Spearman", "mean by label"], disable_numparse=True))
    return "\n".join(lines)
