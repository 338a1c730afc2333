"""Absent, damaged and whole folders, and the one line a user reads."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localmem.errors import ModelDamaged, ModelMissing
from localmem.weights import Manifest, model_path
from localmem.weights.folder import find_damage, format_size, model_state
from tests.weights.conftest import place_model, registry_source


@pytest.fixture(autouse=True)
def _ship_tiny(ship: Callable[..., Path], wheel: Path, directory: Path) -> None:
    ship(registry_source(wheel))


def test_a_whole_model_has_a_path(directory: Path) -> None:
    folder = place_model(directory)
    assert model_path("tiny") == folder
    assert find_damage(Manifest.load().entry("tiny"), folder) is None


def test_an_absent_model_names_the_command_that_mends_it(directory: Path) -> None:
    with pytest.raises(ModelMissing, match=r"^model tiny is not on this machine .*: localmem models pull tiny$"):
        model_path("tiny")


def test_a_missing_file_is_damage(directory: Path) -> None:
    (place_model(directory) / "sub/notes.txt").unlink()
    with pytest.raises(ModelDamaged, match=r"sub/notes\.txt is missing.*: localmem models pull tiny$"):
        model_path("tiny")


def test_a_truncated_file_is_damage(directory: Path) -> None:
    weights = place_model(directory) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelDamaged, match=r"model\.safetensors has 10,239 bytes instead of 10,240"):
        model_path("tiny")


def test_a_flipped_bit_is_found_by_checksums_alone(directory: Path) -> None:
    folder = place_model(directory)
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[5000] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    entry = Manifest.load().entry("tiny")
    assert find_damage(entry, folder, quick=True) is None
    assert "model.safetensors has sha256" in (find_damage(entry, folder) or "")


def test_states(directory: Path) -> None:
    entry = Manifest.load().entry("tiny")
    assert model_state(entry, directory / "tiny") == "absent"
    folder = place_model(directory)
    assert model_state(entry, folder) == "present"
    (folder / "config.json").unlink()
    assert model_state(entry, folder) == "damaged"


@pytest.mark.parametrize(
    ("size", "words"), [(None, "?"), (0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (61_000_000_000, "61 GB")]
)
def test_sizes_as_people_say_them(size: int | None, words: str) -> None:
    assert format_size(size) == words
