"""`localmem reindex`: the change to another encoder. Knows how it looks on a terminal; the runtime does it."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from localmem.cli.options import config_option, data_option, json_option, print_json, runtime_of, settings_of


@click.command()
@config_option
@data_option
@json_option
def reindex(config: Path | None, data: Path | None, as_json: bool) -> None:
    """Encode all users' memory with the encoder that the settings name, then change over to it.

    Interrupted, it goes on where it was. Until the end the old encoder goes on working. A server that runs meanwhile is
    refused from then on: it says so when it next needs a vector, closed sessions wait, and nothing said is lost; start
    it again with the new settings.
    """
    from tqdm import tqdm

    settings = settings_of(config, data)
    with runtime_of(settings) as runtime:
        done = runtime.reindex(partial(tqdm, desc="encoding", unit="batch", disable=None))
    if as_json:
        print_json(asdict(done))
    else:
        click.echo(
            f"{done.keys} keys are kept with {done.encoder}: {done.encoded} were encoded now, "
            f"{done.dropped} vectors of other encoders are gone"
        )
