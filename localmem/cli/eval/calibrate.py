"""`localmem eval calibrate`: how far the judges agree with labelled verdicts, before anybody believes them.

Wires a backbone into `localmem.evaluation.judging`; measures nothing itself.
"""

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import (
    config_option,
    data_option,
    json_option,
    model_option,
    note,
    print_json,
    settings_of,
)
from localmem.errors import BadInput
from localmem.files import write_json

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.judging import Judge, ModelIdentity, Verdict
    from localmem.evaluation.judging.calibration import Calibration, LabelledSet
    from localmem.evaluation.judging.calibration_store import CalibrationRecord
    from localmem.llm.base import LLM


@click.command()
@click.option("--judge", "names", help="Separated by commas; default: every judge.", metavar="NAME[,NAME]")
@click.option(
    "--labelled",
    type=click.Path(path_type=Path),
    help="Labelled verdicts for one --judge; default: the shipped ones.",
    metavar="FILE",
)
@click.option("--samples", type=click.IntRange(1), help="Answers a verdict; default: the judge's own.", metavar="N")
@click.option("--nli", help="Entailment by a trained NLI model: its name in the manifest, or a folder.", metavar="M")
@click.option("--seed", type=int, default=0, show_default=True, help="For samples and intervals.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the figures go as JSON, too.", metavar="FILE")
@config_option
@data_option
@model_option
@json_option
def calibrate(
    names: str | None,
    labelled: Path | None,
    samples: int | None,
    nli: str | None,
    seed: int,
    out: Path | None,
    config: Path | None,
    data: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Compare the verdicts of local judges with labelled ones: accuracy, kappa, position bias, what they let pass.

    The figures are kept in the data directory, and reports say of each verdict whether its judge was calibrated. A
    judge is believable from a kappa (for numbers, a mean Spearman) of 0.6 on.
    """
    from localmem.evaluation.judging import calibrate_judge
    from localmem.evaluation.judging.calibration import read_labelled_set
    from localmem.evaluation.judging.calibration_store import FILE, save_calibration
    from localmem.resources import resource

    chosen = _chosen(names, labelled, samples, nli)
    settings = settings_of(config, data, model=model)
    sets = [
        read_labelled_set(labelled or resource(f"configs/eval/calibration/{judge.name}.jsonl"), judge)
        for judge in chosen
    ]
    found: list[CalibrationRecord] = []
    with ExitStack() as stack:
        asked = _Asked(settings, nli, seed, stack)
        for judge, held in zip(chosen, sets, strict=True):
            figures = calibrate_judge(judge, held, asked.verdicts(judge, held), seed=seed)
            kept = save_calibration(settings.data, judge, asked.model(judge), held, seed, figures)
            found.append(kept)
    reports = [asdict(one) | {"believable": one.figures.believable, "line": one.figures.line} for one in found]
    if out:
        _write(out, reports)
    if as_json:
        print_json(reports)
        return
    click.echo("\n\n".join(map(_shown, found)))
    note(f"kept in {settings.data / FILE}, where reports find it")


class _Asked:
    """Who gives the verdicts: the backbone of the settings, or an NLI model. Loaded when first asked."""

    def __init__(self, settings: "Settings", nli: str | None, seed: int, stack: ExitStack) -> None:
        self._settings, self._nli, self._seed, self._stack = settings, nli, seed, stack
        self._llm: LLM | None = None

    def verdicts(self, judge: "Judge", labelled: "LabelledSet") -> "list[Verdict]":
        """On all labelled items; a bar on a terminal."""
        if self._nli:
            from localmem.evaluation.judging.inference import infer_verdicts
            from localmem.factory.parts import pair_model

            return infer_verdicts(pair_model(self._nli, self._settings.llm.device), labelled.items)
        from tqdm import tqdm

        from localmem.evaluation.judging import ask_judge

        total = judge.prompts * len(labelled.lines)
        with tqdm(total=total, desc=judge.name, unit="answer", disable=None) as bar:
            return ask_judge(self._backbone(), judge, labelled.items, seed=self._seed, track=bar.update)

    def model(self, judge: "Judge") -> "ModelIdentity":
        """What the calibration is of."""
        from localmem.evaluation.judging.calibration_store import model_identity, nli_identity

        return nli_identity(self._nli) if self._nli else model_identity(self._settings, judge)

    def _backbone(self) -> "LLM":
        if self._llm is None:
            from localmem import factory

            backbone = factory.backbone(self._settings, note)
            self._stack.callback(backbone.close)
            self._llm = backbone.llm
        return self._llm


def _chosen(names: str | None, labelled: Path | None, samples: int | None, nli: str | None) -> "list[Judge]":
    """The judges that are asked for. Raises BadInput for what does not go together."""
    from localmem.evaluation.judging import JUDGES, get_judge

    given = [name.strip() for name in names.split(",")] if names else ["entailment"] if nli else list(JUDGES)
    judges = [get_judge(name) for name in given]
    if labelled and len(judges) != 1:
        raise BadInput(f"{labelled} can be labelled for one judge only; give one --judge")
    if nli and given != ["entailment"]:
        raise BadInput(f"an NLI model says what entails what; leave --nli away for the judges {', '.join(given)}")
    if nli and samples:
        raise BadInput("an NLI model says the same each time; leave --samples away")
    return [judge.sampled(samples) for judge in judges] if samples else judges


def _write(out: Path, reports: object) -> None:
    write_json(out, reports, "choose another --out")


def _shown(kept: "CalibrationRecord") -> str:
    """One judge's figures for a person."""
    from tabulate import tabulate

    figures = kept.figures
    drawn = f", {kept.samples} samples" if kept.samples > 1 else ""
    lines = [
        f"{kept.judge} on {kept.model.name}{drawn}, {figures.items} items of {kept.labelled}",
        figures.line,
        *_counted(figures),
    ]
    if figures.kinds:
        heads = ["kind", "items", "agreed", "taken for right"][: 4 if figures.passed else 3]
        rows = [[kind, *held, _share(figures.passed.get(kind))][: len(heads)] for kind, held in figures.kinds.items()]
        lines.append(tabulate(rows, heads))
    if figures.spearman:
        scales = [
            [scale, f"{rho:.2f}", ", ".join(f"{label}: {mean:.1f}" for label, mean in figures.means[scale].items())]
            for scale, rho in figures.spearman.items()
        ]
        lines.append(tabulate(scales, ["scale", "Spearman", "mean by label"], disable_numparse=True))
    return "\n".join(lines)


def _counted(figures: "Calibration") -> list[str]:
    """What is said in one line each, where there is something to say."""
    lines = []
    if figures.accuracy:
        found = figures.accuracy
        lines.append(f"accuracy {found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]")
    if figures.flipped is not None:
        sides = ", ".join(f"{share:.0%} for reply {place}" for place, share in figures.favoured.items())
        lines.append(f"{figures.flipped:.0%} flip with the order" + (f" ({sides})" if sides else ""))
    if figures.unusable or figures.trimmed:
        lines.append(f"{figures.unusable} without a verdict, {figures.trimmed} on a prompt that was cut to fit")
    return lines


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
