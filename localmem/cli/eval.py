"""`localmem eval`: how good the memory and its parts are. Knows how results look, not how they come about."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.eval_retrieval import retrieval
from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localmem.llm.base import LLM
    from localmem.text.boundaries import Labelled
    from localmem.text.reflect import Reflector
    from localmem.text.rubric import Rubric


@click.group(name="eval")
def eval_() -> None:
    """Measure the memory and its parts."""


eval_.add_command(retrieval)


@eval_.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Labelled dialogues: TIAGE or SuperDialSeg JSONL, DialSeg711 JSON.",
    metavar="FILE",
)
@click.option("--rubric", type=click.Path(path_type=Path), help="A rubric that joins the prompt.", metavar="FILE")
@click.option("--limit", type=click.IntRange(1), help="The first so many dialogues only.")
@click.option("--reflect", is_flag=True, help="Learn a rubric from the worst dialogues; needs --out.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the learned rubric goes, YAML.", metavar="FILE")
@click.option("--hard", type=click.IntRange(1), default=100, show_default=True, help="How many worst dialogues.")
@click.option("--batches", type=click.IntRange(1), default=10, show_default=True, help="In how many mini-batches.")
@click.option("--items", type=click.IntRange(1), default=10, show_default=True, help="Rubric items at most.")
@click.option("--examples", type=click.IntRange(0), default=2, show_default=True, help="Examples in the rubric.")
@config_option
@model_option
@json_option
def segmentation(
    data: Path,
    rubric: Path | None,
    limit: int | None,
    reflect: bool,
    out: Path | None,
    hard: int,
    batches: int,
    items: int,
    examples: int,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """How far the backbone's topical segments are from those that people marked (WindowDiff: 0 is best).

    With --reflect the backbone then looks at the dialogues it got most wrong and writes a rubric, which SeCom takes as
    its option `rubric`.
    """
    if reflect != (out is not None):
        raise click.UsageError("--reflect and --out go together: the learned rubric needs a file to go to")
    from localmem import build
    from localmem.text.boundaries import read_labelled
    from localmem.text.reflect import Reflector
    from localmem.text.rubric import Rubric

    dialogues = read_labelled(data)[:limit]
    guidance = Rubric.load(rubric) if rubric else None
    backbone = build.backbone(settings_of(config, model=model), note)
    try:
        reflector = Reflector(backbone.llm, hard=hard, batches=batches, items=items, examples=examples)
        report = _measured(backbone.llm, dialogues, guidance, reflector, out)
    finally:
        backbone.close()
    _show({"data": data.name, "model": backbone.llm.name, **report}, as_json)


def _measured(
    llm: "LLM", dialogues: "Sequence[Labelled]", guidance: "Rubric | None", reflector: "Reflector", out: Path | None
) -> dict[str, object]:
    """What was found, by name; with `out` a rubric is learned and written there."""
    from localmem.text.reflect import judge
    from localmem.text.segment import LLMSegmenter

    segmenter = LLMSegmenter(llm, rubric=guidance)
    judged = judge(segmenter, dialogues, _progress)
    report: dict[str, object] = {
        "dialogues": len(judged),
        "window_diff": sum(one.error for one in judged) / max(1, len(judged)),
        "fallbacks": segmenter.fallbacks.total(),
        "repairs": segmenter.repairs.total(),
    }
    if out is None:
        return report
    learned = reflector.learn(judged, _progress)
    learned.save(out)
    unused = reflector.fallbacks.total()
    return report | {"rubric": str(out), "unused_answers": unused, "items": list(learned.items)}


def _show(report: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    for name, value in report.items():
        if isinstance(value, list):
            click.echo("\n".join([f"{name}:", *(f"  - {item}" for item in value)]))
        else:
            click.echo(f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value}")


def _progress(step: str, done: int, of: int) -> None:
    """A line that is written over on a terminal; nothing in a pipe."""
    if sys.stderr.isatty():
        click.echo(f"\r{step} {done}/{of}", nl=done == of, err=True)
