"""Settings: flags over environment over --config over the user's own file over defaults. Unknown keys are errors.

The user's own file is $XDG_CONFIG_HOME/localmem/settings.yaml (~/.config/localmem/settings.yaml), or the one that
LOCALMEM_CONFIG names. Does not depend on the parts that the settings choose: `factory` builds those. A system's own
options are in configs/systems/<name>.yaml.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import EnvSettingsSource, SettingsError

from localmem.errors import BadInput, BadSettings
from localmem.files import nearest, read_yaml, validation_line
from localmem.resources import resource, user_data_dir, user_settings_file
from localmem.times.zones import read_zone, writes_day_first

_PREFIX = "LOCALMEM_"
_OTHER_VARIABLES = {"LOCALMEM_CONFIG", "LOCALMEM_MODELS"}  # they say where settings and models are
_SECRETS = {"llm.api_key", "server.keys"}


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LLMSettings(Section):
    """The backbone: where it runs and how."""

    backend: Literal["auto", "transformers", "vllm"] = "auto"
    """Backend; auto uses the server at url, else a vLLM of its own where there is a GPU with vLLM, else transformers."""
    url: str | tuple[str, ...] | None = None
    """URL of a running server (vLLM, llama.cpp, Ollama, LM Studio, SGLang, TGI or any OpenAI-compatible one), or a list
    of URLs of servers of one model; without one, the vllm backend starts its own."""
    served_as: str | None = None
    """Name of the model on that server; default: its name in the manifest."""
    api_key: str | None = None
    """API key of that server."""
    device: str = "auto"
    """Device for weights in this process: auto, cpu, cuda or cuda:N."""
    dtype: str = "auto"
    """Number type of the weights: auto (bfloat16 where the hardware supports it), float32, bfloat16 or float16."""
    context_length: int | None = Field(default=None, ge=256)
    """Maximum tokens of prompt and answer together; default: the server's or the model's limit, on a GPU as much of it
    as fits, with Ollama the Modelfile's num_ctx, else 8192."""
    arguments: tuple[str, ...] = ()
    """Extra command-line arguments for a vLLM server that localmem starts."""
    gpu_memory: float = Field(default=0.9, gt=0, le=1)
    """Share of each GPU's memory for that server."""
    tensor_parallel: int = Field(default=1, ge=1)
    """Number of GPUs that share the weights of that server."""
    kv_cache: Literal["auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """Number type of that server's keys and values; fp8 holds twice as many tokens on a GPU that supports it."""
    adapter_slots: int = Field(default=4, ge=1)
    """Number of adapter folders that server holds at a time."""
    adapter_rank: int = Field(default=32, ge=1, le=512)
    """Highest rank of an adapter on that server."""
    background: int = Field(default=4, ge=1)
    """Maximum number of prompts in flight for sessions that are being remembered."""
    priorities: bool = False
    """Send replies before background prompts; the vLLM server at url must run with --scheduling-policy priority."""
    adapters: Mapping[str, Path] = Field(default_factory=dict)
    """LoRA folders by prompt name (theanine/link) or by system (theanine)."""
    shipped_adapters: bool = False
    """Use the adapters shipped with localmem for prompts that `adapters` does not name; ignored when url is set."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of running servers."""
        return (self.url,) if isinstance(self.url, str) else self.url or ()


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
    """Device of the encoder, the vector index and the reranker: auto, cpu, cuda or cuda:N."""
    language: str = "auto"
    """Language of bm25's stemmer and stop words; `auto` detects that of each text, `none` disables both."""


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
    reader: str = "model"
    """Reader that answers questions by quoting memory: its name or folder, none, or as the manifest says (model)."""
    stages: str = "model"
    """Selector of statements that answers the stages of memory systems by quoting: its name or folder, none (the
    backbone answers), or as the manifest says (model; evaluations then ask the backbone)."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum tokens of a reply; default: what the context leaves, or the model's limit in the manifest."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Temperature of replies, 0 for the likeliest words; default: that of the memory system's prompt, mostly 0."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Share of probability that words are sampled from, with a temperature; default: all."""
    template_kwargs: Mapping[str, object] = Field(default_factory=dict)
    """Fields for the model's chat template in all prompts, such as {"enable_thinking": false}."""
    carry: int = Field(default=12, ge=0)
    """Number of turns shown from closed sessions that are not yet remembered."""
    timezone: str | None = None
    """Time zone of the user, for example Europe/Berlin; default: that of this machine."""
    day_first: bool | None = None
    """Read 9/11/25 as 9 November (true) or 11 September (false); default: as the locale says, else as either."""

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, name: str | None) -> str | None:
        try:
            read_zone(name or "UTC")
        except BadInput as error:
            raise ValueError(str(error).partition("; ")[2]) from error
        return name

    @property
    def zone(self) -> tzinfo | None:
        """The user's time zone; None for that of this machine."""
        return read_zone(self.timezone) if self.timezone else None


