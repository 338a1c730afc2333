"""What was erased, asked for, with one person and three systems; `scripts/drills erasure` does it with all."""

from collections import Counter
from pathlib import Path

import pytest

from localmem.evaluation.datasets.scenarios import read_people
from localmem.store import erase
from tests.drills.erasure import LESSONS, probe_erasure

PERSON = read_people(LESSONS, ("m",))[1:2]


@pytest.mark.parametrize("system", ["exchange_retrieval", "rsum", "conditionmem"])
def test_no_system_brings_back_what_was_erased(system: str, tmp_path: Path) -> None:
    total = sum(probe_erasure(tmp_path, system, PERSON).values(), Counter[str]())
    assert total["before"] > 0
    assert total["derived before"] > 0
    assert (total["after"], total["derived after"]) == (0, 0)
    assert total["others after"] >= 0.5 * total["others"] > 0  # a neighbour less changes ranks


def test_a_derived_text_that_stays_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if only what the erased session itself had made were erased, not what was made from that."""
    monkeypatch.setattr(erase, "dependents", lambda _log, roots, **_: set(roots))
    total = sum(probe_erasure(tmp_path, "rsum", PERSON).values(), Counter[str]())
    assert total["derived after"] > 0
    assert total["after"] > 0
