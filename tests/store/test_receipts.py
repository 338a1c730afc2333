"""Receipts: signed, verified, and honest about files that the store does not own."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.store import Store
from localmem.store.receipts import verify
from tests.store.lives import add_unit, remember

SECRET = "The key is under the third flowerpot"


def _erase(home: Path) -> dict[str, object]:
    """The receipt of an erasure, as a caller gets it."""
    with Store.open(home) as store:
        remember(store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET)], SECRET)
        document: dict[str, object] = json.loads(json.dumps(asdict(store.delete_user("ann"))))
    return document


def test_a_receipt_is_genuine_until_it_is_changed(tmp_path: Path) -> None:
    receipt = _erase(tmp_path / "home")
    assert verify(receipt, tmp_path / "home")
    assert not verify(receipt, tmp_path / "another"), "genuine, but of another home"
    for change in ({"what": "user bob"}, {"remaining": 7}, {"signature": ""}, {"key": "AAAA"}):
        with pytest.raises(BadInput, match="was changed"):
            verify({**receipt, **change}, tmp_path / "home")


def test_two_receipts_of_a_home_have_one_key(tmp_path: Path) -> None:
    first, second = _erase(tmp_path), _erase(tmp_path)
    assert first["key"] == second["key"]
    assert (tmp_path / "receipts.key").stat().st_mode & 0o077 == 0


def test_a_file_of_the_home_with_erased_words_is_named(tmp_path: Path) -> None:
    tmp_path.joinpath("export.jsonl").write_text(f'{{"text": "{SECRET}"}}')
    tmp_path.joinpath("chat_history").write_text(SECRET)
    receipt = _erase(tmp_path)
    assert receipt["files"] == [str(tmp_path / "export.jsonl")]
    assert receipt["remaining"]
    assert not tmp_path.joinpath("chat_history").exists()
    tmp_path.joinpath("export.jsonl").unlink()
    assert _erase(tmp_path)["remaining"] == 0
