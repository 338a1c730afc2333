"""`localmem models`: the weights on this machine. Prints and asks; localmem.weights does the work.

`pull` is the only command of localmem that uses the network.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import json_option, note, print_json
from localmem.errors import LocalmemError, ModelDamaged, ModelMissing

if TYPE_CHECKING:
    from localmem.weights import Entry, MemoryPosition, Role
    from localmem.weights.manifest import Adapter

_ROLES = ("llm", "encoder", "reranker", "classifier", "compressor", "nli", "adapter")
_POSITIONS = ("system", "last")

_names = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@click.group()
def models() -> None:
    """The weights on this machine: list, pull, import, verify, bundle.

    They stand in models/weights of a checkout, else in the user's data folder; LOCALMEM_MODELS names another place.
    """


@models.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """Every model that has a name here, and whether it is present, absent or damaged (judged by sizes)."""
    from localmem.weights import Manifest, models_dir

    directory = models_dir()
    manifest = Manifest.load(directory)
    rows = [_row(entry, directory) for entry in manifest.models.values()] + [_along(one) for one in manifest.adapters]
    if as_json:
        print_json(rows)
        return
    from tabulate import tabulate

    from localmem.weights.folder import human

    table = [[row["name"], row["role"], human(_bytes(row["size"])), row["state"], row["licence"]] for row in rows]
    click.echo(tabulate(table, headers=["name", "role", "size", "state", "licence"], disable_numparse=True))
    note(f"in {directory}")


def _row(entry: "Entry", directory: Path) -> dict[str, object]:
    from localmem.weights.folder import state

    folder = directory / entry.name
    content = entry.model_dump(mode="json", exclude={"files", "approximate_size", "convert"}, exclude_none=True)
    return {**content, "size": entry.size, "state": state(entry, folder), "path": str(folder)}


def _along(adapter: "Adapter") -> dict[str, object]:
    """One that comes with localmem."""
    from localmem.weights.adapters import folder_of, wrong_files

    content = adapter.model_dump(mode="json", exclude={"files"})
    state = "damaged" if wrong_files(adapter) else "present"
    size = sum(held.size for held in adapter.files.values())
    return {**content, "role": "adapter", "size": size, "state": state, "path": str(folder_of(adapter))}


def _bytes(size: object) -> int | None:
    return size if isinstance(size, int) else None


@models.command()
@_names
def pull(names: tuple[str, ...]) -> None:
    """Fetch models from where the manifest says; `starters` means the two small ones that localmem starts with."""
    from localmem.weights.pull import pull as fetch

    with _one_line():
        folders = fetch(names, note)
    for folder in folders:
        click.echo(folder)


@models.command("import")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--name", help="What to call it; default: the folder's name.")
@click.option("--role", type=click.Choice(_ROLES), help="What it is for; default: what the folder says.")
@click.option("--licence", default="not stated", help="Shown in the list.")
@click.option("--memory-position", type=click.Choice(_POSITIONS), default="last", help="Where recalled memory stands.")
@click.option("--link", is_flag=True, help="Link to the folder instead of copying it.")
@click.option("--replace", is_flag=True, help="Take the place of a model imported under this name before.")
def import_(
    folder: Path,
    name: str | None,
    role: "Role | None",
    licence: str,
    memory_position: "MemoryPosition",
    link: bool,
    replace: bool,
) -> None:
    """Take in a folder of weights (the layout of transformers or sentence-transformers) under a name."""
    from localmem.weights.folder import human
    from localmem.weights.import_model import Wishes, take_in

    wishes = Wishes(name, role, licence, memory_position, link, replace)
    with _one_line():
        entry = take_in(folder, wishes)
    note(f"{entry.name}: {entry.role}, {human(entry.size)}, context {entry.context_length or 'unknown'}")
    click.echo(entry.name)


@models.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--quick", is_flag=True, help="Compare sizes only.")
@json_option
def verify(names: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Compare every file of the named models, or of all that are here, with its checksum."""
    from localmem.weights import Manifest, models_dir
    from localmem.weights.folder import damage

    directory = models_dir()
    manifest = Manifest.load(directory)
    chosen = manifest.expand(names) if names else [e for e in manifest.models.values() if (directory / e.name).exists()]
    with _one_line():
        problems = {entry.name: damage(entry, directory / entry.name, quick=quick) for entry in chosen}
    if as_json:
        print_json(problems)
    else:
        for entry in chosen:
            click.echo(f"{entry.name}: {problems[entry.name] or _good(entry, quick=quick)}")
    _fail_for(chosen, problems, directory)


def _good(entry: "Entry", *, quick: bool) -> str:
    if not entry.files:
        return "here; its checksums are unknown (it was put there by hand)"
    return f"{len(entry.files)} files, {'sizes' if quick else 'checksums'} right"


def _fail_for(chosen: "list[Entry]", problems: dict[str, str | None], directory: Path) -> None:
    from localmem.weights.folder import cure

    for entry in chosen:
        if problem := problems[entry.name]:
            kind = ModelDamaged if (directory / entry.name).is_dir() else ModelMissing
            raise kind(f"model {entry.name} is not whole ({problem}): {cure(entry)}")


@models.command()
@_names
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The tar to write.")
def bundle(names: tuple[str, ...], out: Path) -> None:
    """Write models into one checksummed tar, for a machine without a network. Prints the tar's sha256."""
    from localmem.weights.bundle import bundle as write

    with _one_line():
        digest = write(names, out, note)
    click.echo(f"{digest}  {out}")


@models.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
def unbundle(path: Path) -> None:
    """Put the models of a bundle in place, once all its checksums are found right."""
    from localmem.weights.bundle import unbundle as read

    with _one_line():
        for name in read(path, note):
            click.echo(name)


@contextmanager
def _one_line() -> Iterator[None]:
    """A full disk, a folder that may not be written: one line instead of a traceback."""
    try:
        yield
    except OSError as error:
        where = error.filename or "the models folder"
        raise LocalmemError(
            f"{where}: {error.strerror or error}: make room or allow it, then run this again"
        ) from error
