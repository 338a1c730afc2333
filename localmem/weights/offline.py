"""Models without a network: a user's folder is imported, and a bundle carries models to another machine.

An imported folder is inspected, copied or linked, and added to local.yaml; role, context length and pooling are read
from its own files where they state them. A bundle is a plain tar with a checksum of every file in it:

    localmem-models/SHA256SUMS       readable by sha256sum -c
    localmem-models/manifest.yaml    the description of each model
    localmem-models/NAME/...         its files

Nothing of it is put in place before all was unpacked and verified, with its own checksums and, for models whose
checksums the shipped manifest has, with those as well. Loads no weights.
"""

import io
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from re import fullmatch
from tempfile import TemporaryDirectory, mkdtemp

import yaml
from pydantic import TypeAdapter, ValidationError

from localmem.errors import BadInput, ModelDamaged, ModelMissing
from localmem.files import read_json
from localmem.weights.convert import gguf_to_transformers
from localmem.weights.folder import (
    PARTIAL,
    bytes_bar,
    checksum,
    file_sums,
    find_damage,
    format_size,
    lock,
    put_in_place,
    repair_command,
    require_space,
    update_local,
)
from localmem.weights.manifest import NAME, Entry, HubSource, Manifest, MemoryPosition, Pin, Pooling, Role, models_dir

