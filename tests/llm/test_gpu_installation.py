"""A GPU installation without a GPU is named, and not run on the CPU unless that is asked for."""

from pathlib import Path

import pytest

from localmem import factory
from localmem.config import load_settings
from localmem.errors import BadSettings
from localmem.llm import gpu_installation
from localmem.runtime.diagnostics import check_all


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """faiss-gpu and vllm are installed, and no GPU is seen; returns the file that a driver would write."""
    monkeypatch.setattr(gpu_installation, "_is_installed", lambda name: name in ("vllm", "faiss-gpu"))
    monkeypatch.setattr(gpu_installation, "sees_gpu", lambda: False)
    monkeypatch.setattr(gpu_installation, "_DRIVER_FILE", tmp_path / "version")
    return tmp_path / "version"


@pytest.mark.parametrize("backend", ["auto", "vllm", "transformers"])
def test_a_backbone_is_refused(backend: str, blind: Path) -> None:
    settings = load_settings(None, {"llm": {"backend": backend}})
    with pytest.raises(BadSettings, match=r"for a GPU \(vllm, faiss-gpu\) and sees none \(no NVIDIA driver\); install"):
        factory.backbone(settings, print)


def test_an_encoder_is_refused_too_beside_a_remote_backbone(blind: Path) -> None:
    settings = load_settings(None, {"llm": {"url": "http://127.0.0.1:1"}})
    with pytest.raises(BadSettings, match=r"or set retrieval\.device to cpu"):
        factory.bare_encoder(settings)
    factory.bare_encoder(load_settings(None, {"retrieval": {"device": "cpu"}}))


def test_the_cpu_can_be_asked_for(blind: Path) -> None:
    gpu_installation.require_gpu("llm.device", "cpu")


def test_a_cpu_installation_needs_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_installation, "_is_installed", lambda name: False)
    monkeypatch.setattr(gpu_installation, "sees_gpu", lambda: False)
    gpu_installation.require_gpu("llm.device", "auto")


@pytest.mark.parametrize(
    ("number", "state"), [("580.65.06\n", "driver 580.65.06"), ("535.1\n", "driver 535.1, older than 580")]
)
def test_the_driver_is_named(number: str, state: str, blind: Path) -> None:
    blind.write_text(number)
    assert gpu_installation.driver_state() == state


def test_what_vllm_compiles_with_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    compiler, headers = gpu_installation.missing_tools()
    assert "install gcc" in compiler
    assert str(tmp_path) in headers
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/cc" if name == "cc" else None)
    assert list(gpu_installation.missing_tools()) == []


def test_doctor_calls_it_bad(blind: Path, tmp_path: Path) -> None:
    blind.write_text("535.1\n")
    settings = load_settings(None, {"data": tmp_path, "llm": {"url": "http://127.0.0.1:1"}})
    findings = {finding.subject: finding for finding in check_all(settings) if finding.area == "device"}
    assert findings["GPU"].state == "bad"
    assert "driver 535.1, older than 580" in findings["GPU"].detail
