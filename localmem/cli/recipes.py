"""Command options made from a pydantic model: a few flags, a recipe file, and `--set` for every other field.

A recipe is a frozen model (`extra="forbid"`, `use_attribute_docstrings=True`) that lives beside the pipeline which it
configures. This module only turns it into options and back; it does not know any particular recipe. Import it from
modules of one command or one group: it loads pydantic, which `localmem --help` must not.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import click
import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from localmem.config import overlay
from localmem.errors import BadSettings
from localmem.files import nearest, read_yaml, validation_line

Command = Callable[..., object]
Option = Callable[[Command], Command]
Flag = str | tuple[str, str]
Model = TypeVar("Model", bound=BaseModel)


def recipe_options(
    model: type[BaseModel], flags: Sequence[Flag] = (), *, file: bool = True
) -> Callable[[Command], Command]:
    """Add --recipe FILE, --set KEY=VALUE and one option for each field in `flags`; pass `recipe=` to the command.

    A command that would have too many options goes without `file`.

    A flag is the name of a field, dotted for a field of a nested model (`training.epochs` becomes --epochs), or a pair
    of field and option name where these differ: `("systems", "system")` makes a repeatable --system of a tuple field.
    Flags win over --set, --set over the recipe file, and the file over the model's defaults. A mistake raises
    BadSettings with one line that names the nearest field.
    """
    fields = _fields_by_key(model)
    pairs = [(flag, flag.rpartition(".")[2]) if isinstance(flag, str) else flag for flag in flags]
    option_names = {key: name.replace("_", "-") for key, name in pairs}
    flag_options = [_flag_option(name, fields[key]) for key, name in option_names.items()]
    options: list[Option] = [*flag_options, *([_file_option] if file else []), _set_option(fields, option_names)]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_recipe(
            *args: object, recipe_file: Path | None = None, assignments: Sequence[str], **values: object
        ) -> object:
            flag_values = {key: values.pop(name.replace("-", "_")) for key, name in option_names.items()}
            recipe = build_recipe(model, recipe_file, assignments, flag_values, option_names)
            return command(*args, recipe=recipe, **values)

        decorated: Command = with_recipe
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def build_recipe(
    model: type[Model],
    file: Path | None = None,
    assignments: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    options: Mapping[str, str] | None = None,
) -> Model:
    """A recipe from its sources. A flag that is None or empty counts as absent; `options` are the flags' names by key.

    Raises BadInput or BadSettings.
    """
    fields = _fields_by_key(model)
    flag_values = {key: value for key, value in (flags or {}).items() if value is not None and value != ()}
    values = read_yaml(file) if file else {}
    for key, value in (*_parse_assignments(assignments, fields).items(), *flag_values.items()):
        values = overlay(values, _nest(key, value))
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise BadSettings(_describe_mistake(error, model, options or {})) from error


def _describe_mistake(error: ValidationError, model: type[BaseModel], options: Mapping[str, str]) -> str:
    problem = error.errors(include_url=False)[0]
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] != "missing":
        return validation_line(error, model, "recipe field")
    return f"recipe field {key!r} is required; add {f'--{options[key]}' if key in options else f'--set {key}=VALUE'}"


def recipe_table(model: type[BaseModel]) -> list[tuple[str, str, str]]:
    """Every field as (dotted key, default as YAML text, sentence); the default of a required field is ''."""
    return [
        (key, "" if field.is_required() else _default_text(field), field.description or "")
        for key, field in _fields_by_key(model).items()
    ]


# -- help ----------------------------------------------------------------------------------------------------------


class _SetOption(click.Option):
    """--set. When the help is printed, it appends the fields that --set accepts to the end of the page."""

    rows: Sequence[tuple[str, str]] = ()

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option's own line. click prints a command's epilog after its options, so it can still be set here."""
        formatter = click.HelpFormatter(width=78)
        formatter.write_dl(self.rows)
        ctx.command.epilog = f"Recipe fields, for --set and --recipe:\n\n\b\n{formatter.getvalue()}"
        return super().get_help_record(ctx)


