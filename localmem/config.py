"""Settings: flags over environment over --config over the user's own file over defaults. Unknown keys are errors.

The user's own file is $XDG_CONFIG_HOME/localmem/settings.yaml (~/.config/localmem/settings.yaml), or the one that
LOCALMEM_CONFIG names. Does not depend on the parts that the settings choose: `factory` builds those. A system's own
options are in configs/systems/<name>.yaml.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_settings import EnvSettingsSource, SettingsError

from localmem.errors import BadSettings, without_passwords
from localmem.files import nearest, read_yaml, validation_line
from localmem.resources import resource, user_data_dir, user_settings_file
from localmem.settings_sections import (
    ChatSettings,
    LLMSettings,
    RetrievalSettings,
    Section,
    ServerSettings,
    StoreSettings,
    UserPath,
)
from localmem.times.zones import writes_day_first

_PREFIX = "LOCALMEM_"
_OTHER_VARIABLES = {"LOCALMEM_CONFIG", "LOCALMEM_MODELS"}  # they say where settings and models are
_SYNONYMS = {"LOCALMEM_HOME": "LOCALMEM_DATA", "LOCALMEM_DIR": "LOCALMEM_DATA"}  # as other programs name it
_SECRETS = {"llm.api_key", "server.keys"}


class Settings(Section):
    """All settings of localmem. `load_settings` reads them from their sources."""

    data: UserPath = Field(default_factory=user_data_dir)
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
    store: StoreSettings = StoreSettings()
    chat: ChatSettings = ChatSettings()
    server: ServerSettings = ServerSettings()

    @field_validator("user")
    @classmethod
    def _check_user(cls, user: str) -> str:
        if not user.strip():
            raise ValueError("the user must have a name, for example --user ana")
        return user

    @field_validator("database")
    @classmethod
    def _check_database(cls, database: str | None) -> str | None:
        """A variable that is set to nothing must not quietly begin a store elsewhere."""
        if database is not None and "://" not in database:
            raise ValueError("give a URL such as postgresql://host/name, or leave the setting out")
        return database

    @property
    def day_first(self) -> bool | None:
        """Whether the user writes the day before the month; a machine's locale does not tell for a server's users."""
        unknown = self.chat.day_first is None and not self.server.keys and not self.key_file.exists()
        return writes_day_first(os.environ) if unknown else self.chat.day_first

    @property
    def key_file(self) -> Path:
        """The file with the digests of API keys."""
        return self.data / "keys.json"

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


def reply_settings(settings: Settings) -> dict[str, object]:
    """The settings that decide which backbone replies and how, by dotted key, as JSON values; no key of a server."""
    roots = ("model", "llm.", "chat.")
    return {key: value for key, value, _ in _leaves(settings) if key.startswith(roots) and not key.endswith("api_key")}


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
        key = ".".join(map(str, error.errors()[0]["loc"]))
        origin = _source_of(key, sources)
        place = "" if origin in ("flag", "default") else f"{origin}: "  # a flag was just typed
        raise BadSettings(f"{place}{validation_line(error, Settings, 'setting', _SECRETS)}") from error


def _read_environment() -> Mapping[str, object]:
    """What the environment sets. Raises BadSettings for an unknown variable, or one that should be JSON and is not."""
    fields = {f"{_PREFIX}{name}".upper() for name in Settings.model_fields}
    for variable in os.environ:
        is_setting = variable.split("__")[0].upper() in fields or variable in _OTHER_VARIABLES
        if variable.startswith(_PREFIX) and not is_setting:
            meant = _SYNONYMS.get(variable.upper(), variable)
            hint = nearest(meant, fields | _OTHER_VARIABLES)
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
    if isinstance(value, list):
        return [_mask(key, item) for item in value]
    if key not in _SECRETS or not value:
        return without_passwords(value) if isinstance(value, str) else value
    if not isinstance(value, Mapping):
        return "***"
    users = [key["user"] if isinstance(key, Mapping) else key for key in value.values()]
    return [f"*** ({user})" for user in sorted(users)]
