"""`localmem eval`: how good the memory and its parts are. Each measurement has a file of its own."""

import click

from localmem.cli.eval.abstention import abstention
from localmem.cli.eval.calibrate import calibrate
from localmem.cli.eval.compression import compression
from localmem.cli.eval.judge import judge
from localmem.cli.eval.operations import operations
from localmem.cli.eval.report import report
from localmem.cli.eval.retrieval import retrieval
from localmem.cli.eval.run import run_
from localmem.cli.eval.segmentation import segmentation
from localmem.cli.eval.teafarm import teafarm
from localmem.cli.eval.text import text


@click.group(name="eval")
def eval_() -> None:
    """Evaluate the memory and its parts."""


eval_.add_command(run_)
eval_.add_command(judge)
eval_.add_command(report)
eval_.add_command(calibrate)
eval_.add_command(operations)
eval_.add_command(compression)
eval_.add_command(retrieval)
eval_.add_command(segmentation)
eval_.add_command(teafarm)
eval_.add_command(text)
eval_.add_command(abstention)
