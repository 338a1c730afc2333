"""Recipe options: a pydantic model becomes flags, a recipe file and --set, and a mistake is one line."""

from pathlib import Path
from typing import Literal

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel, ConfigDict, Field

from localmem.cli.recipes import recipe_options, recipe_table
from localmem.errors import BadInput, BadSettings


class _Training(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    epochs: float = Field(default=4.0, gt=0)
    """Passes over the data."""
    seed: int = 0
    """Random seed."""


class _Recipe(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    base: str = "minilm-l6-v2"
    """Name of the base model."""
    files: tuple[Path, ...] = ()
    """Training file."""
    loss: Literal["triplet", "cosine"] = "triplet"
    """Loss function."""
    light: bool = False
    """Train the head only."""
    limit: int | None = None
    """Use only the first N examples."""
    weights: dict[str, float] = {}
    """Weight of each data set."""
    training: _Training = _Training()


@click.command()
@recipe_options(_Recipe, flags=("loss", "light", "limit", "training.epochs", ("files", "file")))
@click.option("--out", default="out")
def _train(recipe: _Recipe, out: str) -> None:
    """Train something."""
    click.echo(f"{out} {recipe.model_dump_json()}")


def _recipe(*arguments: object) -> _Recipe:
    outcome = CliRunner().invoke(_train, [str(argument) for argument in arguments], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return _Recipe.model_validate_json(outcome.stdout.removeprefix("out "))


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    file = tmp_path / "recipe.yaml"
    file.write_text("limit: 10\nloss: cosine\nbase: from-file\ntraining: {epochs: 2, seed: 7}\n")
    return file


def test_flags_win_over_set_over_the_file_over_defaults(recipe_file: Path) -> None:
    assert _recipe() == _Recipe()
    recipe = _recipe(
        "--recipe", recipe_file, "--set", "limit=20", "--set", "training.epochs=3", "--limit", 30, "--light"
    )
    assert recipe == _Recipe(
        base="from-file", loss="cosine", limit=30, light=True, training=_Training(epochs=3, seed=7)
    )


def test_a_list_is_repeated_and_a_mapping_is_set_by_key() -> None:
    expected = (Path("a"), Path("b"))
    assert _recipe("--file", "a", "--file", "b").files == expected
    assert _recipe("--set", "files=a", "--set", "files=b").files == expected
    assert _recipe("--set", "files=[a, b]").files == expected
    assert _recipe("--set", "weights.tiage=0.5", "--set", "weights.msc=2").weights == {"tiage": 0.5, "msc": 2.0}


def test_text_stays_text_and_null_unsets() -> None:
    assert _recipe("--set", "base=1234").base == "1234"
    assert _recipe("--set", "limit=null").limit is None
    assert _recipe("--set", "training.epochs=1e-1").training.epochs == 0.1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--set", "limits=3"], "unknown recipe field 'limits' (did you mean 'limit'?)"),
        (["--set", "training.epoch=3"], "unknown recipe field 'training.epoch' (did you mean 'training.epochs'?)"),
        (["--set", "limit"], "--set limit has no value; write --set KEY=VALUE"),
        (["--set", "limit=[1"], "--set limit=[1: not valid YAML"),
        (["--epochs", "-1"], "recipe field 'training.epochs' cannot be -1.0"),
        (["--set", "loss=hinge"], "recipe field 'loss' cannot be 'hinge'"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_name(arguments: list[str], message: str) -> None:
    with pytest.raises(BadSettings) as error:
        _recipe(*arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_required_field_names_its_flag() -> None:
    class Required(BaseModel):
        parts: tuple[str, ...]

    for flags, cure in (([("parts", "part")], "--part"), ([], "--set parts=VALUE")):

        @click.command()
        @recipe_options(Required, flags=flags)
        def command(recipe: Required) -> None:
            """Do something."""

        with pytest.raises(BadSettings, match=f"recipe field 'parts' is required; add {cure}$"):
            CliRunner().invoke(command, [], catch_exceptions=False)


def test_an_unknown_field_of_a_recipe_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("training: {epoch: 1}")
    with pytest.raises(BadSettings, match=r"'training.epoch' \(did you mean 'training.epochs'\?\)"):
        _recipe("--recipe", file)
    with pytest.raises(BadInput, match="absent"):
        _recipe("--recipe", tmp_path / "absent.yaml")


def test_help_lists_every_field_with_its_default() -> None:
    text = CliRunner().invoke(_train, ["--help"]).stdout
    options, fields = text.split("Recipe fields")
    assert "--epochs FLOAT" in options
    assert "Passes over the data. [default: 4.0]" in options
    assert "--file PATH" in options
    assert "Repeatable." in options
    for key in ("base", "weights", "training.epochs", "training.seed"):
        assert f"  {key} " in fields
    assert "Name of the base model. [default: minilm-l6-v2]" in fields
    assert max(map(len, text.splitlines())) <= 80


def test_the_table_holds_every_field() -> None:
    table = {key: (default, sentence) for key, default, sentence in recipe_table(_Recipe)}
    assert table["training.seed"] == ("0", "Random seed.")
    assert table["limit"][0] == "null"
    assert len(table) == 8
