"""Pulling from a model hub: a hub on loopback, spoken to by the real library in a process of its own."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from localmem.weights import Manifest
from localmem.weights.folder import find_damage
from localmem.weights.manifest import HubSource
from localmem.weights.pull import select_files
from tests.weights.conftest import TINY

Ship = Callable[..., Path]

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = "model.safetensors"
REPOSITORY = {
    "config.json": TINY["config.json"],
    LARGE: TINY[LARGE],
    "1_Pooling/config.json": b"{}",
    "onnx/model.onnx": b"the same once more",
    "pytorch_model.bin": b"and once more",
    "README.md": b"words",
}

PULL = """
import sys
from pathlib import Path
from localmem.errors import LocalmemError
from localmem.weights import manifest
from localmem.weights.pull import pull
manifest.resource = lambda _: Path(sys.argv[1])
try:
    pull(["tiny"], print)
except LocalmemError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def _git_hash(content: bytes) -> str:
    return sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class Hub:
    """One repository at one commit. `stated_files` may differ from `files`, as on a hub with damaged storage."""

    def __init__(self) -> None:
        self.files = dict(REPOSITORY)
        self.stated_files = dict(REPOSITORY)
        self.status = 200
        self.paths: list[str] = []

    def answer(self, path: str) -> tuple[bytes | None, dict[str, str]]:
        """Content and headers for a path, as far as the library asks."""
        self.paths.append(path)
        if path.startswith("/api/models/someone/tiny/tree/"):
            return json.dumps(self._tree()).encode(), {}
        if path.startswith("/api/models/someone/tiny"):
            return json.dumps({"id": "someone/tiny", "sha": COMMIT, "siblings": self._siblings()}).encode(), {}
        name = path.removeprefix(f"/someone/tiny/resolve/{COMMIT}/")
        if name not in self.files:
            return None, {}
        etag = sha256(self.stated_files[name]).hexdigest() if name == LARGE else _git_hash(self.stated_files[name])
        return self.files[name], {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'}

    def _siblings(self) -> list[dict[str, object]]:
        return [self._sibling(name, content) for name, content in self.stated_files.items()]

    def _sibling(self, name: str, content: bytes) -> dict[str, object]:
        entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": _git_hash(content)}
        if name == LARGE:
            entry["lfs"] = {"size": len(content), "sha256": sha256(content).hexdigest(), "pointerSize": 130}
        return entry

    def _tree(self) -> list[dict[str, object]]:
        return [
            {"type": "file", "path": name, "size": len(content), "oid": _git_hash(content)}
            for name, content in self.stated_files.items()
        ]


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._send(body=False)

        def do_GET(self) -> None:
            self._send(body=True)

        def _send(self, *, body: bool) -> None:
            content, headers = hub.answer(self.path.partition("?")[0])
            self.send_response(hub.status if content is not None else 404)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if body and content:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            pass

    return Handler


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A running hub; its address is in HF_ENDPOINT."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def run(directory: Path, ship: Ship, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Pulls the hub's model in a process of its own."""
    entry = {"name": "tiny", "role": "llm", "licence": "MIT", "source": {"hub": "someone/tiny", "revision": "main"}}
    shipped = ship(entry)

    def pull(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PULL, str(shipped)],
            env={**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1", **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return pull


Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_pull_takes_what_is_loaded_and_pins_it(directory: Path, hub: Hub, run: Run) -> None:
    process = run()
    assert process.returncode == 0, process.stderr
    paths = {
        path.relative_to(directory / "tiny").as_posix() for path in (directory / "tiny").rglob("*") if path.is_file()
    }
    assert paths == {"config.json", LARGE, "1_Pooling/config.json"}
    assert "will fetch" in process.stdout
    pinned = Manifest.load().entry("tiny")
    assert isinstance(pinned.source, HubSource)
    assert pinned.source.revision == COMMIT
    assert pinned.files[LARGE].sha256 == sha256(TINY[LARGE]).hexdigest()
    (directory / "tiny" / LARGE).write_bytes(TINY[LARGE][::-1])
    assert "sha256" in (find_damage(pinned, directory / "tiny") or "")


def test_after_the_pin_a_second_pull_asks_nobody(directory: Path, hub: Hub, run: Run) -> None:
    assert run().returncode == 0
    hub.paths.clear()
    process = run()
    assert "already present (checksums match)" in process.stdout
    assert hub.paths == []


@pytest.mark.parametrize("name", [LARGE, "config.json"])
def test_a_file_that_differs_from_the_hubs_checksum_is_refused(directory: Path, hub: Hub, run: Run, name: str) -> None:
    hub.files[name] = hub.stated_files[name][::-1]
    process = run()
    assert f"PullFailed: someone/tiny: {name} differs" in process.stderr
    assert not (directory / "tiny").exists()
    hub.files[name] = hub.stated_files[name]
    assert run().returncode == 0, "a mended hub can be pulled from"


def test_a_hub_that_refuses_is_one_line(directory: Path, hub: Hub, run: Run) -> None:
    hub.status = 500
    process = run()
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith("PullFailed: someone/tiny")
    assert "Traceback" not in process.stderr


def test_a_library_told_to_stay_offline_says_what_to_unset(hub: Hub, run: Run) -> None:
    process = run(HF_HUB_OFFLINE="1")
    assert "unset HF_HUB_OFFLINE" in process.stderr
    assert hub.paths == []


def test_the_files_that_transformers_loads_are_wanted() -> None:
    names = ["config.json", "consolidated.safetensors", "model-1.safetensors", "original/x.pth", "onnx/config.json"]
    assert select_files(names, ()) == {"config.json", "model-1.safetensors"}


def test_pickled_weights_are_wanted_only_where_there_are_no_others() -> None:
    names = ["config.json", "pytorch_model.bin", "tf_model.h5"]
    assert select_files(names, ()) == {"config.json", "pytorch_model.bin"}
    assert select_files([*names, LARGE], ()) == {"config.json", LARGE}
    assert select_files(["config.json"], ()) == set()


def test_include_names_the_files_instead() -> None:
    assert select_files(["a.json", "b.bin", "c.safetensors"], ("*.json", "b.bin")) == {"a.json", "b.bin"}


def test_shipped_hub_sources_are_pinned_or_say_main() -> None:
    path = Path(__file__).parents[2] / "models" / "manifest.yaml"
    sources = [entry["source"] for entry in yaml.safe_load(path.read_text())["models"] if "hub" in entry["source"]]
    assert all(len(source["revision"]) == 40 or source["revision"] == "main" for source in sources)
