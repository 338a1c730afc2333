"""doctor and systems as a user runs them."""

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_doctor_checks_store_network_and_models(localmem: Run) -> None:
    report = localmem("doctor", "--json", env={"HTTPS_PROXY": "http://proxy.example:3128"})
    findings = {(row["area"], row["subject"]): row for row in json.loads(report.stdout)}
    assert findings["store", "data directory"]["state"] == "ok"
    assert findings["network", "HTTPS_PROXY"]["state"] == "note"
    assert findings["models", "encoder"]["state"] in ("ok", "bad")


def test_doctor_names_what_is_missing(localmem: Run, tmp_path: Path) -> None:
    report = localmem("doctor", env={"LOCALMEM_MODELS": str(tmp_path / "nothing")})
    assert report.returncode == 1
    assert "localmem models pull smollm2-135m-instruct" in report.stdout


def test_systems_lists_each_with_its_options(localmem: Run) -> None:
    rows = {row["name"]: row for row in json.loads(localmem("systems", "--json").stdout)}
    assert {"none", "rsum", "memory_retrieval", "exchange_retrieval"} <= rows.keys()
    assert "limit" in rows["rsum"]["options"]
    assert "rsum/bm25" in rows["rsum"]["variants"]
    assert "rsum" in localmem("systems", "--system", "rsum").stdout
