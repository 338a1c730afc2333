"""`localmem reindex` as a user runs it: refused with one line, cured by the command that the line names."""

import json
from pathlib import Path

import numpy as np
import pytest

from localmem.store import Store
from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("starter_encoder_dir")
DENSE = {"LOCALMEM_RETRIEVAL__RETRIEVER": "dense"}


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
    for part in ("'gte-small@0123/4567', not 'minilm-l6-v2@", "`localmem reindex`", "back to 'gte-small'"):
        assert part in refused.stderr
    refused = localmem("rebuild", env=DENSE)
    assert refused.returncode == 1
    assert "Bruno" in localmem("show").stdout  # and nothing was taken back

    report = localmem("doctor", env=DENSE)
    assert report.returncode == 1
    assert "run `localmem reindex` to change over to minilm-l6-v2" in report.stdout

    done = localmem("reindex", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report.pop("encoder").startswith("minilm-l6-v2@")
    assert report == {"dimension": 384, "keys": 1, "encoded": 1, "dropped": 1}
    assert "Bruno" in localmem("recall", "what is my dog called?", env=DENSE).stdout
    assert "of minilm-l6-v2@" in localmem("doctor", env=DENSE).stdout
    assert "1 keys are kept with minilm-l6-v2@" in localmem("reindex").stdout
