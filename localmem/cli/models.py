"""`localmem models`: the weights on this machine. Only parsing and output; `localmem.weights` does the work.

`pull` and `bundle --program` are the only commands of localmem that use the network.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem import network_guard
from localmem.cli.options import json_option, note, print_json, print_table
from localmem.errors import LocalmemError, ModelDamaged, ModelMissing

if TYPE_CHECKING:
    from localmem.weights import Entry, MemoryPosition, Role
    from localmem.weights.manifest import ShippedReranker

_ROLES = ("llm", "encoder", "reranker", "classifier", "compressor", "nli", "adapter")
_POSITIONS = ("system", "last")

_names = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@click.group()
def models() -> None:
    """List, pull, import, verify and bundle models.

    Models are in models/weights of a checkout, else in the user's data folder, or in the folder that LOCALMEM_MODELS
    names.
    """


@models.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """List all known models and their state.

    The state (present, absent or damaged) is judged by file sizes.
    """
    from localmem.weights import Manifest, models_dir
    from localmem.weights.folder import format_size

    directory = models_dir()
    manifest = Manifest.load(directory)
    rows = [_model_row(entry, directory) for entry in manifest.models.values()]
    rows += [_shipped_row(reranker, "reranker") for reranker in manifest.rerankers]
    rows += [_shipped_row(part, part.role) for part in manifest.parts]
    if as_json:
        print_json(rows)
        return
    columns = ("name", "role", "size", "state", "licence")
    sizes = [format_size(row["size"] if isinstance(row["size"], int) else None) for row in rows]
    table = [[{**row, "size": size}[column] for column in columns] for row, size in zip(rows, sizes, strict=True)]
    print_table(table, columns, disable_numparse=True)
    note(f"in {directory}")


def _model_row(entry: "Entry", directory: Path) -> dict[str, object]:
    from localmem.weights.folder import model_state

    folder = directory / entry.name
    content = entry.model_dump(mode="json", exclude={"files", "approximate_size", "convert"}, exclude_none=True)
    return {**content, "size": entry.size, "state": model_state(entry, folder), "path": str(folder)}


def _shipped_row(model: "ShippedReranker", role: str) -> dict[str, object]:
    """The row of a reranker or other part that is shipped with localmem."""
    from localmem.weights.folder import damaged_files, shipped_folder

    content = model.model_dump(mode="json", exclude={"files"})
    state = "damaged" if damaged_files(model) else "present"
    size = sum(file.size for file in model.files.values())
    return {**content, "role": role, "size": size, "state": state, "path": str(shipped_folder(model))}


@models.command()
@_names
def pull(names: tuple[str, ...]) -> None:
    """Download models.

    The manifest says from where. `starters` stands for the three small models that localmem starts with.
    """
    from localmem.weights.pull import pull as download

    network_guard.open_network()
    with _errors_in_one_line():
        folders = download(names, note)
    for folder in folders:
        click.echo(folder)


@models.command("import")
@click.argument("source", type=click.Path(path_type=Path), metavar="DIR|FILE.gguf")
@click.option("--name", help="Name of the model (default: the folder's or file's name).", metavar="NAME")
@click.option("--role", type=click.Choice(_ROLES), help="Role of the model (default: as the folder says).")
@click.option("--licence", default="not stated", help="Licence shown in the list.", metavar="TEXT")
@click.option("--memory-position", type=click.Choice(_POSITIONS), default="last", help="Position of recalled memory.")
@click.option("--link", is_flag=True, help="Link to the folder instead of copying it.")
@click.option("--replace", is_flag=True, help="Overwrite an existing model of this name.")
def import_(
    source: Path,
    name: str | None,
    role: "Role | None",
    licence: str,
    memory_position: "MemoryPosition",
    link: bool,
    replace: bool,
) -> None:
    """Import a folder of weights, or a GGUF file.

    DIR has the layout of transformers or sentence-transformers. FILE.gguf, a Qwen2 model or a Llama model with the
    tokenizer of SmolLM2, is converted to one; serve other GGUF files with llama.cpp or Ollama behind llm.url.
    """
    from localmem.weights.folder import format_size
    from localmem.weights.offline import ImportOptions, import_model

    options = ImportOptions(name, role, licence, memory_position, link, replace)
    with _errors_in_one_line():
        entry = import_model(source, options)
    note(f"{entry.name}: {entry.role}, {format_size(entry.size)}, context {entry.context_length or 'unknown'}")
    click.echo(entry.name)


@models.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--quick", is_flag=True, help="Compare sizes only.")
@json_option
def verify(names: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Compare files with their checksums.

    Checks the named models, or all that are on this machine.
    """
    from localmem.weights import Manifest, models_dir
    from localmem.weights.folder import find_damage

    directory = models_dir()
    manifest = Manifest.load(directory)
    present = [entry for entry in manifest.models.values() if (directory / entry.name).exists()]
    selected = manifest.expand(names) if names else present
    with _errors_in_one_line():
        problems = {entry.name: find_damage(entry, directory / entry.name, quick=quick) for entry in selected}
    if as_json:
        print_json(problems)
    else:
        for entry in selected:
            click.echo(f"{entry.name}: {problems[entry.name] or _success(entry, quick=quick)}")
    _raise_for_damage(selected, problems, directory)


def _success(entry: "Entry", *, quick: bool) -> str:
    if not entry.files:
        return "present; its checksums are unknown (it was copied by hand)"
    return f"{len(entry.files)} files, all {'sizes' if quick else 'checksums'} match"


def _raise_for_damage(entries: "list[Entry]", problems: dict[str, str | None], directory: Path) -> None:
    from localmem.weights.folder import repair_command

    for entry in entries:
        if problem := problems[entry.name]:
            kind = ModelDamaged if (directory / entry.name).is_dir() else ModelMissing
            raise kind(f"model {entry.name} is incomplete ({problem}): {repair_command(entry)}")


@models.command()
@_names
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Tar file to write.")
@click.option("--program", is_flag=True, help="Add localmem, its packages and an install script.")
def bundle(names: tuple[str, ...], out: Path, program: bool) -> None:
    """Write models into one checksummed tar.

    For a machine without a network: `localmem models unbundle` installs it. Prints the tar's SHA-256.

    With --program the tar also holds localmem and the wheels of all its packages, which pip fetches, and is installed
    by `tar -xf FILE && sh localmem-offline/install FOLDER`, on a machine with the same Python.
    """
    if program:
        from localmem.weights.air_gap import bundle_program as write

        network_guard.open_network()
    else:
        from localmem.weights.offline import bundle as write

    with _errors_in_one_line():
        digest = write(names, out, note)
    click.echo(f"{digest}  {out}")


@models.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
def unbundle(path: Path) -> None:
    """Install the models of a bundle.

    Nothing is installed unless all checksums match.
    """
    from localmem.weights.offline import unbundle as install

    with _errors_in_one_line():
        for name in install(path, note):
            click.echo(name)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Turn an OSError (a full disk, a folder without permission) into one line."""
    try:
        yield
    except OSError as error:
        path = error.filename or "the models folder"
        raise LocalmemError(
            f"{path}: {error.strerror or error}: free space or fix the permissions, then run this again"
        ) from error
