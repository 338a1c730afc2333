"""An index in a file: used when it fits, built again when it does not, never an error."""

import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from localmem.retrieval import dense
from localmem.retrieval.base import IndexKind, Match
from localmem.retrieval.dense import DenseRetriever, Kind
from localmem.retrieval.row_index import RowIndex
from localmem.types import Unit
from tests.fakes import WordEncoder, unit

QUERIES = ["dog number7", "cat number12", "number399"]


@pytest.fixture(params=["hnsw", "ivf"])
def kind(request: pytest.FixtureRequest) -> Kind:
    name: Kind = request.param
    return name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "indexes" / "one.index"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The kind and size of every index that was built, but for scans."""
    builds: list[tuple[str, int]] = []
    build = RowIndex.build.__func__  # type: ignore[attr-defined]

    def spy(
        cls: type[RowIndex], kind: IndexKind, rows: dense.Rows, *, half: bool = True, device: str = "auto"
    ) -> RowIndex:
        if kind != "flat":
            builds.append((kind, len(rows)))
        index: RowIndex = build(cls, kind, rows, half=half, device=device)
        return index

    monkeypatch.setattr(RowIndex, "build", classmethod(spy))
    return builds


def units(count: int = 400, start: int = 0) -> list[Unit]:
    return [unit(f"u{n}", f"{'dog' if n % 2 else 'cat'} number{n} batch{n // 20}") for n in range(start, start + count)]


def open_retriever(file: Path, kind: Kind, items: Sequence[Unit], encoder: WordEncoder | None = None) -> DenseRetriever:
    retriever = DenseRetriever(encoder or WordEncoder(), kind=kind, file=file)
    retriever.add(items)
    return retriever


def count_rejected(retriever: DenseRetriever) -> int:
    """How many index files could not be used."""
    assert retriever._file is not None
    return retriever._file.rejected


def exact(items: Sequence[Unit], k: int = 5) -> list[list[Match]]:
    retriever = DenseRetriever(WordEncoder(), kind="flat")
    retriever.add(items)
    return retriever.search(QUERIES, k)


def test_the_next_start_reads_instead_of_building(file: Path, kind: Kind, built: list[tuple[str, int]]) -> None:
    first = open_retriever(file, kind, units())
    assert built == [(kind, 400)]
    second = open_retriever(file, kind, units())
    assert built == [(kind, 400)]
    assert count_rejected(second) == 0
    assert second.search(QUERIES, 5) == first.search(QUERIES, 5)
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_a_file_is_used_after_additions_and_removals(file: Path, kind: Kind, built: list[tuple[str, int]]) -> None:
    open_retriever(file, kind, units())
    remaining = [item for item in units() if item.id not in ("u7", "u8", "u399")]
    current = [*remaining, *units(30, start=400), unit("w7", "dog number7 again")]
    second = open_retriever(file, kind, current)
    assert built == [(kind, 400)]
    results = second.search(QUERIES, 5)
    assert [[match.id for match in matches][:2] for matches in results] == [
        [match.id for match in matches][:2] for matches in exact(current)
    ]
    second.remove(["u400"])
    second.add([unit("u8", "cat number8")])
    (matches,) = second.search(["cat number8"], 1)
    assert matches[0].id == "u8"
    assert len(second.search(["dog cat"], 1000)[0]) == len(current)


def test_a_grown_bank_is_written_again(file: Path, kind: Kind, built: list[tuple[str, int]]) -> None:
    retriever = open_retriever(file, kind, units())
    before = file.read_bytes()
    retriever.add(units(30, start=400))
    assert file.read_bytes() == before
    retriever.add(units(30, start=430))
    assert file.read_bytes() != before
    open_retriever(file, kind, units(460))
    assert built == [(kind, 400)]


def test_nothing_of_a_removed_unit_is_written_again(file: Path, kind: Kind) -> None:
    retriever = open_retriever(file, kind, units())
    retriever.remove(["u7"])
    file.unlink()  # as an erasure does
    retriever.add(units(60, start=400))
    assert not file.exists()


@pytest.mark.parametrize("change", ["another order", "another text", "other ids", "fewer rows than were lost"])
def test_a_file_of_other_units_is_built_again(
    file: Path, kind: Kind, built: list[tuple[str, int]], caplog: pytest.LogCaptureFixture, change: str
) -> None:
    open_retriever(file, kind, units())
    items = {
        "another order": units()[::-1],
        "another text": [unit("u0", "something else"), *units()[1:]],
        "other ids": [unit(f"x{n}", f"dog {n}") for n in range(50)],
        "fewer rows than were lost": [*units()[1:], units()[0]],
    }[change]
    with caplog.at_level(logging.WARNING):
        second = open_retriever(file, kind, items)
    assert (len(built), count_rejected(second)) == (2, 1)
    assert caplog.messages == [f"the index file {file} is of other units; building the index again"]
    assert [m[0].id for m in second.search([items[0].key], 1)] == [items[0].id]
    assert count_rejected(open_retriever(file, kind, items)) == 0


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "noise": lambda _: os.urandom(4000),
    "foreign": lambda _: b"SQLite format 3\0" + bytes(100),
    "no header's end": lambda data: data[:30],
    "header is no JSON": lambda data: data[:17] + b"{[}\n" + data[100:],
    "header is a list": lambda data: data[:17] + b"[1]\n",
    "header of other sizes": lambda data: data.replace(b'"rows": 400', b'"rows": 999'),
    "cut": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"x",
    "a bit of an id": lambda data: _flip(data, data.index(b'"u100"') + 2),
    "a bit of the index": lambda data: _flip(data, len(data) - 50),
    "a huge size in the index": lambda data: data.replace(data[-4000:-3992], b"\xff" * 7 + b"\x7f"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_logged_and_built_again(
    file: Path, built: list[tuple[str, int]], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    first = open_retriever(file, "hnsw", units())
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with caplog.at_level(logging.WARNING):
        second = open_retriever(file, "hnsw", units())
    assert (len(built), count_rejected(second)) == (2, 1)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"the index file {file} ")
    assert second.search(QUERIES, 5) == first.search(QUERIES, 5)
    assert count_rejected(open_retriever(file, "hnsw", units())) == 0


def test_an_intact_file_that_faiss_cannot_read_is_built_again(file: Path, built: list[tuple[str, int]]) -> None:
    from localmem.retrieval.row_index import IndexFile, IndexSnapshot, digest_rows

    rows = WordEncoder().encode([item.key for item in units()], "passage")
    snapshot = IndexSnapshot(
        [item.id for item in units()], digest_rows(rows), np.frombuffer(b"XxXx" * 100, dtype=np.uint8)
    )
    IndexFile(file).write(snapshot, "words-512 hnsw half")
    assert count_rejected(open_retriever(file, "hnsw", units())) == 1
    assert built == [("hnsw", 400)]


@pytest.mark.parametrize("other", ["encoder", "kind"])
def test_a_file_of_another_encoder_or_kind_is_not_read(file: Path, built: list[tuple[str, int]], other: str) -> None:
    open_retriever(file, "hnsw", units())
    encoder = WordEncoder()
    if other == "encoder":
        encoder.identity = "words-of-another-kind"
    second = open_retriever(file, "hnsw" if other == "encoder" else "ivf", units(), encoder)
    assert (len(built), count_rejected(second)) == (2, 1)


def test_an_unwritable_folder_is_logged_without_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "indexes").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        retriever = open_retriever(tmp_path / "indexes" / "one.index", "hnsw", units())
    assert any(message.startswith("cannot write") for message in caplog.messages)
    assert retriever.search(QUERIES, 5) == exact(units())


def test_a_scan_leaves_no_file(file: Path) -> None:
    open_retriever(file, "auto", units())
    assert not file.parent.exists()


def test_a_draft_of_a_crash_is_no_hindrance(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    open_retriever(file, "hnsw", units())
    assert list(file.parent.iterdir()) == []


def test_the_header_names_encoder_and_kind(file: Path) -> None:
    open_retriever(file, "ivf", units())
    header = json.loads(file.read_bytes().split(b"\n")[1])
    assert (header["made_by"], header["rows"]) == ("words-512 ivf half", 400)
