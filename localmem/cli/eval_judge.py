"""`localmem eval judge`: local judges give verdicts on the answers of a run; the report shows them with the rest."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.eval_run import ANSWERS, FULL
from localmem.cli.options import config_option, data_option, json_option, model_option, note, print_json, settings_of

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.judgements import Bench
    from localmem.evaluation.judging import Judge
    from localmem.llm.base import LLM


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--judge", "names", default="correct", show_default=True, help="Separated by commas.", metavar="NAME,NAME"
)
@click.option("--samples", type=click.IntRange(1), help="Answers a verdict; default: the judge's own.", metavar="N")
@click.option("--against", default=FULL, show_default=True, help="Whom judges of two compare every system with.")
@click.option("--seed", type=int, default=0, show_default=True, help="For samples.")
@config_option
@data_option
@model_option
@json_option
def judge(
    folder: Path,
    names: str,
    samples: int | None,
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
    from localmem.evaluation.answers import lines_in
    from localmem.evaluation.judgements import judge_all, judgements_in
    from localmem.evaluation.judging import judge_named

    judges = [judge_named(name.strip()) for name in names.split(",")]
    judges = [one.sampled(samples) for one in judges] if samples else judges
    settings, lines = settings_of(config, data, model=model), lines_in(folder / ANSWERS)
    given: dict[str, int] = {}
    with ExitStack() as stack:
        kept = stack.enter_context(judgements_in(folder))
        llm = _backbone(settings, stack)
        for one in judges:
            bench = _bench(one, settings, llm, seed)
            note(f"{one.name}: {bench.calibration.line if bench.calibration else 'not calibrated on this model'}")
            given[one.name] = judge_all(bench, lines, against, kept)
    if as_json:
        print_json(given)
    for name, count in given.items():
        note(f"{name}: {count} verdicts; look at them with `localmem eval report {folder}`")


def _bench(judge: "Judge", settings: "Settings", llm: "LLM", seed: int) -> "Bench":
    from localmem.evaluation.judgements import Bench
    from localmem.evaluation.judging import calibration_of, judged, model_of

    model = model_of(settings, judge)
    known = calibration_of(settings.data, judge, model)
    return Bench(judge, f"{model.name}@{model.checksum[:12]}", partial(judged, llm, judge, seed=seed), known)


def _backbone(settings: "Settings", stack: ExitStack) -> "LLM":
    from localmem import build

    backbone = build.backbone(settings, note)
    stack.callback(backbone.close)
    return backbone.llm
