"""Prompts are files: `<system>/<task>.md`, with a header (source, inputs, limits) and one section a message.

This package reads, checks and renders them. Values are never treated as templates: user text is inserted unchanged.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files

import yaml
from jinja2 import Environment, StrictUndefined, Template
from pydantic import BaseModel, ConfigDict, ValidationError

from localmem.errors import BadSettings
from localmem.files import validation_line
from localmem.types import Format, FreeText, Message, Prompt

_HEADER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_SECTION = re.compile(r"^# (system|user|memory)\n", re.MULTILINE)


class PromptFile(BaseModel):
    """The content of one prompt file. `digest` is the sha256 of its text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    source: str
    inputs: tuple[str, ...]
    sections: Mapping[str, str]
    digest: str
    max_tokens: int = 256
    temperature: float = 0.0
    stop: tuple[str, ...] = ()

    def section(self, title: str, **values: object) -> str:
        """One section with the values filled in. Raises BadSettings when values and declared inputs differ."""
        if set(values) != set(self.inputs):
            raise BadSettings(f"prompt {self.name!r} declares inputs {sorted(self.inputs)}, but got {sorted(values)}")
        return _template(self.sections[title]).render(**values).strip()


def render(name: str, *, form: Format | None = None, **values: object) -> Prompt:
    """The prompt of this name with its values filled in: a system message (if the file has one) and a user message.

    The values stay readable as the prompt's `inputs`. Raises BadSettings when values and declared inputs differ.
    """
    file = load(name)
    messages: list[Message] = []
    if "system" in file.sections:
        messages.append(Message("system", file.section("system", **values)))
    messages.append(Message("user", file.section("user", **values)))
    return Prompt(
        name=name,
        messages=tuple(messages),
        max_tokens=file.max_tokens,
        temperature=file.temperature,
        stop=file.stop,
        format=form or FreeText(),
        inputs=inputs_of(values),
    )


def inputs_of(values: Mapping[str, object]) -> dict[str, str]:
    """Values as a prompt carries them: a text as it is, anything else (a number, a list of texts) as JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
    }


@cache
def _environment() -> Environment:
    # Prompts are plain text for a model, not HTML: escaping would change what the user wrote.
    return Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)  # noqa: S701


@cache
def _template(text: str) -> Template:
    """Cached: a session's end may render one prompt thousands of times."""
    return _environment().from_string(text)


@cache
def load(name: str) -> PromptFile:
    """The prompt file of this name. Raises BadSettings if there is none or its header is wrong."""
    path = files("localmem.prompts").joinpath(f"{name}.md")
    if not path.is_file():
        raise BadSettings(f"there is no prompt {name!r}; prompts are the .md files under localmem/prompts")
    text = path.read_text(encoding="utf-8")
    match = _HEADER.match(text)
    parts = _SECTION.split(_HEADER.sub("", text, count=1))
    fields = {"name": name, "sections": dict(zip(parts[1::2], parts[2::2], strict=True)), "digest": _digest(text)}
    try:
        return PromptFile.model_validate({**(yaml.safe_load(match.group(1)) if match else {}), **fields})
    except ValidationError as error:
        raise BadSettings(f"prompt {name!r}: {validation_line(error, PromptFile, 'header field')}") from error


def instructions(group: str) -> str:
    """The system sections of all prompts of a group (a system's name), as written; "" for a group without prompts."""
    folder = files("localmem.prompts").joinpath(group)
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".md")) if folder.is_dir() else []
    sections = (load(f"{group}/{name.removesuffix('.md')}").sections for name in names)
    return "\n".join(section["system"] for section in sections if "system" in section)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def digest_of_all() -> str:
    """One sha256 over all prompt files: two runs with the same digest used the same prompts."""
    folder = files("localmem.prompts")
    return _digest("".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _list_files()))


def list_prompts() -> list[str]:
    """The names of all prompts; files that begin with an underscore are parts of others."""
    return [name.removesuffix(".md") for name in _list_files() if "/_" not in name]


def _list_files() -> list[str]:
    groups = [group for group in files("localmem.prompts").iterdir() if group.is_dir()]
    names = sorted(f"{group.name}/{file.name}" for group in groups for file in group.iterdir())
    return [name for name in names if name.endswith(".md")]
