"""`localmem demo`: replies with and without memory, side by side."""

from typing import TYPE_CHECKING

import click

from localmem.cli.options import SettingsFlags, json_option, note, print_json, print_table, settings_options

if TYPE_CHECKING:
    from localmem.experiments.demo import DemoReport


@click.command()
@settings_options("system", "model", "config")
@json_option
def demo(flags: SettingsFlags, as_json: bool) -> None:
    """Show replies with and without memory.

    Reads a shipped conversation of three sessions into a temporary memory and asks the model 20 questions about it.
    """
    from localmem.experiments.demo import run_demo

    report = run_demo(flags.config, flags.values, note)
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        _print(report)


def _print(report: "DemoReport") -> None:
    opening = report.opening
    click.echo(f"\nA new day. The user says: {opening.question}\n")
    click.echo(f"Recalled:\n{opening.with_memory.recalled}\n")
    click.echo(f"{report.model} with memory ({report.system}):\n  {opening.with_memory.answer}\n")
    click.echo(f"{report.model} without memory:\n  {opening.without_memory.answer}\n")
    rows = [
        ["yes" if pair.with_memory.right else "no", pair.question, pair.with_memory.answer, pair.without_memory.answer]
        for pair in report.questions
    ]
    print_table(rows, ["right", "question", "with memory", "without"], maxcolwidths=[None, 36, 38, 36])
    with_memory, without_memory = report.count_right()
    click.echo(f"\nright with memory:    {with_memory} of {len(rows)}")
    click.echo(f"right without memory: {without_memory} of {len(rows)}")
