"""Carries models to a machine without a network: a plain tar with a checksum of everything in it.

    localmem-models/SHA256SUMS       readable by sha256sum -c
    localmem-models/manifest.yaml    what each model is
    localmem-models/NAME/...         its files

Nothing of a bundle is put in place before all of it was read and found right. A bundle is judged by its own checksums
and, for models that the shipped manifest has checksums of, by those as well. Uses no network.
"""

import io
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp

import yaml
from pydantic import ValidationError

from localmem.errors import BadInput, ModelDamaged, ModelMissing
from localmem.weights.folder import PARTIAL, bytes_bar, checksum, cure, damage, human, lock, sums
from localmem.weights.manifest import Entry, FileSum, HubSource, Local, Manifest, Pin, models_dir
from localmem.weights.pull import put_in_place

Say = Callable[[str], None]

_TOP = "localmem-models"
_SUMS = "SHA256SUMS"
_MANIFEST = "manifest.yaml"


def bundle(names: Sequence[str], out: Path, say: Say, directory: Path | None = None) -> str:
    """Writes the named models (or groups) into the tar `out`; returns its sha256.

    Raises ModelMissing or ModelDamaged when one of them is not here and whole.
    """
    directory = directory or models_dir()
    models = [_whole(model, directory) for model in Manifest.load(directory).expand(names)]
    if not models:
        raise BadInput("nothing to bundle: name a model or a group")
    manifest = yaml.safe_dump([_entry(model) for model in models], sort_keys=False, allow_unicode=True).encode()
    listed = {_MANIFEST: sha256(manifest).hexdigest()}
    listed |= {f"{model.name}/{name}": file.sha256 for model in models for name, file in model.files.items()}
    draft = out.with_name(out.name + ".part")
    try:
        with tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as tar:
            _add_bytes(tar, _SUMS, "".join(f"{digest}  {name}\n" for name, digest in listed.items()).encode())
            _add_bytes(tar, _MANIFEST, manifest)
            for model in models:
                _add_model(tar, model, directory)
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    say(f"{out}: {len(models)} models, {human(out.stat().st_size)}")
    return checksum(out)


def _whole(model: Entry, directory: Path) -> Entry:
    """The model with checksums of every file, compared with what stands on disk."""
    folder = directory / model.name
    problem = damage(model, folder)
    if problem is not None:
        kind = ModelDamaged if folder.is_dir() else ModelMissing
        raise kind(f"model {model.name} cannot be bundled ({problem}): {cure(model)}")
    return model if model.files else model.model_copy(update={"files": sums(folder, model.name)})


def _entry(model: Entry) -> object:
    return model.model_dump(mode="json", exclude_defaults=True)


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(f"{_TOP}/{name}")
    info.size = len(content)
    info.mode = 0o644
    tar.addfile(info, io.BytesIO(content))


def _add_model(tar: tarfile.TarFile, model: Entry, directory: Path) -> None:
    with bytes_bar(model.name, model.size or 0) as bar:
        for name, file in model.files.items():
            info = tarfile.TarInfo(f"{_TOP}/{model.name}/{name}")
            info.size = file.size
            info.mode = 0o644
            with (directory / model.name / name).open("rb") as content:
                tar.addfile(info, content)
            bar.update(file.size)


def unbundle(path: Path, say: Say, directory: Path | None = None) -> list[str]:
    """Puts the models of a bundle in place, after all its checksums were compared; returns their names.

    Raises BadInput for a file that is not a bundle, or not a whole one, or that holds anything it does not list.
    """
    directory = directory or models_dir()
    partial = directory / PARTIAL
    partial.mkdir(parents=True, exist_ok=True)
    _require_space(path, directory)
    work = Path(mkdtemp(prefix="unbundle-", dir=partial))
    try:
        _extract(path, work)
        models = _checked(path, work, directory)
        for model in models:
            _install(model, work / model.name, directory, say)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return [model.name for model in models]


def _require_space(path: Path, directory: Path) -> None:
    if not path.is_file():
        raise BadInput(f"{path} is not a file: give the tar that localmem models bundle wrote")
    free, needed = shutil.disk_usage(directory).free, path.stat().st_size
    if free < needed:
        raise BadInput(f"{directory} has {human(free)} free and the bundle holds {human(needed)}: make room first")


