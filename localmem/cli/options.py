"""Options that commands share, and how they become settings. Imports nothing heavy at the top: help must be instant."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.runtime import Runtime

Option = Callable[[Callable[..., object]], Callable[..., object]]

config_option = click.option(
    "--config", type=click.Path(path_type=Path), help="A YAML file of settings.", metavar="FILE"
)
data_option = click.option("--data", type=click.Path(path_type=Path), help="The data directory.", metavar="DIR")
user_option = click.option("--user", help="Whose memory.", metavar="U")
system_option = click.option("--system", help="The memory system; `localmem systems` lists them.", metavar="S")
model_option = click.option("--model", help="The backbone's name; `localmem models list` shows them.", metavar="M")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


def common(*more: Option) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """--user, --system, --data, --config, and `more` after them."""

    options: tuple[Option, ...] = (config_option, data_option, system_option, user_option, *more)

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        for option in options:
            command = option(command)
        return command

    return decorate


class Moment(click.ParamType[datetime]):
    """A date or a time in ISO form; without a zone it is UTC, a bare date is its end when `end` is set."""

    name = "time"

    def __init__(self, *, end: bool = False) -> None:
        self._end = end

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time; write it like 2026-03-02 or 2026-03-02T18:05", param, ctx)
        if self._end and len(str(value)) == len("2026-03-02"):
            moment = moment.replace(hour=23, minute=59, second=59, microsecond=999999)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class DatasetFile(click.ParamType[tuple[str, Path]]):
    """NAME=FILE."""

    name = "dataset"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        if isinstance(value, tuple):
            return value
        name, _, path = str(value).partition("=")
        if not (name and path):
            self.fail(f"{value!r} is not NAME=FILE; write for example locomo=locomo10.json", param, ctx)
        return name, Path(path)


dataset_option = click.option(
    "--dataset",
    "datasets",
    type=DatasetFile(),
    multiple=True,
    required=True,
    help="Data set and its file. Repeatable.",
    metavar="NAME=FILE",
)


class Sizes(click.ParamType[tuple[int, ...]]):
    """Whole numbers with commas between them, such as 1e3,1e4."""

    name = "sizes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            sizes = tuple(int(float(size)) for size in str(value).split(","))
        except (ValueError, OverflowError):
            sizes = ()
        if not sizes or min(sizes) < 1:
            self.fail(f"{value!r} are no sizes; write them like 1e3,1e4", param, ctx)
        return sizes


def settings_of(
    config: Path | None, data: Path | None = None, user: str | None = None, system: str | None = None, **more: object
) -> "Settings":
    """Settings with the flags that were given over everything else."""
    from localmem.config import load_settings

    return load_settings(config, {"data": data, "user": user, "system": system, **more})


def runtime_of(settings: "Settings") -> "Runtime":
    """A runtime that tells the terminal of long steps."""
    from localmem.runtime import Runtime

    return Runtime(settings, progress=note)


def note(text: str) -> None:
    """A line for the person at the terminal, beside the results."""
    click.echo(text, err=True)


def print_json(document: object) -> None:
    """One JSON document on stdout; times in ISO form."""
    click.echo(json.dumps(document, ensure_ascii=False, indent=2, default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")
