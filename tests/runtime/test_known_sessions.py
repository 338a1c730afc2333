"""What of a file's sessions is new to the log, and that nothing of it is lost without a word."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from localmem.runtime.known_sessions import Selection, select_new
from localmem.store import Store
from localmem.types import AddUnit, Session, Turn, Unit

NOW = datetime(2026, 3, 2, 18, tzinfo=UTC)
WORDS = ("I keep bees.", "Nice.", "I have a dog.", "Lovely.")


def make_session(name: str, *texts: str) -> Session:
    roles: Sequence[str] = ("user", "assistant")
    turns = [Turn(f"{name}.{n}", roles[n % 2], "User", text, NOW) for n, text in enumerate(texts)]  # type: ignore[arg-type]
    return Session(name, tuple(turns))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path) as store:
        yield store


@pytest.fixture
def log(store: Store) -> Callable[[Session], None]:
    """Logs a session and remembers each of its turns as a unit."""

    def write(session: Session) -> None:
        journal = store.journal("ana", "evidence")
        journal.add_turns(session.id, session.turns)
        journal.close(session.id)
        units = [
            Unit(f"{turn.id}@u0", turn.text, turn.text, "turn", "User", session.id, (turn.id,), NOW, NOW)
            for turn in session.turns
        ]
        journal.finish(session.id, [AddUnit(unit, NOW) for unit in units])

    return write


def select(store: Store, *sessions: Session) -> Selection:
    return select_new(sessions, store, "ana", "evidence")


def test_an_edited_session_and_another_with_its_id_are_continued_once(
    store: Store, log: Callable[[Session], None]
) -> None:
    """Whatever the order in which versions of it come, and however often one place was edited."""
    original, grown = make_session("1", *WORDS), make_session("1", *WORDS, "His name is Rex.")
    edited = make_session("1", *WORDS[:2], "I have a cat.", "Lovely.", "Her name is Tia.")
    again = make_session("1", *WORDS[:2], "I have a hen.")
    other = make_session("1", "I have a dog called Rex.")
    log(original)
    names = {"1+2": edited.turns[2:], "1+4": grown.turns[4:], "1+2~2": again.turns[2:], "1+0": other.turns}
    for version, (name, turns) in zip((edited, grown, again, other), names.items(), strict=True):
        selection = select(store, version)
        part = Session(name, tuple(replace(turn, id=f"{name}.{n}") for n, turn in enumerate(turns)))
        assert selection == Selection([part])
        log(part)
    versions = (other, again, edited, grown, original)
    assert select(store, *versions) == Selection(unchanged=len(versions))


def test_of_an_edited_session_no_erased_turn_comes_back(store: Store, log: Callable[[Session], None]) -> None:
    log(make_session("1", *WORDS))
    store.delete_units("ana", "evidence", "1.2@u0", sources=True)
    selection = select(store, make_session("1", "I keep hens.", *WORDS[1:]))
    assert selection.new == [store.session("ana", "1")]  # what is left of it is read again
    assert selection.skipped == [
        "session '1' is not imported from its turn 1 on: it was edited, and turns were erased; give it another id"
    ]


@pytest.mark.parametrize("lost", ["1", "1+2"])
def test_of_a_part_that_was_erased_no_turn_comes_back_where_an_edited_part_remains(
    store: Store, log: Callable[[Session], None], lost: str
) -> None:
    """Whether it is the first part or a later one; beyond the longest part what is new is imported."""
    old = make_session("1", *WORDS, "Her name is Ada.", "A fine name.")
    edited = make_session("1", *WORDS[:4], "His name is Rex.", "A fine name.")
    for version in (old,) if lost == "1" else (make_session("1", *WORDS[:2]), old):
        log(select(store, version).new[0])
    log(select(store, edited).new[0])
    store.delete_session("ana", lost)
    selection = select(store, old)
    assert (selection.new, selection.skipped[0]) == (
        [],
        "session '1' is not imported from its turn 5 on: it was edited, and turns were erased; give it another id",
    )
    grown = make_session("1", *(turn.text for turn in edited.turns), "He is a greyhound.")
    assert [session.id for session in select(store, grown).new] == ["1+6"]


def test_what_is_new_of_grown_sessions_is_read_by_its_time(store: Store, log: Callable[[Session], None]) -> None:
    log(make_session("1", *WORDS[:2]))
    later, new = make_session("1", *WORDS), make_session("2", "Hello.")
    late = [replace(turn, time=NOW + timedelta(days=1)) for turn in later.turns[2:]]
    later = replace(later, turns=(*later.turns[:2], *late))
    assert [session.id for session in select(store, later, new).new] == ["2", "1+2"]


def test_a_known_session_its_start_and_its_visible_turns_are_skipped(
    store: Store, log: Callable[[Session], None]
) -> None:
    log(make_session("1", *WORDS))
    for texts in (WORDS, WORDS[:1], WORDS[2:]):
        assert select(store, make_session("1", *texts)) == Selection(unchanged=1)


@pytest.mark.parametrize("numbered_by_server", [False, True])
def test_a_grown_session_is_continued_after_its_parts(
    store: Store, log: Callable[[Session], None], numbered_by_server: bool
) -> None:
    log(make_session("1", *WORDS[:2]))
    part = replace(make_session("1", *WORDS), id="1+2", turns=make_session("1", *WORDS).turns[2:])
    log(replace(make_session("1+2", *WORDS[2:])) if numbered_by_server else part)
    grown = make_session("1", *WORDS, "His name is Rex.")
    assert select(store, grown) == Selection([Session("1+4", (replace(grown.turns[4], id="1+4.0"),))])


@pytest.mark.parametrize("number", [0, 2])
def test_erased_turns_stay_erased_and_are_named(store: Store, log: Callable[[Session], None], number: int) -> None:
    """Also the last ones; what is new after them is imported."""
    log(make_session("1", *WORDS))
    store.delete_units("ana", "evidence", f"1.{number}@u0", sources=True)
    grown = make_session("1", *WORDS, "His name is Rex.")
    selection = select(store, grown)
    assert selection.new[-1] == Session("1+4", (replace(grown.turns[4], id="1+4.0"),))
    assert selection.skipped == [
        "session '1': 2 turns were erased and are not imported again; give it another id to import them"
    ]


def test_what_another_system_remembered_is_remembered_as_logged(store: Store, log: Callable[[Session], None]) -> None:
    log(make_session("1", *WORDS))
    store.delete_units("ana", "evidence", "1.0@u0", sources=True)
    selection = select_new([make_session("1", *WORDS)], store, "ana", "rsum")
    assert selection.new == [store.session("ana", "1")]


def test_a_session_that_was_erased_whole_is_imported_again_only_on_request(
    store: Store, log: Callable[[Session], None]
) -> None:
    """So is the continuation of one."""
    first, grown = make_session("1", *WORDS), make_session("2", *WORDS)
    log(first)
    log(make_session("2", *WORDS[:2]))
    (part,) = select(store, grown).new
    log(part)
    for name in ("1", part.id):
        store.delete_session("ana", name)
    assert select(store, first, grown) == Selection(erased=2)
    again = select_new([first, grown], store, "ana", "evidence", with_erased=True)
    assert again == Selection([first, part])
    log(first)
    assert select(store, first) == Selection(unchanged=1)
    assert select_new([grown], store, "ben", "evidence") == Selection([grown])
