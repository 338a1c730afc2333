"""Carries models to a machine without a network: a plain tar with a checksum of every file in it.

    localmem-models/SHA256SUMS       readable by sha256sum -c
    localmem-models/manifest.yaml    the description of each model
    localmem-models/NAME/...         its files

Nothing is put in place before all of the bundle was unpacked and verified, with its own checksums and, for models whose
checksums the shipped manifest has, with those as well. Does not use the network.
"""

import io
import shutil
import tarfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp

import yaml
from pydantic import TypeAdapter, ValidationError

from localmem.errors import BadInput, ModelDamaged, ModelMissing
from localmem.weights.folder import (
    PARTIAL,
    bytes_bar,
    checksum,
    file_sums,
    find_damage,
    format_size,
    lock,
    repair_command,
    require_space,
    update_local,
)
from localmem.weights.manifest import Entry, HubSource, Manifest, Pin, models_dir
from localmem.weights.pull import put_in_place

Notify = Callable[[str], None]

_TOP = "localmem-models"
_SUMS = "SHA256SUMS"
_MANIFEST = "manifest.yaml"
_ENTRIES: TypeAdapter[list[Entry]] = TypeAdapter(list[Entry])


def bundle(names: Sequence[str], out: Path, notify: Notify, directory: Path | None = None) -> str:
    """Writes the named models (or groups) into the tar `out` and returns its sha256.

    Raises ModelMissing or ModelDamaged when one of them is not complete.
    """
    directory = directory or models_dir()
    models = [_with_sums(model, directory) for model in Manifest.load(directory).expand(names)]
    if not models:
        raise BadInput("nothing to bundle: name a model or a group")
    entries = [model.model_dump(mode="json", exclude_defaults=True) for model in models]
    manifest = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True).encode()
    sums = {_MANIFEST: sha256(manifest).hexdigest()}
    sums |= {f"{model.name}/{name}": file.sha256 for model in models for name, file in model.files.items()}
    draft = out.with_name(out.name + PARTIAL)
    try:
        with tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as tar:
            lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()
            for name, content in ((_SUMS, lines), (_MANIFEST, manifest)):
                tar.addfile(_member(name, len(content)), io.BytesIO(content))
            for model in models:
                _add_model(tar, model, directory)
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    notify(f"{out}: {len(models)} models, {format_size(out.stat().st_size)}")
    return checksum(out)


def _with_sums(model: Entry, directory: Path) -> Entry:
    """The model with checksums of every file, after comparing known ones with the files on disk."""
    folder = directory / model.name
    problem = find_damage(model, folder)
    if problem is not None:
        kind = ModelDamaged if folder.is_dir() else ModelMissing
        raise kind(f"model {model.name} cannot be bundled ({problem}): {repair_command(model)}")
    return model if model.files else model.model_copy(update={"files": file_sums(folder, model.name)})


def _add_model(tar: tarfile.TarFile, model: Entry, directory: Path) -> None:
    with bytes_bar(model.name, model.size or 0) as bar:
        for name, file in model.files.items():
            with (directory / model.name / name).open("rb") as content:
                tar.addfile(_member(f"{model.name}/{name}", file.size), content)
            bar.update(file.size)


def _member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(f"{_TOP}/{name}")
    info.size = size
    info.mode = 0o644
    return info


def unbundle(path: Path, notify: Notify, directory: Path | None = None) -> list[str]:
    """Puts the models of a bundle in place after verifying all checksums, and returns their names.

    Raises BadInput for a file that is not a complete bundle, or that contains anything it does not list.
    """
    directory = directory or models_dir()
    partial = directory / PARTIAL
    partial.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        raise BadInput(f"{path} is not a file: give the tar that localmem models bundle wrote")
    require_space(path.stat().st_size, shutil.disk_usage(directory).free, directory, BadInput)
    work = Path(mkdtemp(prefix="unbundle-", dir=partial))
    try:
        _extract(path, work)
        models = _verify(path, work, directory)
        for model in models:
            _install(model, work / model.name, directory, notify)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return [model.name for model in models]


def _extract(path: Path, work: Path) -> None:
    """Writes the members below `work`. Refuses all but regular files at plain relative paths, and duplicates."""
    try:
        with tarfile.open(path, "r:") as tar, bytes_bar(path.name, path.stat().st_size) as bar:
            for info in tar:
                target = work / _relative_path(path, info)
                content = tar.extractfile(info)
                if content is None or target.exists():
                    raise BadInput(f"{path}: {info.name} is a duplicate or not a file: nothing was installed")
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
                bar.update(info.size)
    except (tarfile.TarError, EOFError) as error:
        raise BadInput(f"{path} is not a complete tar ({error}): copy it again") from error


def _relative_path(path: Path, info: tarfile.TarInfo) -> PurePosixPath:
    parts = PurePosixPath(info.name).parts
    if not info.isreg() or info.name.startswith("/") or ".." in parts or len(parts) < 2 or parts[0] != _TOP:
        raise BadInput(f"{path} contains {info.name!r}, which is not part of a bundle: nothing was installed")
    return PurePosixPath(*parts[1:])


def _verify(path: Path, work: Path, directory: Path) -> list[Entry]:
    """The models of an unpacked bundle, in which every file is listed, described and unchanged."""
    expected = _read_sums(path, work)
    actual = file_sums(work, path.name)
    actual.pop(_SUMS)
    if set(actual) != set(expected):
        name = min(set(actual) ^ set(expected))
        raise BadInput(f"{path}: {name} is missing or not listed in {_SUMS}: nothing was installed")
    changed = next((name for name, digest in expected.items() if actual[name].sha256 != digest), None)
    if changed is not None:
        raise BadInput(f"{path}: {changed} differs from its checksum: nothing was installed, copy the bundle again")
    try:
        models = _ENTRIES.validate_python(yaml.safe_load((work / _MANIFEST).read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise BadInput(f"{path}: its {_MANIFEST} is invalid for this version of localmem: update localmem") from error
    del actual[_MANIFEST]
    described = {f"{model.name}/{name}": file for model in models for name, file in model.files.items()}
    if described != actual:
        name = min(name for name in {*described, *actual} if described.get(name) != actual.get(name))
        raise BadInput(f"{path}: {name} differs from the bundle's {_MANIFEST}: nothing was installed")
    existing = Manifest.load(directory).models
    for model in models:
        if (own := existing.get(model.name)) and own.files and own.files != model.files:
            raise BadInput(f"{path}: {model.name} differs from the local model of that name: nothing was installed")
    return models


def _read_sums(path: Path, work: Path) -> dict[str, str]:
    if not (work / _SUMS).is_file() or not (work / _MANIFEST).is_file():
        raise BadInput(f"{path} has no {_SUMS} or no {_MANIFEST}: give a bundle of models")
    lines = (work / _SUMS).read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("  ") for line in lines if line)
    return {name: digest for digest, _, name in pairs}


def _install(model: Entry, folder: Path, directory: Path, notify: Notify) -> None:
    target = directory / model.name
    with lock(directory, model.name):
        if target.is_dir() and find_damage(model, target) is None:
            notify(f"{model.name}: already present (checksums match)")
        else:
            put_in_place(folder, target)
            notify(f"{model.name}: ready")
        existing = Manifest.load(directory).models.get(model.name)
        if existing is None:
            update_local(directory, models={model.name: model})
        elif not existing.files and isinstance(model.source, HubSource):
            update_local(directory, pins={model.name: Pin(revision=model.source.revision, files=model.files)})
