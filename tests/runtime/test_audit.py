"""The audit of memories in a real store: what it finds, what it leaves alone, and how its repair is undone."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.retrieval.base import passage_digest
from localmem.runtime.audit import Auditor, Finding
from localmem.server.client_tasks import is_task
from localmem.store import Store
from localmem.text.dialogue import add_units, exchange_units, statement_units
from localmem.types import AddLink, AddUnit, Change, Link, MarkUnit, RefuseText, Session, SetNote, Unit
from tests.fakes import START, session

NOW = datetime(2026, 9, 1, tzinfo=UTC)
TITLE = """### Task:
Generate a concise, 3-5 word title with an emoji summarizing the chat history.
### Output:
JSON format: { "title": "your concise title here" }
### Chat History:
<chat_history>
USER: I live in Bonn.
ASSISTANT: Nice.
</chat_history>"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path) as opened:
        yield opened


def _remember(store: Store, system: str, past: Session, changes: Sequence[Change], user: str = "ana") -> None:
    journal = store.journal(user, system)
    journal.add_turns(past.id, past.turns)
    journal.close(past.id)
    assert journal.finish(past.id, changes)


def _problems(store: Store, **options: object) -> dict[str, str]:
    (bank,) = Auditor(store, is_task).run(**options).banks  # type: ignore[arg-type]
    return {finding.item: finding.problem for finding in bank.findings}


EXCHANGES = session(
    *("I live in Bonn and sail on Sundays.", "Lovely!"),
    *("What colour is my bicycle?", "I don't know that."),
    *("What should I call my boat?", "Call it Albatross, after the bird."),
    *("Hello!", "Hello! How can I help?"),
    *(TITLE, '{"title": "Life in Bonn"}'),
)


def test_verbatim_units_that_tell_nothing_are_found(store: Store) -> None:
    _remember(store, "exchange_retrieval", EXCHANGES, add_units(exchange_units(EXCHANGES)))
    assert _problems(store) == {"s1/e1": "no evidence", "s1/e3": "no evidence", "s1/e4": "machinery"}


def _written(store: Store, *texts: str) -> None:
    past = session("I live in Bonn and sail with Rob.", "Lovely!")
    _remember(store, "memory_retrieval", past, add_units(statement_units(past, texts, "sentence", prefix="m")))


def test_what_a_model_made_up_is_found(store: Store) -> None:
    loop = "User sails and User sails and User sails and User sails and"
    _written(store, "User lives in Bonn.", "User moved to Porto in May.", "(empty)", loop, "User met Zelda.")
    (bank,) = Auditor(store).run().banks
    assert bank.findings == (
        Finding("copied from the prompt", "s1/m1", "User moved to Porto in May."),
        Finding("placeholder", "s1/m2", "(empty)"),
        Finding("loop", "s1/m3", loop),
        Finding("unsupported", "s1/m4", "User met Zelda.", "Zelda"),
    )


def test_duplicates_are_found_but_not_events_that_are_linked(store: Store) -> None:
    past = session("I sail and paint.", "Lovely!")
    units = statement_units(past, ["User sails.", "User paints.", "user sails", "User paints!"], "sentence")
    links = [AddLink(Link(units[1].id, units[3].id, "Changed"), START)]
    _remember(store, "theanine", past, [*add_units(units), *links])
    (bank,) = Auditor(store).run().banks
    assert bank.findings == (Finding("duplicate", units[2].id, "user sails", units[0].id),)


def test_contradictions_that_are_live_and_units_without_a_source_are_reported_only(store: Store) -> None:
    past = session("I moved from Bonn to Kiel.", "Oh!")
    old, new = statement_units(past, ["User lives in Bonn.", "User lives in Kiel."], "sentence")
    lost = Unit("x", "User sails.", "User sails.", "sentence", "", "s0", ("s0.0",), START, START)
    by_hand = Unit("n", "User rows.", "User rows.", "note", "", "", (), START, START)
    changes = [*add_units([old, new, lost, by_hand]), AddLink(Link(new.id, old.id, "corrects"), START)]
    _remember(store, "carecall", past, changes)
    assert _problems(store, fix_at=NOW) == {"x": "no source", old.id: "contradiction"}
    assert len(list(store.bank("ana", "carecall").live())) == 4
    assert not Auditor(store).run().is_clean


