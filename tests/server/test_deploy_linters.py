"""The files of scripts/deploy, read by the programs they are for; `scripts/setup_linters` installs those."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from localmem.config import load_settings
from tests.server.test_deploy import DEPLOY

LINTERS = DEPLOY.parents[1] / ".linters"
CHART = DEPLOY / "helm"

pytestmark = pytest.mark.slow


def run(program: str, *arguments: str) -> str:
    """The output of a program in .linters, which must end well; the test is skipped without it."""
    path = LINTERS / "bin" / program
    if not path.exists():
        pytest.skip(f"no {program} in .linters: run scripts/setup_linters")
    return check([str(path), *arguments])


def check(command: list[str]) -> str:
    """The output of a command, which must end well."""
    names = {**os.environ, "PYTHONPATH": str(LINTERS), "HOME": "/nonexistent"}
    process = subprocess.run(command, env=names, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


EVERYTHING = [
    *("--set", "ingress.host=chat.example.org", "--set", "ingress.tlsSecret=tls"),
    *("--set", "models.claim=models", "--set", "image.pullSecret=registry"),
]


@pytest.mark.parametrize("values", [[], EVERYTHING], ids=["default", "everything"])
def test_the_chart_renders_objects_of_kubernetes(values: list[str], tmp_path: Path) -> None:
    run("helm", "lint", "--strict", str(CHART), *values)
    text = run("helm", "template", "memory", str(CHART), *values)
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(text)
    for version in ("1.27", "1.37"):
        check([sys.executable, "-m", "kubernetes_validate", "--strict", "-k", version, str(rendered)])
    objects = {each["kind"]: each for each in yaml.safe_load_all(text)}
    assert {"Deployment", "Service", "Secret", "PodDisruptionBudget"} <= objects.keys()
    assert ("Ingress" in objects) == bool(values)
    settings = tmp_path / "settings.yaml"
    settings.write_text(objects["Secret"]["stringData"]["settings.yaml"])
    assert load_settings(settings, {}).server.host == "0.0.0.0"  # noqa: S104  # in a container


def test_a_misspelt_value_of_the_chart_is_refused() -> None:
    with pytest.raises(AssertionError, match="replicsa"):
        run("helm", "template", "memory", str(CHART), "--set", "replicsa=3")


def test_the_container_file_passes_hadolint() -> None:
    run("hadolint", str(DEPLOY / "Containerfile"))


@pytest.mark.parametrize("name", ["compose.yaml", "compose.postgres.yaml"])
def test_compose_files_follow_the_specification(name: str) -> None:
    if not (LINTERS / "compose_spec").exists():
        pytest.skip("no compose_spec in .linters: run scripts/setup_linters")
    code = "import compose_spec, sys; print(compose_spec.PyCompose.from_yaml(sys.stdin.read()).service_names())"
    names = {**os.environ, "PYTHONPATH": str(LINTERS)}
    text = (DEPLOY / name).read_text()
    process = subprocess.run(
        [sys.executable, "-c", code], env=names, input=text, capture_output=True, text=True, check=True
    )
    assert "localmem" in process.stdout


def test_prometheus_reads_its_settings_and_rules(tmp_path: Path) -> None:
    settings = (DEPLOY / "prometheus.yaml").read_text()
    copy = tmp_path / "prometheus.yaml"
    copy.write_text(settings.replace("/etc/prometheus/rules.yaml", str(DEPLOY / "prometheus_rules.yaml")))
    assert "7 rules found" in run("promtool", "check", "config", str(copy))