class KeySettings(Section):
    """What an API key may do, where it is for more than one user's memory."""

    user: str
    """User of the key."""
    trusted_users: bool = False
    """The client is trusted to say which of its users asks: each has a memory of their own, named USER/ID."""
    header: str = "X-OpenWebUI-User-Id"
    """Header with the id of the client's user; without it, the field `user` of a chat request counts."""
    operator: bool = False
    """The key may act for any user, whom the header X-Localmem-User names."""


class ServerSettings(Section):
    """`localmem serve`."""

    host: str = "127.0.0.1"
    """Address to listen on; any other than loopback requires keys."""
    port: int = Field(default=8321, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    keys: Mapping[str, str | KeySettings] = Field(default_factory=dict)
    """User by API key, or {user, trusted_users, header, operator}; without keys all belongs to the default user."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may call the server from a browser, such as https://chat.example.org."""
    access_log: bool = False
    """Write a line for each request to the log: route, status and time, but no user and no text."""
    idle_minutes: float = Field(default=30.0, gt=0)
    """Minutes without a turn after which a session is over."""
    threads: int = Field(default=128, ge=1)
    """Maximum number of replies in progress; further requests wait."""
    grace_seconds: float = Field(default=10.0, ge=0)
    """Seconds that replies may continue after the server was told to stop."""
    max_body_kb: int = Field(default=2048, ge=1)
    """Largest body of a request, in kB; larger ones are refused with status 413."""
    max_import_mb: int = Field(default=256, ge=1)
    """Largest body of an import or of past sessions, in MB."""


class Settings(Section):
    """All settings of localmem. `load_settings` reads them from their sources."""

    data: Path = Field(default_factory=user_data_dir)
    """Data directory with conversations and memory."""
    database: str | None = None
    """Database URL, used instead of the SQLite file in the data directory."""
    user: str = "me"
    """User whose memory to use when a command has no --user."""
    system: str = "evidence"
    """Memory system, or SYSTEM/VARIANT; `localmem systems` lists them."""
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
    def day_first(self) -> bool | None:
        """Whether the user writes the day before the month; a machine's locale does not tell for a server's users."""
        unknown = self.chat.day_first is None and not self.server.keys
        return writes_day_first(os.environ) if unknown else self.chat.day_first

    @property
    def store_url(self) -> str:
        """The location of the store: the database URL, else the data directory."""
        return self.database or str(self.data)


class SettingRow(NamedTuple):
    """One setting: its dotted key, its value as JSON (secrets masked), the source of the value, its description."""

    key: str
    value: object
    source: str
    description: str


def load_settings(config: str | Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """Settings from all their sources. `flags` are nested keys as in YAML; None values count as absent.

    Raises BadInput for an unreadable file, BadSettings for an unknown key or a wrong value.
    """
    return _merge(_read_sources(config, flags or {}))


def list_settings(config: str | Path | None = None, flags: Mapping[str, object] | None = None) -> list[SettingRow]:
    """Every setting with its current value and where that comes from. Raises as `load_settings` does."""
    sources = _read_sources(config, flags or {})
    return [
        SettingRow(key, _mask(key, value), _source_of(key, sources), description)
        for key, value, description in _leaves(_merge(sources))
    ]


def default_settings() -> dict[str, object]:
    """The default of every setting by dotted key, as JSON values."""
    return {key: value for key, value, _ in _leaves(Settings.model_construct())}


def decisive_settings(settings: Settings) -> dict[str, object]:
    """The settings that decide what is recalled from a data directory, by dotted key, as JSON values."""
    roots = ("database", "system", "options", "chat.user_name", "chat.timezone", "chat.day_first", "retrieval.")
    resources = ("retrieval.device", "retrieval.memory_mb")
    return {key: value for key, value, _ in _leaves(settings) if key.startswith(roots) and key not in resources}


def system_options(name: str, overrides: Mapping[str, object]) -> dict[str, object]:
    """The options of a system: those of its configs/systems file (the paper's numbers), then the overrides.

    Every system has the option `show_times`. Raises BadSettings for an unknown system or an unknown option.
    """
    names = system_names()
    if name not in names:
        raise BadSettings(f"unknown system {name!r}{nearest(name, names)}; `localmem systems` lists them")
    options = {"show_times": False, **_section(name, "options")}
    for key in overrides:
        if key not in options:
            raise BadSettings(
                f"system {name!r} has no option {key!r}{nearest(key, options)}; it has {sorted(options) or 'none'}"
            )
    return {**options, **overrides}


def system_names(*, variants: bool = False) -> list[str]:
    """Every system that has a file in configs/systems; with `variants` also theirs, as SYSTEM/VARIANT."""
    names = sorted(path.stem for path in resource("configs/systems").glob("*.yaml"))
    return [*names, *(variant for name in names for variant in system_variants(name) if variants)]


def system_variants(system: str) -> list[str]:
    """The variants of a system, as SYSTEM/VARIANT."""
    return [f"{system}/{variant}" for variant in _section(system, "variants")]


def variant_settings(name: str) -> dict[str, object]:
    """The settings that SYSTEM/VARIANT stands for, its system included. Raises BadSettings for an unknown one."""
    system, _, variant = name.partition("/")
    system_options(system, {})
    variants = _section(system, "variants")
    if variant not in variants:
        hint = nearest(variant, variants)
        raise BadSettings(f"system {system!r} has no variant {variant!r}{hint}; it has {sorted(variants) or 'none'}")
    return {"system": system, **variants[variant]}  # type: ignore[dict-item]  # the test of the shipped files loads each


def _section(system: str, key: str) -> dict[str, object]:
    """The options or variants in a system's file."""
    section: dict[str, object] = dict(read_yaml(resource(f"configs/systems/{system}.yaml")).get(key) or {})  # type: ignore[call-overload]
    return section


def overlay(values: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """Nested values with the overrides in their place, at every depth."""
    merged = dict(values)
    for key, value in overrides.items():
        previous = merged.get(key)
        is_group = isinstance(value, Mapping) and isinstance(previous, Mapping)
        merged[key] = overlay(previous, value) if is_group else value  # type: ignore[arg-type]  # both are mappings
    return merged


# -- sources -------------------------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """One source of settings: its name, and what it sets as nested keys."""

    name: str
    values: Mapping[str, object]


def _read_sources(config: str | Path | None, flags: Mapping[str, object]) -> list[_Source]:
    """The sources, strongest first."""
    sources = [_Source("flag", _without_absent(flags)), _Source("environment variable", _read_environment())]
    if config:
        sources.append(_Source(f"--config {config}", read_yaml(Path(config))))
    if user_file := user_settings_file():
        sources.append(_Source(f"user file {user_file}", read_yaml(user_file)))
    system = next((source.values["system"] for source in sources if "system" in source.values), None)
    if isinstance(system, str) and "/" in system:
        sources.append(_Source(f"variant {system}", variant_settings(system)))
    return sources


def _merge(sources: Sequence[_Source]) -> Settings:
    values: dict[str, object] = {}
    for source in reversed(sources):
        values = overlay(values, source.values)
    if sources[-1].name.startswith("variant "):  # stronger sources name the variant; its system is meant
        values["system"] = sources[-1].values["system"]
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise BadSettings(validation_line(error, Settings, "setting")) from error


def _read_environment() -> Mapping[str, object]:
    """What the environment sets. Raises BadSettings for an unknown variable, or one that should be JSON and is not."""
    fields = {f"{_PREFIX}{name}".upper() for name in Settings.model_fields}
    for variable in os.environ:
        is_setting = variable.split("__")[0].upper() in fields or variable in _OTHER_VARIABLES
        if variable.startswith(_PREFIX) and not is_setting:
            hint = nearest(variable, fields | _OTHER_VARIABLES)
            raise BadSettings(f"environment variable {variable} is not a setting{hint}; unset it")
    try:
        return EnvSettingsSource(Settings, env_prefix=_PREFIX, env_nested_delimiter="__")()  # type: ignore[arg-type]  # any model will do
    except SettingsError as error:
        raise BadSettings(f"environment: {error}; give JSON") from error


def _source_of(key: str, sources: Sequence[_Source]) -> str:
    """Where the value of a setting comes from; an environment variable by its name."""
    name = next((source.name for source in sources if _has(source.values, key)), "default")
    if name != "environment variable":
        return name
    variable = f"{_PREFIX}{key.replace('.', '__')}".upper()
    matches = [other for other in os.environ if other.upper() == variable or other.upper().startswith(f"{variable}__")]
    return f"{name} {matches[0] if matches else variable.partition('__')[0]}"


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


def _leaves(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, object, str]]:
    """Each setting as (dotted key, JSON value, description); a mapping such as `options` is one value."""
    document = settings.model_dump(mode="json")
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", document[name], " ".join((field.description or "").split())


def _mask(key: str, value: object) -> object:
    if key not in _SECRETS or not value:
        return value
    if not isinstance(value, Mapping):
        return "***"
    users = [key["user"] if isinstance(key, Mapping) else key for key in value.values()]
    return [f"*** ({user})" for user in sorted(users)]
