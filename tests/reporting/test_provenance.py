"""Provenance: the versions that took part, and the file system of a path."""

import platform
from pathlib import Path

from localmem.reporting.provenance import file_system, machine, versions


def test_versions_include_installed_packages_only() -> None:
    installed = versions()
    assert installed["python"] == platform.python_version()
    assert {"numpy", "sqlalchemy", "sqlite"} <= installed.keys()
    assert all(installed.values())


def test_the_machine_names_the_file_system_of_a_path(tmp_path: Path) -> None:
    described = machine(tmp_path)
    assert described["file_system"] == file_system(tmp_path) != "unknown"
    assert file_system(Path("/proc")) == "proc"
    cores, usable = described["cores"], described["usable_cores"]
    assert isinstance(cores, int)
    assert isinstance(usable, int)
    assert 1 <= usable <= cores
