"""`localmem serve`: the OpenAI-compatible server with memory. Knows the flags; the server does the rest."""

from pathlib import Path

import click

from localmem.cli.options import config_option, data_option, model_option, note, runtime_of, settings_of, system_option


@click.command()
@config_option
@click.option("--host", help="The address to listen on; any but loopback needs keys.", metavar="H")
@click.option("--port", type=click.IntRange(0, 65535), help="The port to listen on.", metavar="P")
@system_option
@model_option
@data_option
def serve(
    config: Path | None,
    host: str | None,
    port: int | None,
    system: str | None,
    model: str | None,
    data: Path | None,
) -> None:
    """Serve an OpenAI-compatible API with memory, until Ctrl-C.

    Without keys in the settings only this machine is served, and everything belongs to the default user.
    """
    settings = settings_of(config, data, None, system, model=model, server={"host": host, "port": port})
    try:
        from localmem.server.auth import check_binding
        from localmem.server.listen import serve as run
    except ModuleNotFoundError as error:
        from localmem.errors import MissingExtra

        raise MissingExtra(f"{error.name} is not installed; run `pip install 'localmem[serve]'`") from error
    check_binding(settings)
    with runtime_of(settings) as runtime:
        run(runtime, note)