_DESCRIPTIONS = ("config.json", "adapter_config.json", "reranker.json", "modules.json")  # one of which a model has
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
_OBJECT: TypeAdapter[dict[str, object]] = TypeAdapter(dict[str, object])
_OBJECTS: TypeAdapter[list[dict[str, object]]] = TypeAdapter(list[dict[str, object]])


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the user specifies about a model; None is detected from the folder."""

    name: str | None = None
    role: Role | None = None
    licence: str = "not stated"
    memory_position: MemoryPosition = "last"
    link: bool = False
    replace: bool = False


def import_model(source: Path, options: ImportOptions, directory: Path | None = None) -> Entry:
    """Adds the folder or GGUF file `source` under a name, with the checksums of its files; returns its description.

    A GGUF file is converted first. Raises BadInput when there is no model in it, when its role is unclear, or when the
    name is in use.
    """
    directory = directory or models_dir()
    source = source.absolute()
    if source.suffix == ".gguf":
        return _import_gguf(source, options, directory)
    _require_model(source)
    letters = (letter if letter.isalnum() or letter in "._-" else "-" for letter in source.name.lower())
    name = options.name or "".join(letters).strip("-._") or "model"
    if not fullmatch(NAME, name):
        raise BadInput(f"{name!r} is not a valid model name: use lowercase letters, digits, '.', '_' and '-'")
    existing = Manifest.load(directory).models.get(name)
    if existing is not None and existing.source is not None:
        raise BadInput(f"{name!r} is the name of a model in the manifest: choose another with --name")
    if existing is not None and not options.replace:
        raise BadInput(f"a model {name!r} was imported before: choose another --name, or overwrite it with --replace")
    model = _describe(source, name, options)
    with lock(directory, name):
        folder = _place(source, name, options, directory)
        model = Entry(**{**dict(model), "files": file_sums(folder, name)})
        update_local(directory, models={name: model})
    return model


def _import_gguf(source: Path, options: ImportOptions, directory: Path) -> Entry:
    if options.link:
        raise BadInput(f"{source} must be converted and cannot be linked to: omit --link")
    if not source.is_file():
        raise BadInput(f"there is no file {source}: give a GGUF file")
    (directory / PARTIAL).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory / PARTIAL, prefix="gguf-") as work:
        folder = Path(work) / source.stem
        gguf_to_transformers(source, folder)
        return import_model(folder, options, directory)


def _require_model(source: Path) -> None:
    if not source.is_dir():
        raise BadInput(f"{source} is not a folder: give the folder with config.json and the weights")
    if not any((source / name).is_file() for name in _DESCRIPTIONS):
        raise BadInput(f"{source} has no {', '.join(_DESCRIPTIONS[:-1])} or {_DESCRIPTIONS[-1]}: give a model's folder")
    if not any(next(source.rglob(pattern), None) for pattern in _WEIGHTS):
        raise BadInput(f"{source} has no weights (*.safetensors or *.bin): give a folder with weights")


def _describe(source: Path, name: str, options: ImportOptions) -> Entry:
    """The manifest entry, without files."""
    role = options.role or _role(source)
    config = _read_object(source / "config.json")
    is_encoder = role == "encoder"
    return Entry.model_construct(
        name=name,
        role=role,
        licence=options.licence,
        context_length=_context_length(source, config),
        dimension=_number(config, "hidden_size", "d_model", "dim") if is_encoder else None,
        pooling=_pooling(source) if is_encoder else None,
        normalize=_normalizes(source) if is_encoder else None,
        memory_position=options.memory_position,
    )


def _read_object(path: Path) -> dict[str, object]:
    return read_json(path, _OBJECT, "the folder is damaged, fetch it again") if path.is_file() else {}


def _context_length(source: Path, config: Mapping[str, object]) -> int | None:
    """In tokens. sentence-transformers states an encoder's in a file of its own, since version 6 in the tokenizer's."""
    of_model = _number(config, "max_position_embeddings", "n_positions", "max_seq_len")
    stated = _number(_read_object(source / "sentence_bert_config.json"), "max_seq_length")
    if stated is None and (source / "modules.json").is_file():
        stated = _number(_read_object(source / "tokenizer_config.json"), "model_max_length")
    return min(stated, of_model) if stated and of_model else stated or of_model


def _number(config: Mapping[str, object], *keys: str) -> int | None:
    return next((value for key in keys if isinstance(value := config.get(key), int) and value > 0), None)


def _pooling(source: Path) -> Pooling:
    for path in sorted(source.glob("*_Pooling/config.json")):
        pooling = _read_object(path)
        if pooling.get("pooling_mode_cls_token") or pooling.get("pooling_mode") == "cls":
            return "cls"
    return "mean"


def _normalizes(source: Path) -> bool:
    path = source / "modules.json"
    modules = read_json(path, _OBJECTS, "the folder is damaged, fetch it again") if path.is_file() else []
    return any("Normalize" in str(module.get("type", "")) for module in modules)


def _role(source: Path) -> Role:
    """The role according to the folder's own files. Raises BadInput."""
    if (source / "adapter_config.json").is_file():
        return "adapter"
    if (source / "reranker.json").is_file():
        return "reranker"
    if (source / "modules.json").is_file():
        return "encoder"
    config = _read_object(source / "config.json")
    architectures = config.get("architectures")
    kind = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    role = _role_of_architecture(kind, config)
    if role is None:
        raise BadInput(f"the role of {source} is unclear (architecture {kind or 'not stated'}): give --role")
    return role


def _role_of_architecture(kind: str, config: Mapping[str, object]) -> Role | None:
    if kind.endswith(("ForCausalLM", "LMHeadModel")):
        return "llm"
    if kind.endswith("ForTokenClassification"):
        return "compressor"
    if kind.endswith("ForConditionalGeneration"):
        return "classifier"
    if not kind.endswith("ForSequenceClassification"):
        return "encoder" if kind.endswith("Model") else None
    labels = config.get("id2label")
    names = [str(label).lower() for label in labels.values()] if isinstance(labels, dict) else []
    if len(names) == 1:
        return "reranker"
    return "nli" if any("entail" in name for name in names) else "classifier"


def _place(source: Path, name: str, options: ImportOptions, directory: Path) -> Path:
    target = directory / name
    if source == target:
        return target
    if options.link:
        link = directory / PARTIAL / f"{name}.link"
        link.unlink(missing_ok=True)
        link.symlink_to(source)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        link.rename(target)
        return target
    work = directory / PARTIAL / name
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work / "folder")
    put_in_place(work / "folder", target)
    shutil.rmtree(work)
    return target


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
    with lock(directory, "unbundle"):
        for remnant in partial.glob("unbundle-*"):  # of a process that was killed
            shutil.rmtree(remnant)
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
