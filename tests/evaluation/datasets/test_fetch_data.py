"""scripts/fetch_data.py against a server on this machine: resuming, verifying, licences, archives, and no network."""

import importlib.util
import io
import json
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


class Server(ThreadingHTTPServer):
    """Serves `files` with ranges, ends a body early after `cut` bytes once, and records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.cut: int | None = None

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server  # type: ignore[mutable-override]  # it is one by construction

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        self.server.requests.append((name, self.headers.get("Range")))
        content = self.server.files.get(name)
        if content is None:
            self.send_error(404)
            return
        tag = f'"{sha256(content).hexdigest()}"'
        start = 0
        if (requested := self.headers.get("Range")) and self.headers.get("If-Range") == tag:
            start = int(requested.removeprefix("bytes=").rstrip("-"))
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut, self.server.cut = self.server.cut, None
        self.wfile.write(content[start:] if cut is None else content[start : start + cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    local = Server()
    thread = threading.Thread(target=local.serve_forever)
    thread.start()
    yield local
    local.shutdown()
    thread.join()
    local.server_close()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_data", ROOT / "scripts" / "fetch_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fetch_data", module)
    spec.loader.exec_module(module)
    return module


def _offer(script: ModuleType, monkeypatch: pytest.MonkeyPatch, **sets: object) -> None:
    monkeypatch.setattr(script, "SETS", sets)


def _set(script: ModuleType, *sources: object, licence: str = "MIT", commercial: bool = True) -> object:
    return script.DataSet(licence, sources, commercial)


def test_a_file_is_fetched_noted_and_then_left_as_it_is(
    script: ModuleType,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.files["a.json"] = b"[1, 2]"
    _offer(script, monkeypatch, small=_set(script, script.Source(server.url("a.json"))))
    assert script.main(["small", "--into", str(tmp_path)]) == 0
    assert (tmp_path / "small" / "a.json").read_bytes() == b"[1, 2]"
    record = json.loads((tmp_path / "fetched.json").read_text())
    assert record["small/a.json"] == {
        "url": server.url("a.json"),
        "size": 6,
        "sha256": sha256(b"[1, 2]").hexdigest(),
    }
    assert script.main(["small", "--into", str(tmp_path)]) == 0
    assert server.requests == [("a.json", None)]
    message = capsys.readouterr().err
    assert "small: licence: MIT" in message
    assert "a.json is already present" in message


def test_what_has_changed_since_is_told(
    script: ModuleType,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.files["a.json"] = b"[1, 2]"
    _offer(script, monkeypatch, small=_set(script, script.Source(server.url("a.json"))))
    script.main(["small", "--into", str(tmp_path)])
    (tmp_path / "small" / "a.json").write_bytes(b"[1, 3]")
    assert script.main(["small", "--into", str(tmp_path)]) == 1
    assert "delete it and fetch it again" in capsys.readouterr().err


def test_a_known_checksum_is_checked_at_once(
    script: ModuleType,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.files["a.json"] = b"[1, 2]"
    _offer(script, monkeypatch, small=_set(script, script.Source(server.url("a.json"), sha256="0" * 64)))
    assert script.main(["small", "--into", str(tmp_path)]) == 1
    assert "instead of 0000000000000000" in capsys.readouterr().err
    assert not (tmp_path / "fetched.json").exists()


def test_a_download_goes_on_where_it_stopped(script: ModuleType, server: Server, tmp_path: Path) -> None:
    content = bytes(range(256)) * 2000
    server.files["big"] = content
    server.cut = 300_000
    with pytest.raises(script.FetchError, match="run this again to resume"):
        script.download(server.url("big"), tmp_path / "big")
    assert not (tmp_path / "big").exists()
    size = (tmp_path / "big.part").stat().st_size
    assert 0 < size <= 300_000
    script.download(server.url("big"), tmp_path / "big")
    assert (tmp_path / "big").read_bytes() == content
    assert server.requests[-1] == ("big", f"bytes={size}-")
    assert [path.name for path in tmp_path.iterdir()] == ["big"]


def test_what_changed_at_the_other_end_is_fetched_from_its_start(
    script: ModuleType, server: Server, tmp_path: Path
) -> None:
    server.files["big"] = b"old " * 100_000
    server.cut = 200_000
    with pytest.raises(script.FetchError):
        script.download(server.url("big"), tmp_path / "big")
    server.files["big"] = b"new " * 100_000
    script.download(server.url("big"), tmp_path / "big")
    assert (tmp_path / "big").read_bytes() == server.files["big"]


def test_a_download_that_only_lacked_its_name_is_taken(script: ModuleType, server: Server, tmp_path: Path) -> None:
    server.files["a"] = b"whole"
    (tmp_path / "a.part").write_bytes(b"whole")
    (tmp_path / "a.etag").write_text(f'"{sha256(b"whole").hexdigest()}"')
    script.download(server.url("a"), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_a_licence_that_forbids_commercial_use_must_be_accepted(
    script: ModuleType,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.files |= {"a.json": b"[]", "b.json": b"[]"}
    data_set = _set(script, script.Source(server.url("a.json")), licence="CC BY-NC 4.0", commercial=False)
    _offer(script, monkeypatch, closed=data_set, free=_set(script, script.Source(server.url("b.json"))))
    assert script.main(["all", "--into", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert "closed: licence: CC BY-NC 4.0" in message
    assert "give --accept-nc" in message
    assert "missing: closed" in message
    assert (tmp_path / "free" / "b.json").is_file()
    assert script.main(["closed", "--accept-nc", "--into", str(tmp_path)]) == 0
    assert (tmp_path / "closed" / "a.json").is_file()


def _tar(names: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive.getvalue()


def test_archives_are_unpacked_and_keep_to_their_folder(
    script: ModuleType, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    zipped, table = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("in/b.json", "[]")
    parquet.write_table(pa.table({"conversation_id": ["0"], "sessions": [[["[human]: hi"]]]}), table)
    server.files |= {
        "x.tar.gz": _tar({"deep/a.txt": b"a"}),
        "x.zip": zipped.getvalue(),
        "x.parquet": table.getvalue(),
    }
    sources = [script.Source(server.url(name)) for name in server.files]
    _offer(script, monkeypatch, packed=_set(script, *sources))
    files = script.fetch("packed", tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in files] == [
        "packed/deep/a.txt",
        "packed/in/b.json",
        "packed/x.jsonl",
    ]
    assert json.loads(files[2].read_text()) == {"conversation_id": "0", "sessions": [["[human]: hi"]]}
    server.files["x.tar.gz"] = _tar({"../out.txt": b"a"})
    _offer(script, monkeypatch, evil=_set(script, sources[0]))
    with pytest.raises(script.FetchError, match="cannot unpack"):
        script.fetch("evil", tmp_path)
    assert not (tmp_path / "out.txt").exists()


def test_no_network_no_file_and_no_such_name_are_one_line(
    script: ModuleType,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    closed = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = closed.server_address[1]
    closed.server_close()
    _offer(
        script,
        monkeypatch,
        away=_set(script, script.Source(f"http://127.0.0.1:{port}/a")),
        gone=_set(script, script.Source(server.url("gone"))),
    )
    assert script.main(["away", "gone", "--into", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert "cannot reach 127.0.0.1" in message
    assert "check the network" in message
    assert f"{server.url('gone')} returned 404" in message
    assert script.main(["nothing"]) == 2
    assert "no data set 'nothing'; choose from away, gone" in capsys.readouterr().err


def test_the_list_names_every_licence(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(script.SETS)
    for line, (name, data_set) in zip(lines, script.SETS.items(), strict=True):
        assert line.startswith(name)
        assert data_set.licence in line
        assert ("--accept-nc" in line) == (not data_set.commercial)
    files = [(name, source.file) for name, data_set in script.SETS.items() for source in data_set.sources]
    assert len(files) == len(set(files))
