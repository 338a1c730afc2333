"""`localmem eval compression`: whether compressed keys are found better."""

from pathlib import Path

import click

from localmem.cli.options import DatasetFile, config_option, json_option, note, print_report, settings_of
from localmem.cli.recipes import recipe_options
from localmem.experiments.key_compression import KeyCompressionRecipe, measure_key_compression


@click.command()
@click.option("--dataset", type=DatasetFile(), required=True, help="Data set and its file.", metavar="NAME=FILE")
@recipe_options(KeyCompressionRecipe, flags=[("compressors", "compressor"), ("retrievers", "retriever"), "limit"])
@click.option("--out", type=click.Path(path_type=Path), help="Folder for report.json and recall.png.", metavar="DIR")
@config_option
@json_option
def compression(
    dataset: tuple[str, Path], recipe: KeyCompressionRecipe, out: Path | None, config: Path | None, as_json: bool
) -> None:
    """Measure search over compressed keys.

    Reports recall at each rate with every compressor and retriever, the paired differences from uncompressed keys and
    from random compression, and the cosines of questions to keys of related and unrelated units.
    """
    report = measure_key_compression(settings_of(config), recipe, *dataset, out=out, notify=note)
    print_report(report, as_json=as_json)
