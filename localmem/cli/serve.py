"""`localmem serve`: the OpenAI-compatible server with memory."""

import click

from localmem.cli.options import SettingsFlags, note, open_runtime, settings_options


@click.command()
@click.option("--host", help="Address to listen on; others than loopback need keys.", metavar="HOST")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on.", metavar="PORT")
@settings_options("system", "model", "data_dir", "config")
def serve(host: str | None, port: int | None, flags: SettingsFlags) -> None:
    """Serve an OpenAI-compatible API with memory.

    Runs until Ctrl-C. Without keys in the settings only this machine is served, and everything belongs to the default
    user.

    A request's header X-Localmem says what memory does with it: `write` (the default) recalls and stores, `read`
    recalls and stores nothing, `off` does neither. "store": false in the body means `read`. What clients send on their
    own account, such as requests for a title, is answered as with `off`.
    """
    settings = flags.load(server={"host": host, "port": port})
    try:
        from localmem.server.auth import check_binding
        from localmem.server.listen import serve as run
    except ModuleNotFoundError as error:
        from localmem.errors import MissingExtra

        raise MissingExtra(f"{error.name} is not installed; run `pip install 'localmem[serve]'`") from error
    check_binding(settings)
    with open_runtime(settings) as runtime:
        run(runtime, note)
