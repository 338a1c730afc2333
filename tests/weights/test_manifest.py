"""The shipped manifest, the local one, and what is said of a mistake in them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localmem.errors import BadInput, BadSettings
from localmem.resources import checkout_root
from localmem.weights import Entry, Manifest, models_dir
from localmem.weights.manifest import FileSum, HubSource, Local, Pin
from tests.weights.conftest import TINY, registry_source, sums_of

Ship = Callable[..., Path]

HUB = {"name": "tiny", "role": "llm", "licence": "MIT", "source": {"hub": "someone/tiny", "revision": "main"}}


def test_the_shipped_manifest_lists_what_papers_and_users_run(directory: Path) -> None:
    manifest = Manifest.load()
    roles = {entry.role for entry in manifest.models.values()}
    assert roles == {"llm", "encoder", "reranker", "classifier", "compressor", "nli"}
    assert {
        "mistral-7b-instruct-v0.3", "llama-3.1-8b-instruct", "qwen3-30b-a3b-instruct-2507", "contriever",
        "multi-qa-mpnet-base-dot-v1", "flan-t5-large", "llmlingua-2-xlm-roberta-large", "gte-small",
    } <= set(manifest.models)  # fmt: skip


def test_every_shipped_entry_says_what_a_part_needs(directory: Path) -> None:
    for entry in Manifest.load().models.values():
        assert entry.context_length, entry.name
        assert entry.size, entry.name
        if entry.role == "encoder":
            assert entry.dimension, entry.name
            assert entry.pooling, entry.name
            assert entry.normalize is not None, entry.name


def test_the_starters_come_from_a_package_registry(directory: Path) -> None:
    starters = Manifest.load().expand(["starters"])
    assert [entry.role for entry in starters] == ["llm", "encoder", "encoder"]
    assert all(entry.files and not isinstance(entry.source, HubSource) for entry in starters)


def test_names_and_groups_expand_once_each(directory: Path) -> None:
    names = [entry.name for entry in Manifest.load().expand(["minilm-l6-v2", "starters", "qwen3-8b"])]
    assert names == ["minilm-l6-v2", "smollm2-135m-instruct", "mpnet-base-v2", "qwen3-8b"]


def test_an_unknown_name_gets_the_nearest_one(directory: Path) -> None:
    with pytest.raises(BadInput, match=r"'minilm'.*did you mean 'minilm-l6-v2'"):
        Manifest.load().entry("minilm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context_lenght": 5}, r"models\.0\.context_lenght: Extra inputs"),
        ({"role": "oracle"}, r"models\.0\.role"),
        ({"context_length": 0}, r"models\.0\.context_length"),
        ({"files": {"../x": {"size": 1, "sha256": "0" * 64}}}, "not a plain relative path"),
        ({"files": {"x": {"size": 1, "sha256": "beef"}}}, "sha256"),
        ({"source": {"hub": "someone/tiny", "branch": "main"}}, "branch"),
        ({"source": None}, "must list its files"),
    ],
)
def test_a_mistake_is_one_line(directory: Path, ship: Ship, change: dict[str, object], message: str) -> None:
    path = ship(HUB | change)
    with pytest.raises(BadSettings, match=message) as caught:
        Manifest.load()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_yaml_is_one_line(directory: Path, ship: Ship) -> None:
    ship().write_text("version: 1\n\tmodels: [")
    with pytest.raises(BadSettings, match="is not YAML") as caught:
        Manifest.load()
    assert "\n" not in str(caught.value)


def test_a_name_twice_is_refused(directory: Path, ship: Ship) -> None:
    ship(HUB, HUB)
    with pytest.raises(BadSettings, match="twice"):
        Manifest.load()


def test_a_pin_gives_an_entry_its_commit_and_checksums(directory: Path, ship: Ship) -> None:
    ship(HUB)
    files = {name: FileSum.model_validate(values) for name, values in sums_of(TINY).items()}
    Local(pins={"tiny": Pin(revision="c0ffee", files=files)}).save(directory)
    entry = Manifest.load().entry("tiny")
    assert entry.files == files
    assert isinstance(entry.source, HubSource)
    assert entry.source.revision == "c0ffee"


def test_a_pin_never_changes_checksums_of_the_shipped_manifest(directory: Path, ship: Ship, wheel: Path) -> None:
    ship(registry_source(wheel))
    before = Manifest.load().entry("tiny")
    Local(pins={"tiny": Pin(revision="c0ffee", files={"x": FileSum(size=1, sha256="0" * 64)})}).save(directory)
    assert Manifest.load().entry("tiny") == before


def test_the_local_manifest_reads_what_it_wrote(directory: Path) -> None:
    entry = Entry.model_validate(
        {"name": "mine", "role": "encoder", "licence": "MIT", "files": sums_of(TINY), "dimension": 16, "pooling": "cls"}
    )
    local = Local(models={"mine": entry})
    local.save(directory)
    assert Local.load(directory) == local


def test_the_models_folder_is_the_named_one_then_the_checkouts_then_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "a"))
    assert models_dir() == tmp_path / "a"
    monkeypatch.delenv("LOCALMEM_MODELS")
    root = checkout_root()
    assert root is not None
    assert models_dir() == root / "models" / "weights"
    monkeypatch.setattr("localmem.weights.manifest.checkout_root", lambda: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert models_dir() == tmp_path / "share" / "localmem" / "models"
