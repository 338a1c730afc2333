"""The audit log names who read, changed or erased whose memory, and holds no text."""

import json
from pathlib import Path

import pytest

from localmem.errors import BadSettings
from tests.server.conftest import serving
from tests.server.test_auth import say

OPERATOR = {"user": "boss", "operator": True}


def test_it_names_who_read_and_erased_what(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    keys = {"key-of-ann-1": "ann", "key-of-boss": OPERATOR, "key-to-read": {"user": "ben", "scopes": ["read"]}}
    with serving(tmp_path / "data", system="none", server={"keys": keys, "audit_log": str(file)}) as live:
        say(live.openai("key-of-ann-1"), "My dog is called Rex.")
        ann, boss, ben = (live.http(key) for key in keys)
        session = ann.get("/v1/sessions").json()["data"][0]["id"]
        assert boss.get("/v1/memories", headers={"x-localmem-user": "ann"}).status_code == 200
        assert boss.post("/v1/memories/recall", json={"text": "Rex?"}, headers={"x-localmem-user": "ann"}).is_success
        assert ben.delete("/v1/sessions/x").status_code == 403
        assert live.http("nobody").get("/v1/memories").status_code == 401
        assert ann.delete(f"/v1/sessions/{session}").is_success
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [tuple(line.values())[1:] for line in lines] == [
        ("ann", "ann", "GET", "/v1/sessions", 200),
        ("boss", "ann", "GET", "/v1/memories", 200),
        ("boss", "ann", "POST", "/v1/memories/recall", 200),
        ("ann", "ann", "DELETE", f"/v1/sessions/{session}", 200),
    ]
    assert all(line["time"].endswith("+00:00") for line in lines)
    assert "Rex" not in file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    settings = {"audit_log": str(tmp_path / "folder")}
    with pytest.raises(BadSettings, match=r"server\.audit_log cannot be written"), serving(tmp_path, server=settings):
        pass


def test_what_cannot_be_appended_is_in_the_servers_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "logs" / "audit.jsonl"
    file.parent.mkdir()
    with serving(tmp_path / "data", system="none", server={"audit_log": str(file)}) as live:
        file.unlink(missing_ok=True)
        file.parent.rmdir()
        assert live.http().get("/v1/sessions").is_success
    [record] = [record for record in caplog.records if "cannot be written" in record.message]
    assert '"method": "GET", "path": "/v1/sessions", "status": 200' in record.message
    assert record.exc_info is None
