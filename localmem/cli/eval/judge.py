"""`localmem eval judge`: local judges give verdicts on the answers of a run; the report shows them with the rest."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import config_option, data_option, json_option, model_option, note, print_json, settings_of
from localmem.errors import BadInput
from localmem.experiments.runs import ANSWERS, FULL_HISTORY

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.judgements import JudgeSetup
    from localmem.evaluation.judging import Judge
    from localmem.llm.base import LLM


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--judge", "names", default="correct", show_default=True, help="Separated by commas.", metavar="NAME,NAME"
)
@click.option("--samples", type=click.IntRange(1), help="Answers a verdict; default: the judge's own.", metavar="N")
@click.option("--nli", help="Entailment by a trained NLI model: its name in the manifest, or a folder.", metavar="M")
@click.option("--against", default=FULL_HISTORY, show_default=True, help="Whom judges of two compare every system with.")
@click.option("--seed", type=int, default=0, show_default=True, help="For samples.")
@config_option
@data_option
@model_option
@json_option
def judge(
    folder: Path,
    names: str,
    samples: int | None,
    nli: str | None,
    against: str,
    seed: int,
    config: Path | None,
    data: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Judge the answers of a run; what was judged before is not judged again.

    --model is the judge's; it need not be the one that answered. How far it can be believed is `localmem eval
    calibrate`'s to say: run that first, or the report marks its verdicts.
    """
    from localmem.evaluation.answers import read_answers
    from localmem.evaluation.judgements import judge_all, open_judgements
    from localmem.evaluation.judging import get_judge

    judges = [get_judge(name.strip()) for name in names.split(",")]
    judges = [one.sampled(samples) for one in judges] if samples else judges
    if nli and [one.name for one in judges] != ["entailment"]:
        raise BadInput(f"an NLI model says what entails what; with --nli give --judge entailment, not {names}")
    settings, lines = settings_of(config, data, model=model), read_answers(folder / ANSWERS)
    given: dict[str, int] = {}
    with ExitStack() as stack:
        kept = stack.enter_context(open_judgements(folder))
        llm = None if nli else _backbone(settings, stack)
        for one in judges:
            bench = bench_of(one, settings, llm, seed) if llm else _nli_bench(one, settings, str(nli))
            note(f"{one.name}: {bench.calibration.line if bench.calibration else 'not calibrate_judge on this model'}")
            given[one.name] = judge_all(bench, lines, against, kept)
    if as_json:
        print_json(given)
    for name, count in given.items():
        note(f"{name}: {count} verdicts; look at them with `localmem eval report {folder}`")


def bench_of(judge: "Judge", settings: "Settings", llm: "LLM", seed: int = 0) -> "JudgeSetup":
    """A judge on the settings' backbone, with what is known of it."""
    from localmem.evaluation.judgements import JudgeSetup
    from localmem.evaluation.judging import ask_judge, find_calibration, model_identity

    model = model_identity(settings, judge)
    known = find_calibration(settings.data, judge, model)
    return JudgeSetup(judge, f"{model.name}@{model.checksum[:12]}", partial(ask_judge, llm, judge, seed=seed), known)


def _nli_bench(judge: "Judge", settings: "Settings", name: str) -> "JudgeSetup":
    """The entailment judge on a trained NLI model."""
    from localmem.evaluation.judgements import JudgeSetup
    from localmem.evaluation.judging import find_calibration
    from localmem.evaluation.judging.calibration_store import nli_identity
    from localmem.evaluation.judging.inference import infer_verdicts
    from localmem.factory.parts import pair_model

    model = nli_identity(name)
    known = find_calibration(settings.data, judge, model)
    ask = partial(infer_verdicts, pair_model(name, settings.llm.device))
    return JudgeSetup(judge, f"{model.name}@{model.checksum[:12]}", ask, known)


def _backbone(settings: "Settings", stack: ExitStack) -> "LLM":
    from localmem import factory

    backbone = factory.backbone(settings, note)
    stack.callback(backbone.close)
    return backbone.llm
