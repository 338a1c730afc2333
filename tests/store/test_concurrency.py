"""Many threads, and two processes, on one store: nothing is lost, mixed up or written twice."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection

from localmem.errors import BadInput, Conflict, OutOfOrder, PartialFailure
from localmem.store import Store
from localmem.store.turns import Append, to_row
from localmem.types import Turn
from tests.store.lives import START, add_unit, make_turns


def test_a_hundred_users_at_once(store: Store) -> None:
    def lead(number: int) -> None:
        journal = store.journal(f"user{number}", "rsum")
        for turn in make_turns("s1", *(f"word {n} of {number}" for n in range(6))):
            journal.add_turns("s1", [turn])
        journal.commit("s1.5", [add_unit("u1")])
        journal.close("s1")
        assert journal.finish("s1", [add_unit("u2")])

    with ThreadPoolExecutor(100) as pool:
        list(pool.map(lead, range(100)))
    for number in range(100):
        turns = store.session(f"user{number}", "s1").turns
        assert [turn.text for turn in turns] == [f"word {n} of {number}" for n in range(6)]
        assert list(store.bank(f"user{number}", "rsum").units) == ["u1", "u2"]


def test_many_new_stores_at_once(tmp_path: Path) -> None:
    """Alembic keeps the running migration in globals; two at once in one process used to end it."""

    def open_and_export(number: int) -> list[str]:
        with Store.open(tmp_path / str(number)) as store:
            store.journal("ann", "rsum").add_turns("s1", make_turns("s1", f"word of {number}"))
            return [turn.text for turn in store.session("ann", "s1").turns]

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(open_and_export, range(24))) == [[f"word of {number}"] for number in range(24)]


def test_many_threads_of_one_user(store: Store) -> None:
    """Turns of one moment from many threads of one session: each is there once, at a place of its own."""
    journal = store.journal("ann", "rsum")
    with ThreadPoolExecutor(50) as pool:
        list(pool.map(lambda n: journal.add_turns("s1", [Turn(f"t{n}", "user", "Ann", str(n), START)]), range(200)))
    assert sorted(int(turn.text) for turn in store.session("ann", "s1").turns) == list(range(200))


def test_one_transaction_takes_all_that_waits(store: Store) -> None:
    """What a group holds is settled request by request: the refused ones say why, the others are written."""
    good = [Append(f"user{n}", "s1", (to_row(make_turns("s1", "one")[0]),)) for n in range(3)]
    late = Append("user0", "s1", (to_row(Turn("late", "user", "Ann", "x", START - timedelta(days=1))),))
    more = Append("user0", "s1", (to_row(make_turns("s1", "one", "two")[1]),))
    duplicate = Append("user1", "s2", good[1].rows)

    def refuse(connection: Connection) -> None:
        connection.exec_driver_sql("DELETE FROM turns")
        raise BadInput("refused after it wrote")

    with pytest.raises(PartialFailure) as caught:
        store._writer._write([*good, late, more, duplicate, refuse])
    kinds = [type(result) for result in caught.value.results]
    assert kinds == [type(None)] * 3 + [OutOfOrder, type(None), BadInput, BadInput]
    assert [len(store.session(f"user{n}", "s1").turns) for n in range(3)] == [2, 1, 1]
    assert [info.id for info in store.sessions("user1")] == ["s1"]


def test_a_bank_has_one_writer_at_a_time(store: Store) -> None:
    """Threads that read, write and read again after a conflict all get their changes in, one after the other."""

    def write(number: int) -> int:
        journal, conflicts = store.journal("ann", "rsum"), 0
        while True:
            try:
                journal.commit(f"cause{number}", [add_unit(f"u{number}")])
                return conflicts
            except Conflict:
                conflicts += 1
                journal.bank()

    with ThreadPoolExecutor(8) as pool:
        conflicts = sum(pool.map(write, range(24)))
    assert store.bank("ann", "rsum").units.keys() == {f"u{number}" for number in range(24)}
    assert store.version("ann", "rsum") == 24
    assert conflicts >= 0


_WRITE = """
import sys
from localmem.errors import Conflict
from localmem.store import Store
from tests.store.lives import START, add_unit
from localmem.types import Turn
place, name = sys.argv[1:]
with Store.open(place) as store:
    print("open", flush=True)
    sys.stdin.readline()
    ours, shared = store.journal(name, "rsum"), store.journal("shared", "rsum")
    for number in range(60):
        ours.add_turns("s1", [Turn(f"t{number}", "user", name, str(number), START)])
        shared.add_turns("s1", [Turn(f"{name}{number}", "user", name, str(number), START)])
        while True:
            try:
                shared.commit(f"{name}{number}", [add_unit(f"{name}{number}")])
                break
            except Conflict:
                shared.bank()
"""


def test_two_processes_share_a_store(place: str) -> None:
    """Both open it anew at the same moment, which also makes one of them wait for the other's migration."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITE, place, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("ann", "bob")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
    for writer in writers:
        writer.communicate("go\n", timeout=120)
        assert writer.returncode == 0
    with Store.open(place) as store:
        assert [len(store.session(name, "s1").turns) for name in ("ann", "bob", "shared")] == [60, 60, 120]
        units = store.bank("shared", "rsum").units
        assert [key for key in units if key.startswith("ann")] == [f"ann{number}" for number in range(60)]
        assert len(units) == store.version("shared", "rsum") == 120
        assert store.problems() == []


def test_a_reader_sees_one_moment(store: Store) -> None:
    """An export that is being read is not touched by what is written meanwhile."""
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "one"))
    lines = store.export("ann")
    first = next(lines)
    journal.add_turns("s1", make_turns("s1", "one", "two"))
    journal.commit("c", [add_unit("u1")])
    assert len([first, *lines]) == 3
    assert len(list(store.export("ann"))) == 5


def test_what_another_process_logs_under_an_erased_name_is_seen(store: Store) -> None:
    """As many turns and changes as before the erasure are not taken for those that were read."""
    ours, theirs = store.journal("ann", "rsum"), store.journal("ann", "rsum")
    for start in (START, START + timedelta(days=1)):
        for session in ("s1", "s2"):
            theirs.add_turns(session, make_turns(session, "one", "two", start=start))
        theirs.close("s2")
        theirs.commit("s1.1", [add_unit("u1", text=f"said on {start}")])
        assert not ours.is_current()
        read = ours.reread({"s1": (2, START + timedelta(minutes=1))}, {"s2": (2, START + timedelta(minutes=1))})
        assert (read is None) == (start == START)
        ours.bank()
        store.delete_user("ann")
        theirs.bank()
