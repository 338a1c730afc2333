"""What was erased, asked for, with one person and three systems; `scripts/drills erasure` does it with all."""

from collections import Counter
from pathlib import Path

import pytest

from localmem.evaluation.datasets.scenarios import read_people
from localmem.store.erase import Eraser
from tests.drills.erasure import LESSONS, probe_erasure

PERSON = read_people(LESSONS, ("m",))[:1]


@pytest.mark.parametrize("system", ["exchange_retrieval", "rsum", "conditionmem"])
def test_no_system_brings_back_what_was_erased(system: str, tmp_path: Path) -> None:
    total = sum(probe_erasure(tmp_path, system, PERSON).values(), Counter[str]())
    assert total["before"] > 0
    assert total["derived before"] > 0
    assert (total["after"], total["derived after"]) == (0, 0)
    assert total["others after"] >= 0.5 * total["others"] > 0  # a neighbour less changes ranks


def test_a_derived_text_that_stays_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Eraser, "_delete_derived", lambda *_: None)
    totals = probe_erasure(tmp_path, "rsum", PERSON)
    assert totals["session"]["derived after"] > 0
    assert totals["session"]["after"] > 0
