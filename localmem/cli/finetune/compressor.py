"""`localmem finetune compressor`: which words of a text are kept. Knows how it looks on a terminal."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.finetune.training_options import (
    base_folder,
    base_option,
    command_line,
    files_option,
    licence_option,
    plan_options,
    run_options,
    tell,
)
from localmem.cli.options import config_option, note, settings_of

if TYPE_CHECKING:
    from finetune.trainers.compressor import Extract
    from finetune.trainers.training import Plan


@click.command()
@base_option
@files_option("--train", "JSONL of text and kept, or of dialogue and summary (DialogSum).", required=True)
@files_option("--valid", "To stop early on; default: a fifth of the others.")
@click.option(
    "--label-with",
    help="A model that makes the labels, from the texts alone; default: the files' own.",
    metavar="MODEL",
)
@click.option("--limit", type=click.IntRange(2), help="The first so many texts only.")
@click.option(
    "--language", default="english", show_default=True, help="Of the stems that words are aligned by; or none."
)
@licence_option
@plan_options(epochs=10.0, batch=16, patience=3)
@config_option
@run_options
def compressor(
    base: str,
    train: tuple[Path, ...],
    valid: tuple[Path, ...],
    label_with: str | None,
    limit: int | None,
    language: str,
    licence: str,
    config: Path | None,
    plan: "Plan",
    out: Path,
    name: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """A classifier of tokens into drop and keep: memories lose the words that carry least before they are indexed.

    The labels come from summaries or extracts in the files, or from a local model that crosses words out.
    """
    from finetune.run_folder import register
    from finetune.trainers.compressor import Job
    from finetune.trainers.compressor import train as run

    with ExitStack() as stack:
        extract = _extractor(label_with, config, out, stack) if label_with else None
        job = Job(
            base_folder(base), train, valid, out, plan, extract, label_with, language, limit, licence, command_line()
        )
        trained = run(job, resume=resume, note=note)
    if name:
        register(out, name, job.licence, role="compressor")
    tell(trained, out, name, as_json=as_json)


def _extractor(model: str, config: Path | None, out: Path, stack: ExitStack) -> "Extract":
    from finetune.extractive_labels import Extractor
    from localmem import factory

    backbone = factory.backbone(settings_of(config, model=model), note)
    stack.callback(backbone.close)
    return Extractor(backbone.llm, out / "labels.jsonl", note)
