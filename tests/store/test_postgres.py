"""A store on a real PostgreSQL server: what users meet there and not on SQLite."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import NullPool, create_engine, exc, insert, make_url, text

from localmem.errors import NewerStore, StoreError
from localmem.store import Store, postgres
from localmem.store.digest_files import DigestFiles
from localmem.store.schema import SCRIPTS, sessions, turns
from localmem.store.unlogged_messages import UnloggedMessages
from localmem.types import Message
from tests.postgres_server import PostgresServer
from tests.store.fixtures import REVISIONS
from tests.store.lives import add_unit, make_turns, remember

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.new_database() as place:
        yield place


def test_a_url_without_a_driver_gets_psycopg(url: str) -> None:
    with Store.open(url.replace("postgresql+psycopg", "postgresql")) as store:
        assert store.where.startswith("postgresql+psycopg://")
        assert store.users() == []
        assert store.server.startswith("PostgreSQL 16")


def test_what_cannot_be_reached_is_one_line(url: str) -> None:
    for place, message in (
        (make_url(url).set(database="nothing"), "does not exist; make the database with createdb"),
        (make_url("postgresql://ann:secret@127.0.0.1:1/name"), "no PostgreSQL server answers at .*Connection refused"),
        (make_url(url).set(query={"host": "/tmp/no-such-folder"}), "no PostgreSQL server answers at"),  # noqa: S108
        (make_url(f"{url}&sslpassword=secret").set(database="nothing"), "does not exist; make the database"),
        (make_url(url).set(username="nobody"), "does not exist; make the database with createdb|refuses the user"),
    ):
        with pytest.raises(StoreError, match=message) as caught:
            Store.open(place.render_as_string(hide_password=False))
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)


def test_what_a_server_refuses_is_one_line() -> None:
    for state, message in (
        ("28P01", "refuses the user or the password"),
        ("53100", "the disk of the server"),
        ("53300", "has no connection left"),
        ("25006", "is read-only, a standby perhaps"),
        ("57P01", "is stopping or starting"),
        ("42501", r"lacks a right \(denied\)"),
    ):
        error = exc.OperationalError("SELECT 1", {}, _refusal(state))
        assert message.replace("\\", "") in (postgres.describe_error(error, "postgresql://host/name") or "")
    assert postgres.is_retriable(exc.OperationalError("SELECT 1", {}, _refusal("40P01")))


def _refusal(state: str) -> Exception:
    error = Exception("denied")
    error.sqlstate = state  # type: ignore[attr-defined]  # as psycopg's errors have it
    return error


def test_an_old_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "OLDEST", 99)
    with pytest.raises(StoreError, match="PostgreSQL 16 is too old for a store; use 99 or later"):
        Store.open(url)


def test_it_goes_on_after_a_restart_of_the_server(url: str, postgres: PostgresServer) -> None:
    with Store.open(url) as store:
        remember(store, "ann", "rsum", "s1", [add_unit("u1")])
        postgres.stop("fast")
        with pytest.raises(StoreError, match="no PostgreSQL server answers"):
            store.users()
        postgres.start()
        assert store.users() == ["ann"]
        remember(store, "ann", "rsum", "s2", [add_unit("u2")])


def test_a_dump_is_a_backup(url: str, postgres: PostgresServer) -> None:
    with Store.open(url) as store:
        remember(store, "ann", "rsum", "s1", [add_unit("u1", text="Łódź")])
        lines = list(store.export("ann"))
    dump = postgres.run("pg_dump", "--no-owner", str(make_url(url).database))
    with postgres.new_database() as other:
        postgres.run("psql", "--quiet", "--set", "ON_ERROR_STOP=1", str(make_url(other).database), stdin=dump)
        with Store.open(other) as restored:
            assert list(restored.export("ann")) == lines


def test_a_store_of_the_first_release_is_migrated_under_servers_that_start_at_once(url: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, REVISIONS[0])
        connection.execute(insert(sessions).values(user="ann", id="s1", state="open", position=1, started=0, ended=0))
        turn = {"user": "ann", "session": "s1", "position": 0, "id": "t1", "role": "user", "speaker": "Ann"}
        connection.execute(insert(turns).values(**turn, text="Łódź", time=0, zone=0))
    with ThreadPoolExecutor(3) as pool:
        stores = list(pool.map(lambda _: Store.open(url), range(3)))
    for store in stores:
        with store:
            assert [turn.text for turn in store.session("ann", "s1").turns] == ["Łódź"]


def test_a_running_server_goes_on_while_a_later_release_migrates(url: str) -> None:
    """A rolling upgrade: the old servers run until they are replaced, and none of them starts again."""
    with Store.open(url) as old:
        remember(old, "ann", "rsum", "s1", [add_unit("u1")])
        with create_engine(url, poolclass=NullPool).begin() as connection:
            connection.execute(text("ALTER TABLE sessions ADD COLUMN title text"))
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        remember(old, "ann", "rsum", "s2", [add_unit("u2", "s2")])
        assert list(old.bank("ann", "rsum").units) == ["u1", "u2"]
        with pytest.raises(NewerStore, match="update localmem"):
            Store.open(url)


def test_any_server_answers_at_once_with_what_another_has_remembered(url: str) -> None:
    """A journal of another process sees the new version at its next question, with no notice and no delay."""
    with Store.open(url) as first, Store.open(url) as second:
        ours, theirs = first.journal("ann", "rsum"), second.journal("ann", "rsum")
        for number in range(10):
            writer, reader = (ours, theirs) if number % 2 else (theirs, ours)
            writer.commit(f"c{number}", [add_unit(f"u{number}")])
            assert not reader.is_current()
            assert list(reader.bank().units) == [f"u{n}" for n in range(number + 1)]
            assert reader.is_current()


def test_a_session_that_another_server_closes_gets_no_further_turn(url: str) -> None:
    """However the two meet: a turn is either refused, or the session that the job will read holds it."""
    with Store.open(url) as first, Store.open(url) as second, ThreadPoolExecutor(2) as pool:
        for number in range(20):
            session = f"s{number}"
            ours, theirs = first.journal("ann", "rsum"), second.journal("ann", "rsum")
            ours.add_turns(session, make_turns(session, "one"))
            adding = pool.submit(ours.add_turns, session, [make_turns(session, "one", "two")[1]])
            closed = pool.submit(theirs.close, session).result()
            refused = adding.exception() is not None
            assert (len(closed.turns), refused) in ((1, True), (2, False))


def test_what_one_server_erased_or_was_not_to_store_every_server_knows(url: str, tmp_path: Path) -> None:
    """Of those that share no folder too; what an earlier release wrote into its folder stays known beside it."""
    pin, bees = Message("user", "My PIN is 4711."), Message("user", "I keep bees.")
    UnloggedMessages(DigestFiles(tmp_path / "unlogged", None)).add("ann", bees)
    with Store.open(url, tmp_path / "index") as first, Store.open(url) as second:
        remember(first, "ann", "rsum", "s1", [add_unit("u1")], pin.content)
        first.delete_session("ann", "s1")
        second.unlogged.add("bob", pin, pin)
        assert second.unlogged.find("ann", [pin, Message("assistant", pin.content)]) == {pin}
        assert second.unlogged.erased_sessions("ann", ["s1", "s2"]) == {"s1"}
        assert first.unlogged.find("bob", [pin, bees]) == {pin}
        assert first.unlogged.find("ann", [pin, bees]) == {pin, bees}
        assert second.unlogged.find("ann", []) == set()


_CLAIM = """
import sys
from unittest import mock
from localmem.store import Store
with mock.patch("socket.gethostname", lambda: "elsewhere"), Store.open(sys.argv[1]) as store:
    print(store.claim(store.pending_jobs()[0]), flush=True)
    sys.stdin.read()
"""


def test_the_job_of_a_dead_server_on_another_machine_is_taken_over(url: str) -> None:
    with Store.open(url) as store:
        journal = store.journal("ann", "rsum")
        journal.add_turns("s1", make_turns("s1", "word"))
        journal.close("s1")
        (job,) = store.pending_jobs()
        worker = subprocess.Popen(
            [sys.executable, "-c", _CLAIM, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "True\n"
            assert store.pending_jobs() == []
            assert not store.claim(job)
            worker.kill()
        while not store.claim(job):  # the server notices the broken connection at once, but not within this call
            pass


def test_a_job_is_claimed_once(url: str) -> None:
    with Store.open(url) as first, Store.open(url) as second, ThreadPoolExecutor(2) as pool:
        journal = first.journal("ann", "rsum")
        for number in range(20):
            journal.add_turns(f"s{number}", make_turns(f"s{number}", "word"))
            journal.close(f"s{number}")
        for job in first.pending_jobs():
            claims = list(pool.map(lambda store, job=job: store.claim(job), (first, second)))
            assert sorted(claims) == [False, True]
