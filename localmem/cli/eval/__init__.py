"""`localmem eval`: how good the memory and its parts are."""

import click

from localmem.cli.eval.abstention import abstention
from localmem.cli.eval.judges import calibrate, judge
from localmem.cli.eval.parts import compression, operations, retrieval, segmentation
from localmem.cli.eval.run import report, run_
from localmem.cli.eval.teafarm import teafarm
from localmem.cli.eval.text import text


@click.group(name="eval")
def eval_() -> None:
    """Evaluate the memory and its parts."""


for _command in (
    run_, judge, report, calibrate, operations, compression, retrieval, segmentation, teafarm, text, abstention,
):  # fmt: skip
    eval_.add_command(_command)
