"""Settings: flags over environment over --config over the user's own file over defaults. Unknown keys are errors.

The user's own file is $XDG_CONFIG_HOME/localmem/settings.yaml (~/.config/localmem/settings.yaml), or the one that
LOCALMEM_CONFIG names. Does not depend on the parts that the settings choose: `factory` builds those. A system's own
options are in configs/systems/<name>.yaml.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from localmem.errors import BadSettings
from localmem.files import nearest, read_yaml, validation_line
from localmem.resources import resource, user_data_dir, user_settings_file

_PREFIX = "LOCALMEM_"
_OTHER_VARIABLES = {"LOCALMEM_CONFIG", "LOCALMEM_MODELS"}  # they say where settings and models are
_SECRETS = {"llm.api_key", "server.keys"}


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LLMSettings(Section):
    """The backbone: where it runs and how."""

    backend: Literal["auto", "transformers", "vllm"] = "auto"
    """Backend; auto uses vLLM when a url is set or when there is a GPU with vLLM installed, else transformers."""
    url: str | None = None
    """URL of a running OpenAI-compatible server; without one, the vllm backend starts its own."""
    served_as: str | None = None
    """Name of the model on that server; default: its name in the manifest."""
    api_key: str | None = None
    """API key of that server."""
    device: str = "auto"
    """Device for weights in this process: auto, cpu, cuda or cuda:N."""
    dtype: str = "auto"
    """Number type of the weights: auto (bfloat16 where the hardware supports it), float32, bfloat16 or float16."""
    context_length: int | None = Field(default=None, ge=256)
    """Maximum tokens of prompt and answer together; default: the model's own limit."""
    arguments: tuple[str, ...] = ()
    """Extra command-line arguments for a vLLM server that localmem starts."""
    background: int = Field(default=4, ge=1)
    """Maximum number of prompts in flight for sessions that are being remembered."""
    priorities: bool = False
    """Send replies before background prompts; the server at url must run with --scheduling-policy priority."""
    adapters: Mapping[str, Path] = Field(default_factory=dict)
    """LoRA folders by prompt name (theanine/link) or by system (theanine)."""
    shipped_adapters: bool = True
    """Use the adapters shipped with localmem for prompts that `adapters` does not name; ignored when url is set."""


class RetrievalSettings(Section):
    """How memory is searched."""

    retriever: Literal["dense", "bm25", "hybrid"] = "hybrid"
    """Retriever: dense (embeddings), bm25 (words) or hybrid (both)."""
    encoder: str = "minilm-l6-v2"
    """Name of the encoder in the manifest."""
    index: Literal["auto", "flat", "hnsw", "ivf"] = "auto"
    """Vector index: flat is exact; auto is flat up to 20,000 units and hnsw above."""
    index_half: bool = True
    """Store vectors with 2 bytes per number instead of 4; flat search returns the same results."""
    half_life_days: float | None = Field(default=None, gt=0)
    """Recency half-life in days: a unit this much older needs twice the score; unset, age does not count."""
    dates_in_query: bool = False
    """Limit the search to dates named in an English query ("in May 2023", "yesterday")."""
    rerank: str | None = None
    """Cross-encoder that reranks the first hits: its name in the manifest, or a folder."""
    rerank_depth: int = Field(default=50, ge=1)
    """Number of hits to rerank."""
    rerank_budget_ms: int = Field(default=1000, ge=0)
    """Time limit of reranking per query in milliseconds; hits not reached keep their order after the reranked ones."""
    memory_mb: int = Field(default=2048, ge=1)
    """Maximum megabytes of all users' indexes in memory; the least recently used are evicted and rebuilt on demand."""
    device: str = "auto"
    """Device of the encoder: auto, cpu, cuda or cuda:N."""
    language: str = "english"
    """Language of bm25's stemmer and stop words; `none` disables both."""


