"""Options that commands share, and how they become settings. Imports nothing heavy: help must be instant."""

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click

from localmem import network_guard
from localmem.cli.completion import complete_models, complete_systems, complete_users
from localmem.times.moments import read_moment

if TYPE_CHECKING:
    from tqdm import tqdm

    from localmem.config import Settings
    from localmem.reporting.sections import Report
    from localmem.runtime import Runtime
    from localmem.runtime.tracing import Tracing


Command = Callable[..., object]
Option = Callable[[Command], Command]

FOLDER = click.Path(path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_PATH = click.Path(path_type=Path)
_FILE_HELP = "Settings file. [default: ~/.config/localmem/settings.yaml]"
_DATA_HELP = "Data directory. [default: ~/.local/share/localmem]"
_USER_HELP = "User whose memory to use. [default: me]"
_SYSTEM_HELP = "Memory system (`localmem systems`). [default: evidence]"
_MODEL_HELP = "Backbone (`localmem models list`). [default: smollm2-135m-instruct]"
config_option = click.option("--config", type=_PATH, help=_FILE_HELP, metavar="FILE")
data_dir_option = click.option("--data-dir", type=_PATH, help=_DATA_HELP, metavar="DIR")
user_option = click.option("--user", help=_USER_HELP, metavar="NAME", shell_complete=complete_users)
system_option = click.option("--system", help=_SYSTEM_HELP, metavar="NAME", shell_complete=complete_systems)
model_option = click.option("--model", help=_MODEL_HELP, metavar="NAME", shell_complete=complete_models)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
age_option = click.option("--age", help="Encrypt the file for this public key of age.", metavar="RECIPIENT")
with_erased_option = click.option("--with-erased", is_flag=True, help="Also import sessions that were erased.")
identity_option = click.option(
    "--identity", type=click.Path(path_type=Path), help="Decrypt FILE with this identity file of age.", metavar="FILE"
)

_SETTINGS_OPTIONS: Mapping[str, Option] = {
    "config": config_option,
    "data_dir": data_dir_option,
    "user": user_option,
    "system": system_option,
    "model": model_option,
}


class SettingsFlags(NamedTuple):
    """The options of one call that become settings."""

    config: Path | None
    values: Mapping[str, object]

    def load(self, **more: object) -> "Settings":
        """The settings with these flags, and `more` flags (nested keys as in YAML), over everything else.

        Where they name no host, this process gives up its network, which it can before it starts any thread: call this
        before heavy imports.
        """
        settings = self.read(**more)
        if not _named_hosts(settings):
            network_guard.isolate()
        return settings

    def load_for(self, ray: str | None, **more: object) -> "Settings":
        """As `load`, and for a command that may work on the Ray cluster at this address."""
        return self._read(more, urlsplit(f"//{ray}").hostname or "") if ray else self.load(**more)

    def read(self, **more: object) -> "Settings":
        """As `load`, for a command that serves or asks other processes: it keeps this machine's loopback."""
        return self._read(more)

    def _read(self, more: Mapping[str, object], *others: str) -> "Settings":
        """`others` are hosts that the command may reach besides those of the settings."""
        from localmem.config import load_settings

        settings = load_settings(self.config, {**self.values, **more})
        hosts = [*_named_hosts(settings), *others]
        network_guard.allow(hosts)
        if all(map(network_guard.is_local, hosts)):
            network_guard.seal()
        return settings


def _named_hosts(settings: "Settings") -> list[str]:
    """The hosts of the backbone, the database and the collector of traces."""
    urls = (*settings.llm.urls, settings.database or "", settings.server.traces or "")
    return [host for url in urls if (host := urlsplit(url).hostname)]


def settings_options(*names: str) -> Option:
    """Add the named options (config, data_dir, user, system, model); the command receives them as `flags`."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_flags(*args: object, **options: object) -> object:
            values = {name: options.pop(name) for name in names}
            config, data = values.pop("config", None), values.pop("data_dir", None)
            flags = SettingsFlags(config if isinstance(config, Path) else None, {"data": data, **values})
            return command(*args, flags=flags, **options)

        decorated: Command = with_flags
        for name in reversed(names):
            decorated = _SETTINGS_OPTIONS[name](decorated)
        return decorated

    return decorate


class Moment(click.ParamType[datetime]):
    """A date or time in ISO format, in UTC unless it names a zone. With `end`, a date means the end of that day."""

    name = "time"

    def __init__(self, *, end: bool = False) -> None:
        self._end = end

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = read_moment(str(value), end=self._end)
        except ValueError:
            self.fail(f"{value!r} is not a time; write it like 2026-03-02 or 2026-03-02T18:05", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Period(click.ParamType[str]):
    """Days in ISO format: a year, a month, a day, or a range of these."""

    name = "period"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from localmem.errors import BadInput
        from localmem.times.periods import parse_period

        try:
            parse_period(str(value))
        except BadInput as error:
            self.fail(str(error), param, ctx)
        return str(value)


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


def files_by_name(datasets: Sequence[tuple[str, Path]]) -> dict[str, Path]:
    """The file of each data set. Raises UsageError for a name that occurs twice: its earlier file would not be read."""
    files = dict(datasets)
    if len(files) < len(datasets):
        name = next(name for name in files if sum(name == other for other, _ in datasets) > 1)
        raise click.UsageError(f"--dataset {name} occurs twice; give each name once, with one file")
    return files


def settings_of(
    config: Path | None, data: Path | None = None, user: str | None = None, system: str | None = None, **more: object
) -> "Settings":
    """Settings with these flags over everything else."""
    return SettingsFlags(config, {"data": data, "user": user, "system": system}).load(**more)


def open_runtime(settings: "Settings", tracing: "Tracing | None" = None) -> "Runtime":
    """A runtime that reports long steps on the terminal."""
    from localmem.runtime import Runtime

    return Runtime(settings, progress=note, wrap=tracing.wrap) if tracing else Runtime(settings, progress=note)


def note(text: str) -> None:
    """Print a line for the user on stderr; stdout is for results."""
    click.echo(text, err=True)


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 session", "2 sessions"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_json(document: object) -> None:
    """Print one JSON document on stdout; times in ISO format."""
    click.echo(json.dumps(document, ensure_ascii=False, indent=2, default=_to_json))


def print_table(
    rows: Sequence[Sequence[object] | Mapping[str, object]], headers: Sequence[str], **options: object
) -> None:
    """Print a table on stdout. `options` are tabulate's."""
    from tabulate import tabulate

    click.echo(tabulate(rows, headers, **options))  # type: ignore[arg-type]


def print_report(report: "Report", *, as_json: bool) -> None:
    """Print the figures of a report as JSON, or its tables and notes."""
    from localmem.reporting.sections import terminal

    if as_json:
        print_json(report.figures)
    else:
        click.echo("\n".join([terminal(report.tables), "", *report.notes]).rstrip())


def _to_json(value: object) -> object:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


@contextmanager
def interruptible(describe: Callable[[], str]) -> Iterator[None]:
    """Long work that saves as it goes: the first Ctrl-C prints what is saved, the second ends the process at once.

    After the first, the work ends in its own time, with what is under way.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # started where Ctrl-C is ignored
        yield
        return

    def stop(_signal: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # threads of a pool would hold up any other exit
        note(describe())
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def step_progress() -> "Iterator[Callable[[str, int, int], None]]":
    """A callback for long work that receives a step, how much of it is done, and its total: one bar for each step."""
    bars: dict[str, tqdm[Any]] = {}

    def show(step: str, completed: int, total: int) -> None:
        from tqdm import tqdm

        if step not in bars:
            bars[step] = tqdm(total=total, desc=step, disable=None)
        bars[step].update(completed - bars[step].n)

    try:
        yield show
    finally:
        for bar in bars.values():
            bar.close()
