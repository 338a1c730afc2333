"""Adapters in the settings are found by the names under which they were imported."""

from pathlib import Path

import pytest

from localmem import factory
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.weights.folder import adapter_folder
from localmem.weights.offline import ImportOptions, import_model


def test_adapters_are_named_as_they_were_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    run = tmp_path / "run"
    run.mkdir()
    (run / "adapter_config.json").write_text("{}", encoding="utf-8")
    (run / "adapter_model.safetensors").write_bytes(b"weights")
    import_model(run, ImportOptions(name="mine"))
    import_model(run, ImportOptions(name="reads", role="nli"))
    settings = Settings.model_validate(
        {"llm": {"adapters": {"rsum": "mine", "agent": str(run), "theanine": "elsewhere/linker"}}}
    )
    assert factory.adapters(settings) == {
        "rsum": tmp_path / "models" / "mine",
        "agent": run,
        "theanine": Path("elsewhere/linker"),
    }
    with pytest.raises(BadInput, match="reads is of the role nli, not an adapter"):
        adapter_folder("reads")
