"""`localmem doctor`: a check of everything that the settings need."""

import sys
from dataclasses import asdict

import click

from localmem.cli.options import SettingsFlags, json_option, print_json, print_table, settings_options


@click.command()
@settings_options("data_dir", "config")
@json_option
def doctor(flags: SettingsFlags, as_json: bool) -> None:
    """Check installation, models, store and network.

    Exits with 1 if something that the settings need is missing or broken.
    """
    from localmem.runtime.diagnostics import check_all

    findings = check_all(flags.load())
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        rows = [[row.area, row.subject, row.state.replace("bad", "BAD"), row.detail] for row in findings]
        print_table(rows, (), tablefmt="plain")
    sys.exit(any(finding.state == "bad" for finding in findings))