class ChatSettings(Section):
    """The conversation itself."""

    user_name: str = "User"
    """Name of the user in prompts."""
    assistant_name: str = "Assistant"
    """Name of the assistant in prompts."""
    instructions: str = ""
    """The operator's instructions to the model, first in every system message."""
    memory_position: Literal["model", "system", "last"] = "model"
    """Position of recalled memory in the prompt: system message, last, or as the manifest says for the model."""
    carry: int = Field(default=12, ge=0)
    """Number of turns shown from closed sessions that are not yet remembered."""


class ServerSettings(Section):
    """`localmem serve`."""

    host: str = "127.0.0.1"
    """Address to listen on; any other than loopback requires keys."""
    port: int = Field(default=8321, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    keys: Mapping[str, str] = Field(default_factory=dict)
    """User by API key; without keys everything belongs to the default user."""
    idle_minutes: float = Field(default=30.0, gt=0)
    """Minutes without a turn after which a session is over."""
    threads: int = Field(default=128, ge=1)
    """Maximum number of replies in progress; further requests wait."""
    grace_seconds: float = Field(default=10.0, ge=0)
    """Seconds that replies may continue after the server was told to stop."""


class Settings(BaseSettings):
    """All settings of localmem."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, env_prefix=_PREFIX, env_nested_delimiter="__"
    )

    data: Path = Field(default_factory=user_data_dir)
    """Data directory with conversations and memory."""
    database: str | None = None
    """Database URL, used instead of the SQLite file in the data directory."""
    user: str = "me"
    """User whose memory to use when a command has no --user."""
    system: str = "exchange_retrieval"
    """Memory system; `localmem systems` lists them."""
    options: Mapping[str, object] = Field(default_factory=dict)
    """Options of the system, overriding those in configs/systems."""
    model: str = "smollm2-135m-instruct"
    """Name of the backbone in the manifest; `localmem models list` shows them."""
    llm: LLMSettings = LLMSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    chat: ChatSettings = ChatSettings()
    server: ServerSettings = ServerSettings()

    @field_validator("user")
    @classmethod
    def _check_user(cls, user: str) -> str:
        if not user.strip():
            raise ValueError("the user must have a name, for example --user ana")
        return user

    @property
    def store_url(self) -> str:
        """The location of the store: the database URL, else the data directory."""
        return self.database or str(self.data)


class SettingRow(NamedTuple):
    """One setting: its dotted key, its value (secrets masked), the source of the value, and its description."""

    key: str
    value: object
    source: str
    description: str


def load_settings(config: str | Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """Settings from all their sources. `flags` are nested keys as in YAML; None values count as absent.

    Raises BadInput for an unreadable file, BadSettings for an unknown key or a wrong value.
    """
    return _load(_Sources.read(config, flags or {}))


def list_settings(config: str | Path | None = None, flags: Mapping[str, object] | None = None) -> list[SettingRow]:
    """Every setting with its current value and where that comes from. Raises as `load_settings` does."""
    sources = _Sources.read(config, flags or {})
    values = dict(_leaves(_load(sources)))
    return [
        SettingRow(key, _mask(key, values[key]), sources.describe(key), description)
        for key, description in _descriptions(Settings)
    ]


def default_settings() -> dict[str, object]:
    """The default of every setting by dotted key, as JSON values."""
    return dict(_leaves(Settings.model_construct()))


def decisive_settings(settings: Settings) -> dict[str, object]:
    """The settings that decide what is recalled from a data directory, by dotted key, as JSON values."""
    roots = ("database", "system", "options", "chat.user_name", "retrieval.")
    resources = ("retrieval.device", "retrieval.memory_mb")
    return {key: value for key, value in _leaves(settings) if key.startswith(roots) and key not in resources}


def system_options(name: str, overrides: Mapping[str, object]) -> dict[str, object]:
    """The options of a system: those of its configs/systems file (the paper's numbers), then the overrides.

    Raises BadSettings for an unknown system or an unknown option.
    """
    names = system_names()
    if name not in names:
        raise BadSettings(f"unknown system {name!r}{nearest(name, names)}; `localmem systems` lists them")
    options: dict[str, object] = dict(read_yaml(resource(f"configs/systems/{name}.yaml")).get("options") or {})  # type: ignore[call-overload]
    for key in overrides:
        if key not in options:
            raise BadSettings(
                f"system {name!r} has no option {key!r}{nearest(key, options)}; it has {sorted(options) or 'none'}"
            )
    return {**options, **overrides}


def system_names() -> list[str]:
    """Every system that has a file in configs/systems."""
    return sorted(path.stem for path in resource("configs/systems").glob("*.yaml"))


# -- sources -------------------------------------------------------------------------------------------------------


class _Sources(NamedTuple):
    """What each source sets, as nested keys."""

    flags: Mapping[str, object]
    config: str | Path | None
    config_values: Mapping[str, object]
    user_file: Path | None
    user_values: Mapping[str, object]

    @classmethod
    def read(cls, config: str | Path | None, flags: Mapping[str, object]) -> "_Sources":
        _check_environment()
        user_file = user_settings_file()
        return cls(
            _without_absent(flags),
            config,
            read_yaml(Path(config)) if config else {},
            user_file,
            read_yaml(user_file) if user_file else {},
        )

    def describe(self, key: str) -> str:
        """Where the value of a setting comes from."""
        if _has(self.flags, key):
            return "flag"
        if variable := _environment_variable(key):
            return f"environment variable {variable}"
        if _has(self.config_values, key):
            return f"--config {self.config}"
        return f"user file {self.user_file}" if _has(self.user_values, key) else "default"


def _load(sources: _Sources) -> Settings:
    class Sourced(Settings):
        @classmethod
        def settings_customise_sources(  # type: ignore[override]  # the sources that are not used are not named
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            **_unused: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            files = (sources.config_values, sources.user_values)
            return init_settings, env_settings, *(InitSettingsSource(settings_cls, dict(values)) for values in files)

    try:
        return Sourced(**sources.flags)  # type: ignore[arg-type]  # checked by pydantic
    except ValidationError as error:
        raise BadSettings(validation_line(error, Settings, "setting")) from error


def _without_absent(flags: Mapping[str, object]) -> dict[str, object]:
    """The flags without None values and empty groups, at every depth."""
    nested = {key: _without_absent(value) if isinstance(value, Mapping) else value for key, value in flags.items()}
    return {key: value for key, value in nested.items() if value is not None and value != {}}


def _has(values: object, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _environment_variable(key: str) -> str | None:
    """The variable that sets a key: by its own name, by that of its group (as JSON), or of one entry in a mapping."""
    name = f"{_PREFIX}{key.replace('.', '__')}".upper()
    group = name.partition("__")[0]
    for variable in os.environ:
        if variable.upper() in (name, group) or variable.upper().startswith(f"{name}__"):
            return variable
    return None


def _check_environment() -> None:
    fields = {f"{_PREFIX}{name}".upper() for name in Settings.model_fields}
    for variable in os.environ:
        is_setting = variable.split("__")[0].upper() in fields or variable in _OTHER_VARIABLES
        if variable.startswith(_PREFIX) and not is_setting:
            hint = nearest(variable, fields | _OTHER_VARIABLES)
            raise BadSettings(f"environment variable {variable} is not a setting{hint}; unset it")


# -- listing -------------------------------------------------------------------------------------------------------


def _leaves(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Each setting by dotted key as a JSON value; a mapping such as `options` is one value."""
    document = settings.model_dump(mode="json")
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", document[name]


def _descriptions(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _descriptions(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", " ".join((field.description or "").split())


def _mask(key: str, value: object) -> object:
    if key not in _SECRETS or not value:
        return value
    return [f"*** ({user})" for user in sorted(value.values())] if isinstance(value, Mapping) else "***"
