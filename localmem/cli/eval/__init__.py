"""`localmem eval`: how good the memory and its parts are."""

import click

from localmem.cli.eval.export import export_answers
from localmem.cli.eval.field import table
from localmem.cli.eval.parts import compression, operations, retrieval, segmentation
from localmem.cli.eval.questions import questions
from localmem.cli.eval.rate import rate
from localmem.cli.eval.run import abstention, calibrate, judge, report, run_, scenarios, teafarm, text


@click.group(name="eval")
def eval_() -> None:
    """Evaluate the memory and its parts."""


for _command in (
    run_, judge, report, calibrate, operations, compression, retrieval, segmentation, scenarios, teafarm, text,
    abstention, export_answers, questions, rate, table,
):  # fmt: skip
    eval_.add_command(_command)
