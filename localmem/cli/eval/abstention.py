"""`localmem eval abstention`: does the chatbot admit that it does not know?"""

import click

from localmem.cli.options import SettingsFlags, json_option, note, print_json, settings_options


@click.command()
@settings_options("config", "model", "system")
@click.option("--plain", is_flag=True, help="Repeat without the adapters that localmem ships.")
@json_option
def abstention(flags: SettingsFlags, plain: bool, as_json: bool) -> None:
    """Ask what a conversation does not answer.

    The questions are about shipped conversations. To those without an answer the right reply says that it does not
    know; to the others that would be a false abstention. The rule for what counts as saying so is RULE in
    localmem/experiments/demo.py.
    """
    from localmem.evaluation import DATA
    from localmem.experiments.demo import measure_abstention, read_cases

    cases = read_cases(DATA / "abstention" / "questions.yaml")
    report = measure_abstention(flags.load(), cases, plain=plain, notify=note)
    if as_json:
        print_json(report)
    else:
        from tabulate import tabulate

        click.echo(tabulate(report["rows"], headers="keys", floatfmt=".2f"))
