"""Imports a user's folder of weights: inspects it, copies or links it, and adds it to local.yaml.

The role, context length and pooling of the model are read from the folder's own files where they state them. Loads no
weights.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from re import fullmatch

from pydantic import TypeAdapter

from localmem.errors import BadInput
from localmem.files import read_json
from localmem.weights.folder import PARTIAL, file_sums, lock, update_local
from localmem.weights.manifest import NAME, Entry, Manifest, MemoryPosition, Pooling, Role, models_dir
from localmem.weights.pull import put_in_place

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
    """Adds the folder `source` under a name, with the checksums of its files, and returns its description.

    Raises BadInput when the folder contains no model, when its role is unclear, or when the name is in use.
    """
    directory = directory or models_dir()
    source = source.absolute()
    _require_model(source)
    letters = (letter if letter.isalnum() or letter in "._-" else "-" for letter in source.name.lower())
    name = options.name or "".join(letters).strip("-._") or "model"
    if not fullmatch(NAME, name):
        raise BadInput(f"{name!r} is not a valid model name: use lowercase letters, digits, '.', '_' and '-'")
    _require_unused(name, options, directory)
    model = _describe(source, name, options)
    with lock(directory, name):
        folder = _place(source, name, options, directory)
        model = Entry(**{**dict(model), "files": file_sums(folder, name)})
        update_local(directory, models={name: model})
    return model


def _require_model(source: Path) -> None:
    if not source.is_dir():
        raise BadInput(f"{source} is not a folder: give the folder with config.json and the weights")
    if not any((source / name).is_file() for name in ("config.json", "adapter_config.json", "modules.json")):
        raise BadInput(f"{source} has no config.json, adapter_config.json or modules.json: give a model's folder")
    if not any(next(source.rglob(pattern), None) for pattern in _WEIGHTS):
        raise BadInput(f"{source} has no weights (*.safetensors or *.bin): give a folder with weights")


def _require_unused(name: str, options: ImportOptions, directory: Path) -> None:
    existing = Manifest.load(directory).models.get(name)
    if existing is not None and existing.source is not None:
        raise BadInput(f"{name!r} is the name of a model in the manifest: choose another with --name")
    if existing is not None and not options.replace:
        raise BadInput(f"a model {name!r} was imported before: choose another --name, or overwrite it with --replace")


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
