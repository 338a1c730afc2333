"""The folders of weights on this machine: their paths, whether they are complete, and locks for changing them.

Compares with the sizes and checksums of the manifest. Does not use the network or load weights.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from filelock import FileLock
from tqdm import tqdm

from localmem.errors import BadInput, LocalmemError, ModelDamaged, ModelMissing
from localmem.resources import resource
from localmem.weights.manifest import (
    LOCAL_NAME,
    Entry,
    FileSum,
    Local,
    Manifest,
    Pin,
    ShippedReranker,
    models_dir,
)

if TYPE_CHECKING:
    Bar: TypeAlias = tqdm[NoReturn]

State = Literal["present", "absent", "damaged"]

# Below the models folder: what is being fetched or unpacked. A rename puts it in place once it is complete.
PARTIAL = ".partial"

_CHUNK = 1 << 20


def model_path(name: str) -> Path:
    """The folder of a model that is present and, judged by sizes, complete.

    Raises BadInput for an unknown name, ModelMissing or ModelDamaged with the command that repairs it.
    """
    model = Manifest.load().entry(name)
    folder = models_dir() / model.name
    problem = find_damage(model, folder, quick=True)
    if problem is None:
        return folder
    if model_state(model, folder) == "absent":
        raise ModelMissing(f"model {name} is not on this machine ({folder}): {repair_command(model)}")
    raise ModelDamaged(f"model {name} is damaged ({problem}): {repair_command(model)}")


def model_folder(name: str) -> Path:
    """The path if it is a folder, else the folder of the shipped part or the model of this name.

    Raises as `model_path` does.
    """
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else _find_shipped(Manifest.load().parts, name) or model_path(name)


def adapter_folder(name: str | Path) -> Path:
    """The path if it is a folder, else the folder of the imported adapter of this name.

    Any other path stays as it is: a server on another machine may have it. Raises BadInput for a model of another role,
    and otherwise as `model_path` does.
    """
    folder = Path(name).expanduser()
    model = Manifest.load().models.get(str(name))
    if folder.is_dir() or model is None:
        return folder
    if model.role != "adapter":
        raise BadInput(f"{name} is of the role {model.role}, not an adapter; `localmem models list` shows the adapters")
    return model_path(model.name)


def repair_command(model: Entry) -> str:
    """The command that repairs an absent or damaged model."""
    if model.source is None:
        return f"localmem models import DIR --name {model.name} --replace"
    return f"localmem models pull {model.name}"


def model_state(model: Entry, folder: Path) -> State:
    """Judged by presence and sizes."""
    if not folder.is_dir():
        return "absent"
    return "present" if find_damage(model, folder, quick=True) is None else "damaged"


def find_damage(model: Entry, folder: Path, *, quick: bool = False) -> str | None:
    """What is wrong with the model's folder, or None. `quick` compares sizes only; else every byte is hashed."""
    if not folder.is_dir():
        return "the folder is missing"
    if not model.files:  # copied there manually, before a pull could record checksums
        return None if any(folder.iterdir()) else "the folder is empty"
    problem = next(_wrong_sizes(folder, model.files), None)
    if problem or quick:
        return problem
    with bytes_bar(model.name, model.size or 0) as bar:
        for name, expected in model.files.items():
            actual = checksum(folder / name, bar)
            if actual != expected.sha256:
                return f"{name} has sha256 {actual[:12]}… instead of {expected.sha256[:12]}…"
    return None


def shipped_reranker(name: str) -> Path | None:
    """The folder of the shipped reranker of this name, None without one. Raises ModelDamaged for an incomplete one."""
    return _find_shipped(Manifest.load().rerankers, name)


def _find_shipped(shipped: Iterable[ShippedReranker], name: str) -> Path | None:
    for model in shipped:
        if model.name == name:
            folder = shipped_folder(model)
            if problem := next(_wrong_sizes(folder, model.files), None):
                raise ModelDamaged(f"the model in {folder} is damaged ({problem}): install localmem again")
            return folder
    return None


def shipped_folder(model: ShippedReranker) -> Path:
    """The folder of a shipped reranker or other part. Raises ModelDamaged where it is missing."""
    try:
        return resource(f"models/{model.parent}/{model.name}")
    except FileNotFoundError as error:
        raise ModelDamaged(f"{model.name} is not part of this installation: install it again") from error


def damaged_files(model: ShippedReranker) -> list[str]:
    """The files of a shipped reranker or other part whose size or checksum differs from the manifest."""
    folder = shipped_folder(model)
    return [
        name
        for name, expected in model.files.items()
        if next(_wrong_sizes(folder, {name: expected}), None) or checksum(folder / name) != expected.sha256
    ]


def _wrong_sizes(folder: Path, files: Mapping[str, FileSum]) -> Iterator[str]:
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif (size := path.stat().st_size) != expected.size:
            yield f"{name} has {size:,} bytes instead of {expected.size:,}"


def checksum(path: Path, bar: "Bar | None" = None) -> str:
    """The sha256 of a file, read in chunks."""
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            if bar is not None:
                bar.update(len(chunk))
    return digest.hexdigest()


def file_sums(folder: Path, title: str) -> dict[str, FileSum]:
    """Size and sha256 of every file below a folder, by relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    with bytes_bar(title, sum(path.stat().st_size for path in paths)) as bar:
        return {
            path.relative_to(folder).as_posix(): FileSum(size=path.stat().st_size, sha256=checksum(path, bar))
            for path in paths
        }


def bytes_bar(title: str, total: int) -> "Bar":
    """A progress bar for bytes on standard error, shown on a terminal only."""
    return tqdm(total=total, desc=title, unit="B", unit_scale=True, disable=None, leave=False)


def lock(directory: Path, name: str) -> FileLock:
    """A lock between processes for changing the weights of this name."""
    locks = directory / PARTIAL / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / f"{name}.lock")


def put_in_place(folder: Path, target: Path) -> None:
    """Renames a complete folder to `target`, in place of what is there."""
    for path in folder.rglob("*"):
        # Some writers make files readable by their owner only, but a models folder is often shared.
        path.chmod(0o755 if path.is_dir() else 0o644)
    # A folder cannot be renamed onto one with content, so the old one is moved away first. A crash in between leaves no
    # model at `target`, which the next pull repairs, but never half a model.
    old = folder.with_name("old")
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    folder.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def update_local(
    directory: Path, *, models: Mapping[str, Entry] | None = None, pins: Mapping[str, Pin] | None = None
) -> None:
    """Add models or pins to local.yaml, in place of those of the same name."""
    with lock(directory, LOCAL_NAME):
        local = Local.load(directory)
        Local(models={**local.models, **(models or {})}, pins={**local.pins, **(pins or {})}).save(directory)


def require_space(needed: int, free: int, directory: Path, error: type[LocalmemError]) -> None:
    """Raises `error` when `free` bytes are not enough."""
    if free < needed:
        raise error(f"{directory} has {format_size(free)} free and {format_size(needed)} are needed: free some space")


def format_size(size: int | None) -> str:
    """A number of bytes for people; `?` for None."""
    if size is None:
        return "?"
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:.0f} {unit}"
