"""Settings: who wins over whom, and what a mistake is told."""

from pathlib import Path

import pytest

from localmem.config import load_settings, system_names, system_options
from localmem.errors import BadInput, BadSettings


def test_flags_over_environment_over_yaml_over_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("user: from-yaml\nsystem: rsum\nmodel: from-yaml\nserver: {port: 1, host: 127.0.0.9}\n")
    monkeypatch.setenv("LOCALMEM_SYSTEM", "none")
    monkeypatch.setenv("LOCALMEM_MODEL", "from-env")
    monkeypatch.setenv("LOCALMEM_SERVER__PORT", "2")
    settings = load_settings(file, {"model": "from-flag", "user": None, "server": {"port": 3, "host": None}})
    assert (settings.user, settings.system, settings.model) == ("from-yaml", "none", "from-flag")
    assert (settings.server.port, settings.server.host) == (3, "127.0.0.9")
    assert settings.chat.carry == 12


@pytest.mark.parametrize(
    "text, says",
    [
        ("sistem: rsum", "'sistem' (did you mean 'system'?)"),
        ("server: {prot: 1}", "'server.prot' (did you mean 'port'?)"),
        ("server: {port: 99999}", "'server.port' cannot be 99999"),
        ("llm: {backend: ollama}", "'llm.backend' cannot be 'ollama'"),
    ],
)
def test_a_mistake_is_one_line_with_its_cure(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(BadSettings) as error:
        load_settings(file)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_environment_variable_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_SISTEM", "rsum")
    with pytest.raises(BadSettings, match=r"LOCALMEM_SISTEM.*LOCALMEM_SYSTEM"):
        load_settings()


@pytest.mark.parametrize("text", ["a: [", "- a list"])
def test_a_file_that_is_no_mapping_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"settings\.yaml"):
        load_settings(file)
    with pytest.raises(BadInput, match="absent"):
        load_settings(tmp_path / "absent.yaml")


def test_every_system_has_a_file_and_its_options_can_be_overridden() -> None:
    for name in system_names():
        assert system_options(name, {}) == system_options(name, system_options(name, {}))
    assert system_options("rsum", {"limit": 5}) == {**system_options("rsum", {}), "limit": 5}
    with pytest.raises(BadSettings, match=r"limits.*did you mean 'limit'"):
        system_options("rsum", {"limits": 5})
    with pytest.raises(BadSettings, match=r"rsumm.*did you mean 'rsum'"):
        system_options("rsumm", {})