def test_a_correction_is_live_beside_what_it_corrects_and_a_replacement_is_not(store: Store) -> None:
    past = session("I moved from Bonn to Kiel.", "Oh!")
    old, new = statement_units(past, ["User lives in Bonn.", "User lives in Kiel."], "sentence")
    _remember(store, "evidence", past, [*add_units([old, new]), AddLink(Link(new.id, old.id, "supersedes"), START)])
    assert Auditor(store).run().is_clean
    store.journal("ana", "evidence").commit("by hand", [AddLink(Link(new.id, old.id, "corrects"), START)])
    assert Auditor(store).run().counts() == {"contradiction": 1}


def test_a_repair_is_one_batch_that_can_be_undone(store: Store) -> None:
    past = session("I live in Bonn.", "Lovely!")
    units = statement_units(past, ["User lives in Bonn.", "(empty)", "User moved to Porto in May."], "memory")
    note = "User lives in Bonn. User moved to Porto.\nUser likes it."
    _remember(
        store, "rsum", past, [*add_units(units), SetNote("summary", note, START), MarkUnit(units[1].id, "a", 1, START)]
    )
    before = store.bank("ana", "rsum")
    (bank,) = Auditor(store).run(fix_at=NOW).banks
    assert bank.cause == f"audit:{NOW.isoformat()}"
    after = store.bank("ana", "rsum")
    assert [unit.id for unit in after.live()] == [units[0].id]
    assert after.notes == {"summary": "User lives in Bonn.\nUser likes it."}
    assert Auditor(store).run().is_clean
    assert store.undo_batch("ana", "rsum", bank.cause) == []
    assert store.bank("ana", "rsum") == before


def test_nothing_found_changes_nothing(store: Store) -> None:
    _written(store, "User lives in Bonn.", "User sails with Rob.")
    version = store.version("ana", "memory_retrieval")
    report = Auditor(store).run(fix_at=NOW)
    assert report.is_clean
    assert report.counts() == {}
    assert [bank.cause for bank in report.banks] == [""]
    assert store.version("ana", "memory_retrieval") == version


def test_vectors_that_nothing_needs_are_counted_and_dropped(store: Store) -> None:
    _written(store, "User lives in Bonn.", "(empty)")
    texts = ["User lives in Bonn.", "(empty)", "I live in Bonn and sail with Rob.", "gone"]
    store.embeddings.put("encoder", {passage_digest(text): b"\0" * 8 for text in texts})
    report = Auditor(store).run()
    assert (report.stale_vectors, report.dropped_vectors) == (1, 0)
    repaired = Auditor(store).run(fix_at=NOW)
    assert (repaired.stale_vectors, repaired.dropped_vectors) == (2, 2), "that of what was retired too"
    assert repaired.is_clean
    assert store.embeddings.all_digests() == {passage_digest(texts[0]), passage_digest(texts[2])}


def test_users_and_systems_are_chosen_and_refusals_counted(store: Store) -> None:
    refusals: list[Change] = [RefuseText("(none)", "placeholder", "rsum/update", (), START)] * 2
    _remember(store, "rsum", session("a", "b"), refusals)
    _remember(
        store,
        "rsum",
        session("a", "b"),
        [AddUnit(Unit("u", "x y", "x", "k", "", "s1", (), START, START), START)],
        "ben",
    )
    problems: list[tuple[str, str]] = []

    def track(banks: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        problems.extend(banks)
        return banks

    report = Auditor(store).run(track=track)
    assert problems == [("ana", "rsum"), ("ben", "rsum")]
    assert [bank.refused for bank in report.banks] == [{"placeholder": 2}, {}]
    assert report.counts() == {"no source": 1}
    assert Auditor(store).run(["ana"]).is_clean, "what was kept out needs no repair"
    assert Auditor(store).run(["ben"], "carecall").banks == ()
    with pytest.raises(BadInput, match="there is no user 'cy'"):
        Auditor(store).run(["cy"])
