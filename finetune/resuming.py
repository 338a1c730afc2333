"""What a training began with: its settings, data, base model and chat template, compared when it is resumed.

A run that goes on with other data ends with weights that belong to neither; so each difference is named and refused.
Does not depend on any task.
"""

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel

from localmem.errors import BadInput
from localmem.files import read_json, write_json
from localmem.reporting.provenance import list_differences

FILE = "begin.json"
_HEAD = 1 << 20  # bytes of each file of weights that are compared, besides its size


def compare_beginning(
    folder: Path, recipe: BaseModel, base: Path | None, template: str, data: Sequence[Path] = ()
) -> None:
    """Compare a training that goes on with what `folder`, for example that of its checkpoints, says that it began with.

    `data` are files that are not in the recipe. Raises BadInput with each setting and each checksum (of files, base
    model or chat template) that differs. A run of an earlier version recorded nothing and is not compared.
    """
    path = folder / FILE
    if not path.exists():
        return
    previous, current = read_json(path, dict[str, object]), _describe(recipe, base, template, data)
    if changes := list_differences(previous, current):
        raise BadInput(
            f"{folder} began with other settings: {'; '.join(changes)}; use the earlier ones, or choose another --out"
        )


def record_beginning(
    folder: Path, recipe: BaseModel, base: Path | None, template: str, data: Sequence[Path] = ()
) -> None:
    """Write what a training begins with into `folder`; of several processes the first does."""
    if int(os.environ.get("RANK", "0")) == 0:
        write_json(folder / FILE, _describe(recipe, base, template, data), "choose another --out")


def _describe(recipe: BaseModel, base: Path | None, template: str, data: Sequence[Path]) -> dict[str, object]:
    values: dict[str, object] = {"chat template": template, "base model": _weights(base) if base else ""}
    if data:
        values["data"] = _content(data)
    for name, value in recipe:
        paths = [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Path)]
        if paths:
            values[f"data of {name}"] = _content(paths)
        elif name != "licence":
            values[name] = recipe.model_dump(mode="json", include={name})[name]
    return values


def _content(paths: Sequence[Path]) -> str:
    digest = sha256()
    for path in paths:
        for file in _files(path):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _weights(folder: Path) -> str:
    """Of the configuration, and of each file of weights its name, size and beginning: a whole one may have 20 GB."""
    digest = sha256()
    for file in _files(folder):
        if file.suffix in (".safetensors", ".bin", ".gguf") or file.name == "config.json":
            with file.open("rb") as stream:
                digest.update(f"{file.name} {file.stat().st_size} ".encode() + stream.read(_HEAD))
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
