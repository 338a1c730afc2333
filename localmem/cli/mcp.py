"""`localmem mcp`: the memory as an MCP server on standard input and output, for clients that start it themselves."""

from datetime import UTC, datetime

import click

from localmem.cli.options import SettingsFlags, open_runtime, settings_options


@click.command()
@settings_options("user", "system", "data_dir", "config")
def mcp(flags: SettingsFlags) -> None:
    """Serve the memory to an MCP client on stdio.

    A client such as an editor starts this command itself. It offers tools to remember, recall, list, correct and forget
    memories of one user, and resources to read memories and sessions. `localmem serve` offers the same at /mcp.
    """
    settings = flags.load()
    try:
        from localmem.server.mcp_tools import current_user, new_server
        from localmem.server.session_manager import SessionManager
    except ModuleNotFoundError as error:
        from localmem.errors import MissingExtra

        raise MissingExtra(f"{error.name} is not installed; run `pip install 'localmem[mcp]'`") from error
    from localmem.times.zones import in_zone

    with open_runtime(settings) as runtime:
        current_user.set(settings.user)
        zone = settings.chat.zone
        server = new_server(runtime, SessionManager(runtime), lambda: in_zone(datetime.now(UTC), zone), lambda: zone)
        server.run("stdio")
