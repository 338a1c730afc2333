"""Where weights stand on this machine, and whether a model's folder is whole.

Knows the manifest's checksums; knows nothing of the network or of how a model is run.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from filelock import FileLock
from tqdm import tqdm

from localmem.errors import ModelDamaged, ModelMissing
from localmem.weights.manifest import Entry, FileSum, Manifest, models_dir

if TYPE_CHECKING:
    Bar: TypeAlias = tqdm[NoReturn]

State = Literal["present", "absent", "damaged"]

# What is being fetched or unpacked stands here until it is whole; a rename then puts it in place.
PARTIAL = ".partial"

_CHUNK = 1 << 20


def model_path(name: str, directory: Path | None = None) -> Path:
    """The folder of a model that is here and whole as far as sizes tell, ready to be loaded.

    Raises BadInput for an unknown name, ModelMissing or ModelDamaged with the command that mends it.
    """
    directory = directory or models_dir()
    model = Manifest.load(directory).entry(name)
    folder = directory / model.name
    problem = damage(model, folder, quick=True)
    if problem is None:
        return folder
    if state(model, folder) == "absent":
        raise ModelMissing(f"model {name} is not on this machine ({folder}): {cure(model)}")
    raise ModelDamaged(f"model {name} is damaged ({problem}): {cure(model)}")


def cure(model: Entry) -> str:
    """The words that tell a user how to mend an absent or damaged model."""
    if model.source is None:
        return f"localmem models import DIR --name {model.name} --replace"
    return f"localmem models pull {model.name}"


def state(model: Entry, folder: Path) -> State:
    """Whether the model is here, judged by presence and sizes."""
    if not folder.is_dir():
        return "absent"
    return "present" if damage(model, folder, quick=True) is None else "damaged"


def damage(model: Entry, folder: Path, *, quick: bool = False) -> str | None:
    """What is wrong with the model's folder, or None. `quick` compares sizes only; else every byte is hashed."""
    if not folder.is_dir():
        return "the folder is not there"
    if not model.files:
        # Put there by hand, before any pull could pin checksums.
        return None if any(folder.iterdir()) else "the folder is empty"
    wrong = next(_wrong_sizes(folder, model.files), None)
    if wrong or quick:
        return wrong
    return next(iter(wrong_sums(folder, model.files, model.name)), None)


def _wrong_sizes(folder: Path, files: dict[str, FileSum]) -> Iterator[str]:
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif (size := path.stat().st_size) != expected.size:
            yield f"{name} has {size:,} bytes instead of {expected.size:,}"


def wrong_sums(folder: Path, files: dict[str, FileSum], title: str) -> list[str]:
    """What is said of each file whose sha256 differs, with a progress bar on a terminal."""
    total = sum(file.size for file in files.values())
    wrong = []
    with bytes_bar(title, total) as bar:
        for name, expected in files.items():
            found = checksum(folder / name, bar)
            if found != expected.sha256:
                wrong.append(f"{name} has sha256 {found[:12]}… instead of {expected.sha256[:12]}…")
    return wrong


def checksum(path: Path, bar: "Bar | None" = None) -> str:
    """The sha256 of a file, read in pieces."""
    digest = sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
            if bar is not None:
                bar.update(len(piece))
    return digest.hexdigest()


def sums(folder: Path, title: str) -> dict[str, FileSum]:
    """Size and sha256 of every file below a folder, by relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    with bytes_bar(title, sum(path.stat().st_size for path in paths)) as bar:
        return {
            path.relative_to(folder).as_posix(): FileSum(size=path.stat().st_size, sha256=checksum(path, bar))
            for path in paths
        }


def bytes_bar(title: str, total: int) -> "Bar":
    """A progress bar counting bytes on standard error, shown on a terminal only."""
    return tqdm(total=total, desc=title, unit="B", unit_scale=True, disable=None, leave=False)


def lock(directory: Path, name: str) -> FileLock:
    """A lock, across processes, for whoever puts the weights of this name in place."""
    locks = directory / PARTIAL / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / f"{name}.lock")


def human(size: int | None) -> str:
    """A number of bytes as people say it."""
    if size is None:
        return "?"
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:.0f} {unit}"
