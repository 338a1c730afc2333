"""Programs of one job, as `python -m finetune.X ARGUMENTS`: what is wrong with an argument or a file is one line.

Knows no job.
"""

from collections.abc import Callable
from pathlib import Path

import click

from localmem.errors import LocalmemError

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PLACE = click.Path(path_type=Path)


def run_program(job: Callable[..., None], *arguments: click.Argument) -> None:
    """Calls the job with the command line's arguments, by their names. Exits 2 where they, or a file, are wrong."""

    def work(**given: object) -> None:
        try:
            job(**given)
        except LocalmemError as error:
            raise click.UsageError(str(error)) from error
        except OSError as error:
            raise click.UsageError(f"cannot write {error.filename} ({error.strerror}); choose another place") from error

    click.Command(None, callback=work, params=list(arguments), help=job.__doc__)()
