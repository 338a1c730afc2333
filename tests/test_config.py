"""Settings: the order of their sources, and one-line errors."""

import subprocess
import sys
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from localmem.config import list_settings, load_settings, system_names, system_options
from localmem.errors import BadInput, BadSettings


def test_flags_over_environment_over_config_over_user_file_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("user: from-yaml\nsystem: rsum\nmodel: from-yaml\nserver: {port: 1, host: 127.0.0.9}\n")
    user_file = tmp_path / "localmem" / "settings.yaml"
    user_file.parent.mkdir()
    user_file.write_text("user: from-user-file\nchat: {carry: 3}\nserver: {idle_minutes: 5, port: 4}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALMEM_SYSTEM", "none")
    monkeypatch.setenv("LOCALMEM_MODEL", "from-env")
    monkeypatch.setenv("LOCALMEM_SERVER__PORT", "2")
    settings = load_settings(file, {"model": "from-flag", "user": None, "server": {"port": 3, "host": None}})
    assert (settings.user, settings.system, settings.model) == ("from-yaml", "none", "from-flag")
    assert (settings.server.port, settings.server.host, settings.server.idle_minutes) == (3, "127.0.0.9", 5)
    assert (settings.chat.carry, settings.chat.user_name) == (3, "User")
    assert load_settings().user == "from-user-file"
    monkeypatch.setenv("LOCALMEM_CONFIG", str(file))
    assert load_settings().user == "from-yaml"
    monkeypatch.setenv("LOCALMEM_CONFIG", str(tmp_path / "absent.yaml"))
    with pytest.raises(BadInput, match=r"cannot read .*absent\.yaml"):
        load_settings()


