"""`localmem eval text`: replies in a file against references."""

from pathlib import Path

import click

from localmem.cli.options import DatasetFile, SettingsFlags, json_option, print_json, settings_options
from localmem.cli.recipes import recipe_options
from localmem.evaluation.file_scoring import (
    ScoringModels,
    TextRecipe,
    read_baseline_replies,
    read_replies,
    score_replies,
)
from localmem.files import write_jsonl


@click.command()
@click.option("--predictions", type=click.Path(path_type=Path), help="JSONL of predictions.", metavar="FILE")
@click.option("--dataset", type=DatasetFile(), help="Score the replies shipped with msc_cc.", metavar="NAME=FILE")
@recipe_options(TextRecipe, flags=[("metrics", "metric"), "adapter"])
@click.option("--out", type=click.Path(path_type=Path), help="JSONL file for each reply's scores.", metavar="FILE")
@settings_options("config", "model")
@json_option
def text(
    predictions: Path | None,
    dataset: tuple[str, Path] | None,
    recipe: TextRecipe,
    out: Path | None,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Score replies against references.

    A line of --predictions has `prediction` and `reference` (or `references`), optionally `id` and `prompt`. BLEU is
    from 0 to 100, all others but perplexity from 0 to 1. MAUVE takes its vectors from the backbone; perplexity is that
    of the reference under the backbone.
    """
    if (predictions is None) == (dataset is None) or (dataset and dataset[0] != "msc_cc"):
        raise click.UsageError("give either --predictions FILE or --dataset msc_cc=FILE")
    replies = read_baseline_replies(dataset[1]) if dataset else read_replies(predictions or Path())
    models = ScoringModels(flags.load(), recipe)
    metrics = tuple(dict.fromkeys(recipe.metrics))
    scores = score_replies(replies, metrics, models=models, stem=recipe.stem)
    if out is not None:
        rows = ({name: values[index] for name, values in scores.each.items()} for index in range(len(replies)))
        lines = ({"id": reply.id, **row} for reply, row in zip(replies, rows, strict=True))
        write_jsonl(out, lines, "choose another --out")
    if as_json:
        print_json({"replies": len(replies), **models.names, "measures": dict(scores.overall)})
        return
    from tabulate import tabulate

    click.echo(", ".join([f"{len(replies)} replies", *(f"{part} {name}" for part, name in models.names.items())]))
    click.echo(tabulate(scores.overall.items(), ["metric", "value"], floatfmt=".4f"))
