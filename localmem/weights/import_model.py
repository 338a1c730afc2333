"""Takes a user's own folder of weights in: looks at it, copies or links it, and writes it into local.yaml.

What a model is for, how much it reads and how its vectors are made is read off the folder's own files where they say.
Loads no weights.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from re import fullmatch

from localmem.errors import BadInput
from localmem.weights.folder import PARTIAL, lock, sums
from localmem.weights.manifest import NAME, Entry, Local, Manifest, MemoryPosition, Pooling, Role, models_dir
from localmem.weights.pull import put_in_place

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user says of a model; None where the folder is to be asked."""

    name: str | None = None
    role: Role | None = None
    licence: str = "not stated"
    memory_position: MemoryPosition = "last"
    link: bool = False
    replace: bool = False


def take_in(source: Path, wishes: Wishes, directory: Path | None = None) -> Entry:
    """Registers the folder `source` under a name, with the checksums of its files; returns what was found out.

    Raises BadInput when the folder holds no model, when its role cannot be told, or when the name is taken.
    """
    directory = directory or models_dir()
    source = source.absolute()
    _require_model(source)
    name = wishes.name or _name(source)
    if not fullmatch(NAME, name):
        raise BadInput(f"{name!r} cannot be a model's name: use small letters, digits, '.', '_' and '-'")
    _require_free(name, wishes, directory)
    model = _describe(source, name, wishes)
    with lock(directory, name):
        folder = _place(source, name, wishes, directory)
        model = Entry(**{**dict(model), "files": sums(folder, name)})
        _register(model, directory)
    return model


def _require_model(source: Path) -> None:
    if not source.is_dir():
        raise BadInput(f"{source} is not a folder: give the folder that holds config.json and the weights")
    if not any((source / name).is_file() for name in ("config.json", "adapter_config.json", "modules.json")):
        raise BadInput(
            f"{source} holds no config.json, adapter_config.json or modules.json: it is not a model's folder"
        )
    if not any(next(source.rglob(pattern), None) for pattern in _WEIGHTS):
        raise BadInput(f"{source} holds no weights (*.safetensors or *.bin): give the folder that does")


def _name(source: Path) -> str:
    kept = (letter if letter.isalnum() or letter in "._-" else "-" for letter in source.name.lower())
    return "".join(kept).strip("-._") or "model"


def _require_free(name: str, wishes: Wishes, directory: Path) -> None:
    known = Manifest.load(directory).models.get(name)
    if known is not None and known.source is not None:
        raise BadInput(f"{name!r} is the name of a model in the manifest: give another with --name")
    if known is not None and not wishes.replace:
        raise BadInput(f"{name!r} was imported before: give another --name, or --replace")


def _describe(source: Path, name: str, wishes: Wishes) -> Entry:
    """What the manifest will say of the model, its files left out."""
    role = wishes.role or _role(source)
    config = _json(source / "config.json")
    encoder = role == "encoder"
    return Entry.model_construct(
        name=name,
        role=role,
        licence=wishes.licence,
        context_length=_context(source, config),
        dimension=_number(config, "hidden_size", "d_model", "dim") if encoder else None,
        pooling=_pooling(source) if encoder else None,
        normalize=any("Normalize" in kind for kind in _modules(source)) if encoder else None,
        memory_position=wishes.memory_position,
    )


def _json(path: Path) -> Mapping[str, object]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path} is not JSON ({error}): the folder is damaged") from error
    return content if isinstance(content, dict) else {}


def _context(source: Path, config: Mapping[str, object]) -> int | None:
    """Tokens that the model reads. sentence-transformers told an encoder's in a file, and since 6 by its tokenizer."""
    own = _number(config, "max_position_embeddings", "n_positions", "max_seq_len")
    stated = _number(_json(source / "sentence_bert_config.json"), "max_seq_length")
    if stated is None and (source / "modules.json").is_file():
        stated = _number(_json(source / "tokenizer_config.json"), "model_max_length")
    return min(stated, own) if stated and own else stated or own


def _number(config: Mapping[str, object], *keys: str) -> int | None:
    return next((value for key in keys if isinstance(value := config.get(key), int) and value > 0), None)


def _pooling(source: Path) -> Pooling:
    for path in sorted(source.glob("*_Pooling/config.json")):
        pooling = _json(path)
        if pooling.get("pooling_mode_cls_token") or pooling.get("pooling_mode") == "cls":
            return "cls"
    return "mean"


def _modules(source: Path) -> Iterator[str]:
    path = source / "modules.json"
    if path.is_file():
        for module in json.loads(path.read_text(encoding="utf-8")):
            yield str(module.get("type", ""))


def _role(source: Path) -> Role:
    """What the folder's own files say the model is for."""
    if (source / "adapter_config.json").is_file():
        return "adapter"
    if (source / "modules.json").is_file():
        return "encoder"
    config = _json(source / "config.json")
    architectures = config.get("architectures")
    kind = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    role = _role_of_architecture(kind, config)
    if role is None:
        raise BadInput(f"{source} does not say what it is for (architecture {kind or 'not given'}): give --role")
    return role


def _role_of_architecture(kind: str, config: Mapping[str, object]) -> Role | None:
    if kind.endswith(("ForCausalLM", "LMHeadModel")):
        return "llm"
    if kind.endswith("ForTokenClassification"):
        return "compressor"
    if kind.endswith("ForConditionalGeneration"):
        return "classifier"
    if kind.endswith("ForSequenceClassification"):
        return _role_of_labels(config.get("id2label"))
    return "encoder" if kind.endswith("Model") else None


def _role_of_labels(labels: object) -> Role:
    names = [str(label).lower() for label in labels.values()] if isinstance(labels, dict) else []
    if len(names) == 1:
        return "reranker"
    return "nli" if any("entail" in name for name in names) else "classifier"


def _place(source: Path, name: str, wishes: Wishes, directory: Path) -> Path:
    target = directory / name
    if source == target:
        return target
    if wishes.link:
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


def _register(model: Entry, directory: Path) -> None:
    with lock(directory, "local.yaml"):
        local = Local.load(directory)
        local.model_copy(update={"models": {**local.models, model.name: model}}).save(directory)
