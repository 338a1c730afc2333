"""The search for traces: it finds every piece that is there, wherever it stands, and nothing that is not."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from localmem.store.scan import file_blobs, pieces, present, text_blobs
from tests.store.lives import texts

blobs = st.binary(max_size=200)


@given(st.lists(st.binary(min_size=8, max_size=8) | st.binary(min_size=16, max_size=16)), st.lists(blobs), st.data())
def test_it_finds_what_a_plain_search_finds(wanted: list[bytes], held: list[bytes], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.sampled_from(wanted), max_size=3)) if wanted else []
    hidden = [data.draw(blobs) + piece + data.draw(blobs) for piece in places]
    expected = {piece for piece in wanted if any(piece in blob for blob in (*held, *hidden))}
    assert present(wanted, [*held, *hidden]) == expected


@given(texts.map(lambda text: text * 3))
def test_a_text_is_known_by_its_pieces(text: str) -> None:
    found = pieces([text])
    assert all(len(piece) in (8, 16) for piece in found)
    assert present(found, [b"before " + text.encode() + b" after"]) >= {
        piece for piece in found if piece in text.encode()
    }
    assert found or len(text.encode()) < 8


def test_the_forms_of_json_are_known() -> None:
    text = 'She said "no"\nand left the room for good'
    written = b'{"text":"She said \\"no\\"\\nand left the room for good"}'
    assert present(pieces([text]), [written])
    assert pieces(["short"]) == set()


def test_nothing_falls_between_two_chunks(tmp_path: Path) -> None:
    file, piece = tmp_path / "file", b"sixteen bytes!!!"
    for place in ((1 << 23) - 5, (1 << 23) - 15, (1 << 23), (1 << 24) - 1):
        file.write_bytes(b"\0" * place + piece + b"\0" * 9)
        assert present([piece], file_blobs([file, tmp_path / "missing"])) == {piece}


def test_texts_are_joined() -> None:
    assert b"".join(text_blobs(["one", "two"])) == b"one\0two"
    assert len(list(text_blobs("x" * (1 << 20) for _ in range(20)))) > 1
