"""Adapters that come with localmem: whole, small, and used for the prompts they learned unless the settings differ."""

from pathlib import Path

import pytest

from localmem import factory
from localmem.config import Settings
from localmem.errors import BadInput, ModelDamaged
from localmem.llm.adapters import list_changes, read_notes
from localmem.resources import resource
from localmem.weights import folder as weights_folder
from localmem.weights.folder import adapter_folder, damaged_files, shipped_adapters
from localmem.weights.manifest import Adapter, FileSum, Manifest
from localmem.weights.offline import ImportOptions, import_model

MODEL = "smollm2-135m-instruct"


@pytest.fixture
def adapter_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An adapter of three bytes for replies of the starter, and nothing else shipped."""
    folder = tmp_path / "models" / "adapters" / "small"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"abc")
    entry = Adapter(
        name="small",
        base=MODEL,
        prompts=("agent/respond", "rsum/respond"),
        licence="Apache-2.0",
        files={"weights": FileSum(size=3, sha256="ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")},
    )
    monkeypatch.setattr(weights_folder, "resource", lambda relative: tmp_path / relative)
    monkeypatch.setattr(Manifest, "load", lambda: Manifest({}, {}, [entry]))
    return folder


def test_shipped_adapters_are_complete_and_fit_the_current_prompts() -> None:
    for adapter in Manifest.load().adapters:
        assert damaged_files(adapter) == []
        assert sum(file.size for file in adapter.files.values()) < 10_000_000
        notes = read_notes(resource(f"models/adapters/{adapter.name}"))
        assert notes is not None
        assert set(adapter.prompts) == set(notes.prompts)
        assert list_changes(notes, None) == []


def test_they_answer_their_prompts_where_the_settings_say_so(adapter_dir: Path) -> None:
    assert shipped_adapters(MODEL) == {"agent/respond": adapter_dir, "rsum/respond": adapter_dir}
    assert shipped_adapters("another") == {}
    shipped: dict[str, object] = {"shipped_adapters": True}

    def adapters(llm: dict[str, object]) -> dict[str, Path]:
        return factory.adapters(Settings.model_validate({"model": MODEL, "llm": llm}))

    assert adapters(shipped) == {"agent/respond": adapter_dir, "rsum/respond": adapter_dir}
    own = {"adapters": {"rsum": "mine", "agent/respond": "yours"}}
    assert adapters(shipped | own) == {"agent/respond": Path("yours"), "rsum": Path("mine")}
    assert adapters({}) == adapters(shipped | {"url": "http://127.0.0.1:1/v1"}) == {}


def test_adapters_are_named_as_they_were_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    shipped = resource("models/adapters/smollm2-135m-respond")
    import_model(shipped, ImportOptions(name="mine"))
    import_model(shipped, ImportOptions(name="reads", role="nli"))
    named = {"rsum": "mine", "agent": shipped.name, "theanine": "elsewhere/linker"}
    settings = Settings.model_validate({"model": MODEL, "llm": {"adapters": named}})
    assert factory.adapters(settings) == {
        "rsum": tmp_path / "models" / "mine",
        "agent": shipped,
        "theanine": Path("elsewhere/linker"),
    }
    with pytest.raises(BadInput, match="reads is of the role nli, not an adapter"):
        adapter_folder("reads")


def test_a_damaged_adapter_is_reported(adapter_dir: Path) -> None:
    (adapter_dir / "weights").write_bytes(b"ab")
    assert damaged_files(Manifest.load().adapters[0]) == ["weights"]
    with pytest.raises(ModelDamaged, match="weights has 2 bytes instead of 3"):
        shipped_adapters(MODEL)
