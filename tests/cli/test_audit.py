"""`localmem audit` as a user runs it: what it prints, its exit codes, and its repair with `undo`."""

import json
from pathlib import Path

from tests.cli.conftest import Run


def _log(folder: Path, *texts: str) -> Path:
    turns = [
        {"role": ("user", "assistant")[number % 2], "text": text, "time": f"2026-03-02T18:0{number}:00Z"}
        for number, text in enumerate(texts)
    ]
    path = folder / "talk.jsonl"
    path.write_text(json.dumps({"id": "talk", "turns": turns}))
    return path


def test_an_audit_finds_repairs_and_can_be_undone(localmem: Run, tmp_path: Path) -> None:
    system = ("--system", "exchange_retrieval")
    log = _log(tmp_path, "My dog is called Bruno.", "A fine name.", "What colour is my bicycle?", "I don't know that.")
    assert localmem("remember", log, "--user", "ana", *system).returncode == 0
    result = localmem("audit")
    assert result.returncode == 1, result.stderr
    assert "ana  exchange_retrieval  talk/e1  no evidence: User: What colour is my bicycle?" in result.stdout
    assert result.stdout.endswith("found: 1 no evidence\n")
    document = json.loads(localmem("audit", "--user", "ana", *system, "--json").stdout)
    assert document["counts"] == {"no evidence": 1}
    assert not document["clean"]
    fixed = localmem("audit", "--fix")
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    cause = fixed.stdout.partition("--batch ")[2].partition("`")[0]
    clean = localmem("audit")
    assert (clean.returncode, clean.stdout) == (0, "nothing found\n")
    undone = localmem("undo", "--user", "ana", *system, "--batch", cause)
    assert undone.returncode == 0, undone.stderr
    assert localmem("audit").returncode == 1


def test_misuse_is_2(localmem: Run) -> None:
    assert localmem("audit", "--repair").returncode == 2
    unknown = localmem("audit", "--user", "nobody")
    assert unknown.returncode == 2
    assert "there is no user 'nobody'" in unknown.stderr