def test_a_config_path_may_be_a_string(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("user: ana")
    assert load_settings(str(file)).user == "ana"


@pytest.mark.parametrize("user", ["", "  "])
def test_an_empty_user_is_an_error_with_a_cure(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSettings, match="the user must have a name, for example --user ana"):
        load_settings(None, {"user": user})
    monkeypatch.setenv("LOCALMEM_USER", user)
    with pytest.raises(BadSettings, match="the user must have a name"):
        load_settings()


@pytest.mark.parametrize(
    "text, says",
    [
        ("sistem: rsum", "'sistem' (did you mean 'system'?)"),
        ("server: {prot: 1}", "'server.prot' (did you mean 'server.port'?)"),
        ("server: {port: 99999}", "'server.port' cannot be 99999"),
        ("llm: {backend: ollama}", "'llm.backend' cannot be 'ollama'"),
        ("server: {idle_minutes: .inf}", "'server.idle_minutes' cannot be inf"),
        ("server: {grace_seconds: .inf}", "'server.grace_seconds' cannot be inf"),
        ("data: ''", "'data' cannot be '': name a path"),
        ("llm: {url: '127.0.0.1:8000'}", "'llm.url' cannot be '127.0.0.1:8000': give a URL such as http://"),
        ("llm: {url: ['http://ana:secret-1@host:x']}", "'llm.url' cannot be ['http://ana:***@host:x']: give a URL"),
        ("llm: {api_key: [secret-1]}", "'llm.api_key' cannot be '***'"),
        ("server: {keys: {secret-1: null}}", "'server.keys.***.str' cannot be '***'"),
        ("server: {keys: [secret-1]}", "'server.keys' cannot be '***'"),
        ("database: 'postgresql//ana:secret-1@host'", "'database' cannot be 'postgresql//ana:***@host': give a URL"),
        ("llm: {adapters: {rsum/respnd: a}}", "no prompt is called 'rsum/respnd' (did you mean 'rsum/respond'?)"),
        ("llm: {adapters: {rsum: a, theanine/link: b, evidence: c}}", "no prompt is called 'evidence'; use names"),
    ],
)
def test_a_mistake_is_one_line_with_its_cure(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(BadSettings) as error:
        load_settings(file)
    assert says in str(error.value)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_path_may_begin_at_the_home_folder(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("data: ~/memory\nserver: {audit_log: ~/audit}\nllm: {adapters: {rsum: ~/lora}}")
    settings = load_settings(file)
    home = Path.home()
    assert (settings.data, settings.server.audit_log) == (home / "memory", home / "audit")
    assert settings.llm.adapters == {"rsum": home / "lora"}


def test_settings_without_adapters_import_no_template_engine() -> None:
    script = "import sys; from localmem.config import load_settings; load_settings(); print('jinja2' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout == "False\n"


@pytest.mark.parametrize(
    ("source", "config", "variable", "value"),
    [
        ("--config {}", "config.yaml", "LOCALMEM_USER", "ana"),
        ("user file {}", None, "LOCALMEM_CONFIG", "config.yaml"),
        ("environment variable LOCALMEM_LLM__URLL", None, "LOCALMEM_LLM__URLL", "http://127.0.0.1:8000"),
    ],
)
def test_a_mistake_names_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, config: str | None, variable: str, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("llm: {urll: http://127.0.0.1:8000}")
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadSettings) as error:
        load_settings(config)
    line = "unknown setting 'llm.urll' (did you mean 'llm.url'?)"
    assert str(error.value) == f"{source.format('config.yaml')}: {line}"


def test_a_time_zone_has_an_iana_name() -> None:
    assert load_settings(flags={"chat": {"timezone": "Asia/Tokyo"}}).chat.zone == ZoneInfo("Asia/Tokyo")
    assert load_settings().chat.zone is None
    with pytest.raises(BadSettings) as error:
        load_settings(flags={"chat": {"timezone": "Middle/Earth"}})
    cure = "give an IANA name such as Europe/Berlin"
    assert str(error.value) == f"setting 'chat.timezone' cannot be 'Middle/Earth': {cure}"


def test_the_order_of_day_and_month_is_that_of_the_locale_of_an_only_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert load_settings().day_first is True
    assert load_settings(flags={"chat": {"day_first": False}}).day_first is False
    assert load_settings(flags={"server": {"keys": {"key-of-ann": "ann"}}}).day_first is None


def test_an_unknown_environment_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_SISTEM", "rsum")
    with pytest.raises(BadSettings, match=r"LOCALMEM_SISTEM.*LOCALMEM_SYSTEM"):
        load_settings()


def test_a_variable_for_the_data_directory_by_another_name_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_HOME", "/data")
    with pytest.raises(BadSettings, match=r"LOCALMEM_HOME is not a setting \(did you mean 'LOCALMEM_DATA'\?\)"):
        load_settings()


@pytest.mark.parametrize("text", ["a: [", "- a list"])
def test_a_file_that_is_not_a_mapping_is_an_error(tmp_path: Path, text: str) -> None:
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


def test_an_environment_variable_that_is_not_json_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_OPTIONS", "{k: 3")
    with pytest.raises(BadSettings, match=r'"options".*give JSON'):
        load_settings()
    monkeypatch.setenv("LOCALMEM_OPTIONS", '{"k": 3}')
    monkeypatch.setenv("LOCALMEM_OPTIONS__J", "4")
    assert load_settings(None, {"options": {"n": 1}}).options == {"k": 3, "j": "4", "n": 1}


def test_a_variant_sets_options_that_every_other_source_overrides(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("system: rsum/bm25\noptions: {limit: 9}\n")
    settings = load_settings(file)
    assert (settings.system, settings.retrieval.retriever) == ("rsum", "bm25")
    assert settings.options == {"retrieve": 5, "limit": 9}
    assert load_settings(file, {"retrieval": {"retriever": "dense"}}).retrieval.retriever == "dense"
    sources = {row.key: row.source for row in list_settings(file)}
    assert sources["retrieval.retriever"] == "variant rsum/bm25"


def test_an_unknown_variant_names_the_nearest_and_the_others() -> None:
    with pytest.raises(BadSettings, match="no variant 'bm26' \\(did you mean 'bm25'"):
        load_settings(flags={"system": "rsum/bm26"})


@pytest.mark.parametrize("name", system_names(variants=True))
def test_each_shipped_system_and_variant_loads(name: str) -> None:
    settings = load_settings(flags={"system": name})
    assert settings.options.keys() <= system_options(settings.system, settings.options).keys()