def _set_option(fields: Mapping[str, FieldInfo], options: Mapping[str, str]) -> Option:
    class SetOption(_SetOption):
        rows: Sequence[tuple[str, str]] = [
            (key, f"See --{options[key]}." if key in options else _sentence(field))
            for key, field in fields.items()
            if options.get(key) != key.replace("_", "-")
        ]

    return click.option(
        "--set",
        "assignments",
        cls=SetOption,
        multiple=True,
        metavar="KEY=VALUE",
        help="Set one recipe field. Repeatable.",
    )


def _sentence(field: FieldInfo) -> str:
    text = " ".join((field.description or "").split())
    if field.is_required():
        return f"{text} Required."
    default = _default_text(field)
    return text if default in ("null", "[]", "{}", '""') else f"{text} [default: {default}]"


def _default_text(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    return value if isinstance(value, str) and value else json.dumps(value, default=str)


# -- options -------------------------------------------------------------------------------------------------------

_file_option = click.option(
    "--recipe", "recipe_file", type=click.Path(path_type=Path), metavar="FILE", help="YAML file of recipe fields."
)


def _flag_option(option: str, field: FieldInfo) -> Option:
    """The click option of one field. Its default is None: defaults come from the model, after the recipe file."""
    annotation, repeated = _element_type(field.annotation)
    text = _sentence(field)
    if annotation is bool:
        return click.option(f"--{option}/--no-{option}", default=None, help=text)
    text = f"{text} Repeatable." if repeated else text
    return click.option(f"--{option}", type=_click_type(annotation), multiple=repeated, default=None, help=text)


def _element_type(annotation: object) -> tuple[object, bool]:
    """The plain type behind Optional and Annotated, and whether the field is a list of it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _element_type(arguments[0])
    if origin in (Union, UnionType):
        present = [argument for argument in arguments if argument is not type(None)]
        return _element_type(present[0]) if len(present) == 1 else (str, False)
    if origin in (tuple, list):
        return _element_type(arguments[0])[0], True
    return annotation, False


def _click_type(annotation: object) -> click.ParamType[Any]:
    if get_origin(annotation) is Literal:
        return click.Choice([str(choice) for choice in get_args(annotation)])
    if annotation is Path:
        return click.Path(path_type=Path)
    if annotation is int:
        return click.INT
    return click.FLOAT if annotation is float else click.STRING


# -- values --------------------------------------------------------------------------------------------------------


def _fields_by_key(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """All fields by dotted key; a nested model stands for its fields."""
    fields: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            fields |= _fields_by_key(field.annotation, f"{prefix}{name}.")
        else:
            fields[f"{prefix}{name}"] = field
    return fields


def _parse_assignments(assignments: Sequence[str], fields: Mapping[str, FieldInfo]) -> dict[str, object]:
    """KEY=VALUE texts, values read as YAML. Repeating a list field's key appends to it; otherwise the last one wins."""
    values: dict[str, object] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise BadSettings(f"--set {assignment} has no value; write --set KEY=VALUE")
        field = fields.get(key) or fields.get(key.partition(".")[0])  # a key inside a mapping field
        if field is None:
            raise BadSettings(f"--set {assignment}: unknown recipe field {key!r}{nearest(key, list(fields))}")
        annotation, repeated = _element_type(field.annotation)
        value = text if annotation is str and text != "null" and not repeated else _parse_yaml(assignment, text)
        if repeated and value is not None:
            previous = values.get(key)
            items = value if isinstance(value, list) else [text if annotation is str else value]
            value = [*(previous if isinstance(previous, list) else []), *items]
        values[key] = value
    return values


def _parse_yaml(assignment: str, text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadSettings(f"--set {assignment}: not valid YAML: {' '.join(str(error).split())}") from error


def _nest(key: str, value: object) -> dict[str, object]:
    """A dotted key as nested mappings."""
    head, _, remaining = key.partition(".")
    return {head: _nest(remaining, value) if remaining else value}
