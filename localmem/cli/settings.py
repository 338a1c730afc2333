"""`localmem settings`: every setting with its current value, its source and its description."""

import json
from shutil import get_terminal_size

import click

from localmem.cli.options import SettingsFlags, json_option, print_json, print_table, settings_options


@click.command()
@settings_options("user", "system", "model", "data_dir", "config")
@json_option
def settings(flags: SettingsFlags, as_json: bool) -> None:
    """List all settings and their sources.

    A setting comes from the first of these that sets it: a command's flag, an environment variable (LOCALMEM_SYSTEM,
    LOCALMEM_LLM__URL), the file of --config, your own settings file, the default. Your own file is
    ~/.config/localmem/settings.yaml ($XDG_CONFIG_HOME/localmem/settings.yaml if that is set), or the file that
    LOCALMEM_CONFIG names. Both files are YAML, for example:

    \b
        system: rsum
        llm: {url: "http://127.0.0.1:8000/v1"}
    """
    from localmem.config import list_settings

    rows = list_settings(flags.config, flags.values)
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    table = [[row.key, _text(row.value), row.source, row.description] for row in rows]
    widths = [None, 18, 18, max(24, min(60, get_terminal_size().columns - 70))]
    print_table(table, ["setting", "value", "source", "description"], maxcolwidths=widths, disable_numparse=True)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
