"""Settings: flags over environment over YAML over defaults. Unknown keys are errors that name the nearest one.

Knows no parts: `factory` reads these settings and chooses. A system's own options live in configs/systems/<name>.yaml.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from localmem.errors import BadSettings
from localmem.files import nearest, read_yaml, validation_line
from localmem.resources import resource

_PREFIX = "LOCALMEM_"
_OTHER_VARIABLES = {"LOCALMEM_MODELS"}  # read by localmem.weights before any settings exist


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LLMSettings(Section):
    """The backbone: where it runs and how."""

    backend: Literal["auto", "transformers", "vllm"] = "auto"
    """auto takes vLLM when a url is given or a GPU is there with vLLM installed, else transformers."""
    url: str | None = None
    """A vLLM server that runs already; without one, vllm starts its own."""
    served_as: str | None = None
    """What that server calls the model; default: the model's name in the manifest."""
    api_key: str | None = None
    """The key of that server, if it asks for one."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N, for weights that run in process."""
    dtype: str = "auto"
    """auto (bfloat16 where the hardware has it), float32, bfloat16 or float16."""
    context_length: int | None = Field(default=None, ge=256)
    """Tokens of prompt and answer together; default: the model's own."""
    arguments: tuple[str, ...] = ()
    """Further arguments of a vLLM that localmem starts."""
    background: int = Field(default=4, ge=1)
    """How many prompts of sessions that are being remembered may be under way at a time."""
    priorities: bool = False
    """The server at url runs with --scheduling-policy priority: replies then go ahead of background prompts."""
    adapters: Mapping[str, Path] = Field(default_factory=dict)
    """LoRA folders by prompt name (theanine/link) or by system (theanine)."""
    shipped_adapters: bool = True
    """Adapters that come with localmem answer the prompts of their model that they learned, where `adapters` names
    none and no server is given by url."""


class RetrievalSettings(Section):
    """How memory is searched."""

    retriever: Literal["dense", "bm25", "hybrid"] = "hybrid"
    """What searches the units' keys."""
    encoder: str = "minilm-l6-v2"
    """The encoder's name in the manifest."""
    index: Literal["auto", "flat", "hnsw", "ivf"] = "auto"
    """How vectors are searched: flat compares all and is exact; auto is flat up to 20,000 units, then hnsw."""
    index_half: bool = True
    """The index of vectors keeps 2 bytes a number in place of 4; what flat answers is the same."""
    half_life_days: float | None = Field(default=None, gt=0)
    """A unit that is so many days older has to score twice as high; without one, age does not count."""
    dates_in_query: bool = False
    """Dates that an English question names ("in May 2023", "yesterday") narrow the search to that time."""
    rerank: str | None = None
    """A cross-encoder that reads the first matches again: its name in the manifest, or a folder."""
    rerank_depth: int = Field(default=50, ge=1)
    """How many matches it reads."""
    rerank_budget_ms: int = Field(default=1000, ge=0)
    """How long it may take for one question; matches that it did not come to follow those that it read."""
    memory_mb: int = Field(default=2048, ge=1)
    """The most megabytes that the indexes of all users may hold; the least recently used are let go, and made again."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N, for the encoder."""
    language: str = "english"
    """Stemming and stop words of bm25; none for neither."""


class ChatSettings(Section):
    """The conversation itself."""

    user_name: str = "User"
    """What the user is called in prompts."""
    assistant_name: str = "Assistant"
    """What the assistant is called in prompts."""
    instructions: str = ""
    """The operator's words to the model, ahead of everything else."""
    memory_position: Literal["model", "system", "last"] = "model"
    """Where recalled memory stands in the prompt; model: as the manifest says."""
    carry: int = Field(default=12, ge=0)
    """How many turns of sessions not yet remembered stay in sight."""


class ServerSettings(Section):
    """`localmem serve`."""

    host: str = "127.0.0.1"
    """The address to listen on; any but loopback needs keys."""
    port: int = Field(default=8321, ge=0, le=65535)
    """The port to listen on."""
    keys: Mapping[str, str] = Field(default_factory=dict)
    """API key to user; without keys everything belongs to the default user."""
    idle_minutes: float = Field(default=30.0, gt=0)
    """A session without a turn for this long is over."""
    threads: int = Field(default=128, ge=1)
    """How many replies may be given at the same time; further requests wait."""
    grace_seconds: float = Field(default=10.0, ge=0)
    """How long replies may go on when the server is stopped, before they are broken off."""


class Settings(BaseSettings):
    """All settings of localmem."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, env_prefix=_PREFIX, env_nested_delimiter="__"
    )

    data: Path = Field(default_factory=lambda: _data_home() / "localmem")
    """The data directory: conversations and memory."""
    database: str | None = None
    """A database URL instead of the file in the data directory."""
    user: str = Field(default="me", min_length=1)
    """Whose memory, where a command does not say."""
    system: str = "exchange_retrieval"
    """The memory method; `localmem systems` lists them."""
    options: Mapping[str, object] = Field(default_factory=dict)
    """Options of the system, over those in configs/systems."""
    model: str = "smollm2-135m-instruct"
    """The backbone's name in the manifest."""
    llm: LLMSettings = LLMSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    chat: ChatSettings = ChatSettings()
    server: ServerSettings = ServerSettings()

    @property
    def store_url(self) -> str:
        """Where the store is: the database URL, else the data directory."""
        return self.database or str(self.data)


def load_settings(config: Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """Settings from all their sources. `flags` are nested keys as in YAML; a None among them counts as not given.

    Raises BadInput for a file that cannot be read, BadSettings for an unknown key or a wrong value.
    """
    from_file = read_yaml(config) if config else {}
    _check_environment()

    class Sourced(Settings):
        @classmethod
        def settings_customise_sources(  # type: ignore[override]  # the sources that are not used stay unnamed
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            **_unused: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, from_file)

    try:
        return Sourced(**_given(flags or {}))  # type: ignore[arg-type]  # checked by pydantic
    except ValidationError as error:
        raise BadSettings(validation_line(error, Settings, "setting")) from error


def system_options(name: str, overrides: Mapping[str, object]) -> dict[str, object]:
    """The options of a system: those its configs/systems file holds (the paper's numbers), then the user's.

    Raises BadSettings for a system without such a file and for an option that it does not have.
    """
    known = system_names()
    if name not in known:
        raise BadSettings(f"there is no system {name!r}{nearest(name, known)}; `localmem systems` lists them")
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


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def _given(flags: Mapping[str, object]) -> dict[str, object]:
    """The flags that were given, at every depth."""
    nested = {key: _given(value) if isinstance(value, Mapping) else value for key, value in flags.items()}
    return {key: value for key, value in nested.items() if value is not None and value != {}}


def _check_environment() -> None:
    fields = {f"{_PREFIX}{name}".upper() for name in Settings.model_fields}
    for variable in os.environ:
        known = variable.split("__")[0].upper() in fields or variable in _OTHER_VARIABLES
        if variable.startswith(_PREFIX) and not known:
            near = nearest(variable, fields | _OTHER_VARIABLES)
            raise BadSettings(f"environment variable {variable} is no setting{near}; unset it")
