"""`localmem eval calibrate`: the agreement of judges with labelled verdicts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.eval.judge import criterion_option, judge_model_option, nli_option, samples_option
from localmem.cli.options import SettingsFlags, json_option, note, print_json, settings_options
from localmem.cli.progress import step_progress
from localmem.experiments.judging import calibrate_judges, describe_calibration
from localmem.files import write_json

if TYPE_CHECKING:
    from localmem.evaluation.judging.calibration import Calibration, CalibrationRecord


@click.command()
@criterion_option
@judge_model_option
@click.option("--labelled", type=click.Path(path_type=Path), help="Labels for one criterion.", metavar="FILE")
@samples_option
@nli_option
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


def _table(record: "CalibrationRecord") -> str:
    """One judge's figures for the terminal."""
    from tabulate import tabulate

    figures = record.figures
    samples = f", {record.samples} samples" if record.samples > 1 else ""
    lines = [
        f"{record.judge} on {record.model.name}{samples}, {figures.items} items of {record.labelled}",
        figures.line,
        *_summary_lines(figures),
    ]
    if figures.kinds:
        heads = ["kind", "items", "agreed", "accepted"][: 4 if figures.passed else 3]
        rows = [[kind, *row, _percent(figures.passed.get(kind))][: len(heads)] for kind, row in figures.kinds.items()]
        lines.append(tabulate(rows, heads))
    if figures.spearman:
        scales = [
            [scale, f"{rho:.2f}", ", ".join(f"{label}: {mean:.1f}" for label, mean in figures.means[scale].items())]
            for scale, rho in figures.spearman.items()
        ]
        lines.append(tabulate(scales, ["scale", "Spearman", "mean by label"], disable_numparse=True))
    return "\n".join(lines)


def _summary_lines(figures: "Calibration") -> list[str]:
    """One line for each figure that there is."""
    lines = []
    if figures.accuracy:
        mean, low, high = figures.accuracy
        lines.append(f"accuracy {mean:.2f} [{low:.2f}, {high:.2f}]")
    if figures.flipped is not None:
        sides = ", ".join(f"{share:.0%} to reply {position}" for position, share in figures.favoured.items())
        lines.append(f"{figures.flipped:.0%} flip with the order" + (f" ({sides})" if sides else ""))
    if figures.unusable or figures.trimmed:
        lines.append(f"{figures.unusable} without a verdict, {figures.trimmed} with a prompt cut to fit")
    return lines


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
