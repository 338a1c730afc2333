"""Pinned memories stand in every recall, once."""

from localmem.bank import Bank
from localmem.memory import Memory
from localmem.text.dialogue import IN_SIGHT
from localmem.turns.pins import PINNED, pinned_units, recall_with_pins
from localmem.types import AddUnit, Change, Hide, MarkUnit, Recall, Session
from tests.fakes import START, session, unit


class _Silent(Memory):
    """Recalls nothing by itself."""

    name = "silent"

    def recall(self, session: Session) -> Recall:
        return Recall("fits")

    def end_session(self, session: Session) -> list[Change]:
        return []


def _bank(*changes: Change) -> Bank:
    pins = [MarkUnit(name, PINNED, 1.0, START) for name in ("boat", "cat")]
    return Bank().apply([*(AddUnit(unit(name), START) for name in ("boat", "cat", "sea")), *pins, *changes])


def test_pinned_units_stand_before_what_fits() -> None:
    recall = recall_with_pins(_Silent(bank=_bank()), session("Hello", name="now"))
    assert recall.text.splitlines() == ["2 March 2026: boat", "2 March 2026: cat", "fits"]
    assert [hit.unit.id for hit in recall.hits] == ["boat", "cat"]


def test_what_is_unpinned_put_away_or_in_sight_is_not_added() -> None:
    bank = _bank(MarkUnit("cat", PINNED, 0.0, START), Hide("boat", "x", START))
    assert pinned_units(bank) == []
    in_sight = recall_with_pins(_Silent(bank=_bank()), session("Hello"))  # its turn is the units' own source
    assert in_sight.text == "fits"
    out_of_sight = recall_with_pins(_Silent(bank=_bank()), session(*["Hello"] * (IN_SIGHT + 2)))
    assert [hit.unit.id for hit in out_of_sight.hits] == ["boat", "cat"]
