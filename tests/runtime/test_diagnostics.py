"""The checks behind `localmem doctor`."""

from pathlib import Path

import pytest

from localmem.config import load_settings
from localmem.llm.remote.endpoints import Endpoint
from localmem.runtime import diagnostics
from localmem.runtime.diagnostics import Finding, check_all
from localmem.store import Store
from tests.fakes import turns
from tests.postgres_server import PostgresServer


def check(flags: dict[str, object]) -> dict[tuple[str, str], Finding]:
    return {(finding.area, finding.subject): finding for finding in check_all(load_settings(None, flags))}


def test_settings_that_reach_beyond_this_machine_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HF_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(variable, raising=False)
    local = {"data": tmp_path, "llm": {"backend": "vllm", "url": "http://ana:secret@127.0.0.1:1/v1"}}
    findings = check(local)
    assert findings["models", "backbone"].detail.endswith("served at http://ana:***@127.0.0.1:1/v1")
    assert findings["engine", "http://ana:***@127.0.0.1:1"].state == "bad"
    assert "secret" not in str(findings)
    remote = {
        "data": tmp_path,
        "llm": {"backend": "vllm", "url": "http://10.1.2.3:1/v1"},
        "server": {"host": "192.168.1.5", "keys": {"long-enough": "ana"}},
    }
    monkeypatch.setattr(Endpoint, "describe", lambda endpoint: [])  # nobody listens at that address
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example")
    findings = check(remote)
    for subject in ("llm.url", "server.host", "HF_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        assert findings["network", subject].state == "note"


def test_a_search_library_that_does_not_load_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks_cuda() -> str:
        raise RuntimeError("faiss-gpu installed but nvidia-cublas-cu12 is missing")

    monkeypatch.setattr(diagnostics, "_describe_faiss", lacks_cuda)
    finding = check({"data": tmp_path})["device", "faiss"]
    assert finding.state == "bad"
    assert finding.detail == "faiss-gpu installed but nvidia-cublas-cu12 is missing; run scripts/setup"


def test_the_models_that_the_settings_use_are_looked_for(starter_encoder_dir: Path, tmp_path: Path) -> None:
    findings = check({"data": tmp_path})
    assert findings["models", "reader"] == Finding("models", "reader", "ok", "mpnet-base-v2-reader")
    assert findings["models", "encoder"].detail == f"minilm-l6-v2 in {starter_encoder_dir}"
    assert ("models", "reader") not in check({"data": tmp_path, "chat": {"reader": "none"}})
    finding = check({"data": tmp_path, "chat": {"reader": "bge-reranker-v2-m3"}})["models", "reader"]
    assert finding.state == "bad"
    assert "localmem models pull bge-reranker-v2-m3" in finding.detail


def test_a_damaged_store_is_bad(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"not a database" * 100)
    assert check({"data": tmp_path})["store", "open"].state == "bad"
    assert check({"data": tmp_path / "new"})["store", "data directory"].state == "ok"


def test_a_session_that_is_given_up_is_named_with_the_cure(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        journal = store.journal("ana b", "rsum")
        journal.add_turns("s1", turns("Hello."))
        journal.close("s1")
        for _ in range(3):
            journal.fail("s1", "LLMError: it is out of memory")
    findings = check({"data": tmp_path})
    assert findings["store", "sessions waiting"].detail == "1"
    detail = findings["store", "failed job"].detail
    assert detail.startswith("session s1 of ana b: LLMError: it is out of memory; given up after 3 attempts")
    assert "`localmem rebuild --user 'ana b' --system rsum`" in detail


@pytest.mark.slow
def test_a_database_server_is_named_and_searched(tmp_path: Path, postgres: PostgresServer) -> None:
    index = {"index": "pgvector", "retriever": "dense"}
    with postgres.new_database() as url:
        findings = check({"data": tmp_path, "database": url, "retrieval": index})
        for subject in ("integrity", "database server", "pgvector"):
            assert findings["store", subject].state == "ok", findings
        assert findings["store", "database server"].detail.startswith("PostgreSQL 16")
    finding = check({"data": tmp_path, "database": url, "retrieval": index})["store", "open"]
    assert finding.state == "bad"
    assert "does not exist; make the database with createdb" in finding.detail
    in_a_file = check({"data": tmp_path, "retrieval": index})["store", "pgvector"]
    assert in_a_file.state == "bad"
