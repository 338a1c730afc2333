"""`localmem audit`: junk, duplicates and contradictions in memories. Parsing and printing; `runtime.audit` does it."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from localmem.cli.options import SettingsFlags, json_option, open_runtime, print_json, settings_options

if TYPE_CHECKING:
    from localmem.runtime.audit import Audit, BankAudit

_SHOWN = 100  # characters of a text


@click.command()
@settings_options("user", "system", "data_dir", "config")
@click.option("--fix", is_flag=True, help="Retire junk and duplicates in one batch that can be undone.")
@json_option
def audit(flags: SettingsFlags, fix: bool, as_json: bool) -> None:
    """Find junk and contradictions in memories.

    Lists prompts of clients, placeholders, loops, copies of prompts, names, numbers and dates that no source holds,
    questions, denials and greetings, duplicates, contradictions that are still live, units without a source turn, and
    vectors that nothing needs. All users and systems are audited unless --user or --system names one. --fix retires
    what is junk or a duplicate, and drops those vectors; the rest is for you to decide. Loads no model.

    Exits with 0 if there is nothing to do, 1 if something was found (or is left after --fix), 2 for wrong usage.
    """
    user, system, settings = flags.values["user"], flags.values["system"], flags.load()
    from tqdm import tqdm

    from localmem.config import system_options
    from localmem.runtime.audit import Auditor

    system_options(settings.system, {})  # an unknown system is an error, not a clean memory
    with open_runtime(settings) as runtime:
        report = Auditor(runtime.store, _is_machinery()).run(
            None if user is None else [str(user)],
            None if system is None else settings.system,
            datetime.now(UTC) if fix else None,
            partial(tqdm, desc="auditing", unit="memory", disable=None),
        )
    if as_json:
        print_json({**asdict(report), "counts": report.counts(), "clean": report.is_clean})
    else:
        click.echo("\n".join(_lines(report)))
    sys.exit(not report.is_clean)


def _is_machinery() -> Callable[[str], bool]:
    """How clients' prompts are recognised; without the server's packages, by nothing."""
    try:
        from localmem.server.client_tasks import is_task
    except ImportError:
        return lambda _text: False
    return is_task


def _lines(report: "Audit") -> Iterator[str]:
    for bank in report.banks:
        yield from _bank_lines(bank)
    counts = [f"{count} {problem}" for problem, count in report.counts().items()]
    if report.stale_vectors:
        counts.append(f"{report.stale_vectors} vectors that nothing needs ({report.dropped_vectors} dropped)")
    yield f"found: {', '.join(counts)}" if counts else "nothing found"


def _bank_lines(bank: "BankAudit") -> Iterator[str]:
    for finding in bank.findings:
        detail = f" ({finding.detail})" if finding.detail else ""
        text = " ".join(finding.text.split())[:_SHOWN]
        yield f"{bank.user}  {bank.system}  {finding.item}  {finding.problem}{detail}: {text}"
    if bank.refused:
        refused = ", ".join(f"{count} {reason}" for reason, count in sorted(bank.refused.items()))
        yield f"{bank.user}  {bank.system}: refused before they became memory: {refused}"
    if bank.cause:
        undo = f"localmem undo --user {bank.user} --system {bank.system} --batch {bank.cause}"
        yield f"{bank.user}  {bank.system}: fixed; `{undo}` takes that back"