def _extract(path: Path, work: Path) -> None:
    """Writes the members below `work`. Refuses what is no plain file at a plain place, and a name that comes twice."""
    with _opened(path) as tar, bytes_bar(path.name, path.stat().st_size) as bar:
        for info in tar:
            target = work / _place(path, info)
            content = tar.extractfile(info)
            if content is None or target.exists():
                raise BadInput(f"{path}: {info.name} is there twice or not a file: nothing was unpacked")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            bar.update(info.size)


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:") as tar:
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise BadInput(f"{path} is not a whole tar ({error}): copy it again") from error


def _place(path: Path, info: tarfile.TarInfo) -> PurePosixPath:
    parts = PurePosixPath(info.name).parts
    if not info.isreg() or info.name.startswith("/") or ".." in parts or len(parts) < 2 or parts[0] != _TOP:
        raise BadInput(f"{path} holds {info.name!r}, which no bundle does: nothing was unpacked")
    return PurePosixPath(*parts[1:])


def _checked(path: Path, work: Path, directory: Path) -> list[Entry]:
    """The models of an unpacked bundle, once every file in it proved to be listed, described and unchanged."""
    listed = _listed(path, work)
    found = sums(work, path.name)
    found.pop(_SUMS)
    if set(found) != set(listed):
        stranger = min(set(found) ^ set(listed))
        raise BadInput(f"{path}: {stranger} is missing or not listed in {_SUMS}: nothing was unpacked")
    changed = next((name for name, digest in listed.items() if found[name].sha256 != digest), None)
    if changed is not None:
        raise BadInput(f"{path}: {changed} differs from its checksum: nothing was unpacked, copy the bundle again")
    models = _models(path, work)
    _require_described(path, models, {name: file for name, file in found.items() if name != _MANIFEST})
    _require_agreement(path, models, directory)
    return models


def _listed(path: Path, work: Path) -> dict[str, str]:
    if not (work / _SUMS).is_file() or not (work / _MANIFEST).is_file():
        raise BadInput(f"{path} holds no {_SUMS} or no {_MANIFEST}: it is not a bundle of models")
    lines = (work / _SUMS).read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("  ") for line in lines if line)
    return {name: digest for digest, _, name in pairs}


def _models(path: Path, work: Path) -> list[Entry]:
    try:
        entries = yaml.safe_load((work / _MANIFEST).read_text(encoding="utf-8"))
        return [Entry.model_validate(entry) for entry in entries]
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise BadInput(f"{path}: its {_MANIFEST} cannot be understood by this version of localmem") from error


def _require_described(path: Path, models: Sequence[Entry], found: dict[str, FileSum]) -> None:
    described = {f"{model.name}/{name}": file for model in models for name, file in model.files.items()}
    if described != found:
        stranger = min(name for name in {*described, *found} if described.get(name) != found.get(name))
        raise BadInput(f"{path}: {stranger} is not as the bundle's manifest says: nothing was unpacked")


def _require_agreement(path: Path, models: Sequence[Entry], directory: Path) -> None:
    known = Manifest.load(directory).models
    for model in models:
        mine = known.get(model.name)
        if mine is not None and mine.files and mine.files != model.files:
            raise BadInput(f"{path}: {model.name} is not the model of that name known here: nothing was unpacked")


def _install(model: Entry, folder: Path, directory: Path, say: Say) -> None:
    target = directory / model.name
    with lock(directory, model.name):
        if target.is_dir() and damage(model, target) is None:
            say(f"{model.name}: here already, and whole")
        else:
            put_in_place(folder, target)
            say(f"{model.name}: ready")
        _register(model, directory)


def _register(model: Entry, directory: Path) -> None:
    with lock(directory, "local.yaml"):
        local = Local.load(directory)
        mine = Manifest.load(directory).models.get(model.name)
        if mine is None:
            local = local.model_copy(update={"models": {**local.models, model.name: model}})
        elif not mine.files and isinstance(model.source, HubSource):
            pin = Pin(revision=model.source.revision, files=model.files)
            local = local.model_copy(update={"pins": {**local.pins, model.name: pin}})
        else:
            return
        local.save(directory)
