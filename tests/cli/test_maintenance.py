"""rebuild, undo, reindex, export and import as a user runs them."""

import json
from pathlib import Path

import numpy as np
import pytest

from localmem.store import Store
from tests.cli.conftest import Run

DENSE = {"LOCALMEM_RETRIEVAL__RETRIEVER": "dense"}


def test_export_and_import_are_a_round_trip(localmem: Run, session_log: Path, tmp_path: Path) -> None:
    localmem("remember", session_log, "--user", "ana")
    out = tmp_path / "ana.jsonl"
    assert localmem("export", "--user", "ana", "--out", out).returncode == 0
    copy = tmp_path / "copy"
    imported = localmem("import", out, "--data-dir", copy)
    assert imported.stdout == "imported 2 sessions with 6 turns for ana\n"
    assert localmem("import", out, "--data-dir", copy).stdout == "nothing to import: ana already has all of it\n"
    assert localmem("export", "--user", "ana", "--data-dir", copy).stdout == out.read_text()
    assert localmem("show", "--user", "ana", "--data-dir", copy).stdout == localmem("show", "--user", "ana").stdout


def test_rebuild_reads_the_raw_log_with_another_system(localmem: Run, session_log: Path) -> None:
    localmem("remember", session_log, "--user", "ana")
    memory = localmem("show", "--user", "ana").stdout
    assert localmem("show", "--user", "ana", "--system", "none").stderr.count("localmem rebuild") == 1
    assert localmem("rebuild", "--user", "ana", "--system", "none").returncode == 0
    rebuilt = localmem("rebuild", "--user", "ana")
    assert "evidence read 2 sessions again; 4 units, 0 notes\n" in rebuilt.stdout, rebuilt.stderr
    assert localmem("show", "--user", "ana").stdout == memory


def test_rebuild_names_a_user_that_does_not_exist_and_takes_one_user_or_all(localmem: Run) -> None:
    missing = localmem("rebuild", "--user", "nosuch")
    assert missing.returncode == 1
    assert "there is no user 'nosuch'; check the name" in missing.stderr
    both = localmem("rebuild", "--user", "ana", "--all-users")
    assert both.returncode == 2
    assert "--all-users and --user name different users" in both.stderr


def test_undo_reverts_one_session(localmem: Run, session_log: Path) -> None:
    localmem("remember", session_log, "--user", "ana")
    assert localmem("undo", "--session", "first", "--user", "ana").returncode == 0
    units = json.loads(localmem("show", "--user", "ana", "--json").stdout)["units"]
    assert {unit["session"] for unit in units} == {"second"}


def test_undo_takes_one_thing(localmem: Run, session_log: Path) -> None:
    localmem("remember", session_log, "--user", "ana")
    for options in ([], ["--session", "first", "--batch", "forget:1"]):
        assert localmem("undo", *options, "--user", "ana").returncode == 2
    missing = localmem("undo", "--batch", "forget:1", "--user", "ana")
    assert missing.returncode == 1
    assert "no batch 'forget:1'" in missing.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("starter_encoder_dir")
def test_another_encoder_is_refused_until_the_store_is_reindexed(localmem: Run, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    turns = [{"role": "user", "text": "My dog is called Bruno.", "time": "2026-03-02T18:00:00Z"}]
    log.write_text(json.dumps({"id": "first", "turns": turns}))
    assert localmem("remember", log).returncode == 0
    with Store.open(tmp_path / "xdg" / "localmem") as store:
        store.vectors.put("gte-small@0123/4567", {"d": np.ones(384, dtype="<f4").tobytes()})

    refused = localmem("recall", "what is my dog called?", env=DENSE)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    for part in ("'gte-small@0123/4567'", "'minilm-l6-v2@", "`localmem reindex`"):
        assert part in refused.stderr
    refused = localmem("rebuild", env=DENSE)
    assert refused.returncode == 1
    assert "Bruno" in localmem("show").stdout, "a failed rebuild must not clear the memory"

    doctor = localmem("doctor", env=DENSE)
    assert doctor.returncode == 1
    assert "run `localmem reindex` to change to minilm-l6-v2" in doctor.stdout

    reindexed = localmem("reindex", "--json")
    assert reindexed.returncode == 0, reindexed.stderr
    summary = json.loads(reindexed.stdout)
    assert summary.pop("encoder").startswith("minilm-l6-v2@")
    assert summary == {"dimension": 384, "keys": 2, "encoded": 2, "dropped": 1}
    assert "Bruno" in localmem("recall", "what is my dog called?", env=DENSE).stdout
    assert "of minilm-l6-v2@" in localmem("doctor", env=DENSE).stdout
    assert localmem("reindex").stdout.startswith("2 keys use minilm-l6-v2@")
