"""Jobs: what waits, who works on it, and what becomes of the work of a process that is gone."""

import subprocess
import sys

import pytest

from localmem.errors import BadInput
from localmem.store import Backlog, SessionJob, Store
from tests.store.lives import add_unit, make_turns, remember


def _close(store: Store, user: str, session: str, system: str = "rsum", texts: int = 2) -> None:
    journal = store.journal(user, system)
    journal.add_turns(session, make_turns(session, *["word"] * texts))
    journal.close(session)


def test_closed_sessions_wait_in_order(store: Store) -> None:
    for user, session in (("ann", "s1"), ("bob", "s1"), ("ann", "s2")):
        _close(store, user, session)
    store.journal("ann", "rsum").add_turns("s3", make_turns("s3", "still going on"))
    assert [(job.user, job.session) for job in store.pending_jobs()] == [("ann", "s1"), ("bob", "s1"), ("ann", "s2")]
    assert store.pending_jobs(system="none") == []
    assert [session.id for session in store.pending_sessions("ann", "rsum")] == ["s1", "s2"]
    store.journal("ann", "rsum").finish("s1", [])
    assert [(job.user, job.session) for job in store.pending_jobs()] == [("bob", "s1"), ("ann", "s2")]
    assert [session.id for session in store.pending_sessions("ann", "rsum")] == ["s2"]


def test_another_system_has_all_closed_sessions_to_read(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    _close(store, "ann", "s2", texts=3)
    assert store.backlog("ann", "rsum") == Backlog(sessions=1, turns=3, failed=0)
    assert store.backlog("ann", "none") == Backlog(sessions=2, turns=5, failed=0)
    assert [session.id for session in store.pending_sessions("ann", "none")] == ["s1", "s2"]
    assert store.journal("ann", "none").finish("s1", [add_unit("u1")])
    assert store.backlog("ann", "none") == Backlog(sessions=1, turns=3, failed=0)


def test_failures_are_counted_and_kept(store: Store) -> None:
    _close(store, "ann", "s1")
    _close(store, "ann", "s2")
    journal = store.journal("ann", "rsum")
    assert [journal.fail("s1", f"error {number}") for number in range(2)] == [1, 2]
    assert store.pending_jobs()[0] == SessionJob("ann", "rsum", "s1", "failed", 2, "error 1")
    assert store.backlog("ann", "rsum") == Backlog(sessions=2, turns=4, failed=1)
    assert journal.fail("s1", "error 2") == 3
    assert [job.session for job in store.pending_jobs()] == ["s2"]
    assert [job.session for job in store.pending_jobs(attempts=9)] == ["s1", "s2"]
    assert journal.finish("s1", [])
    assert journal.fail("s1", "too late") == 3
    assert store.sessions("ann")[0].jobs == {"rsum": "done"}


def test_a_session_that_goes_on_cannot_fail(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "word"))
    with pytest.raises(BadInput, match="is open"):
        journal.fail("s1", "error")
    remember(store, "ann", "rsum", "s2", [])
    assert store.journal("ann", "none").fail("s2", "error") == 1


def test_a_job_has_one_worker(store: Store) -> None:
    _close(store, "ann", "s1")
    (job,) = store.pending_jobs()
    assert store.claim(job)
    assert not store.claim(job)
    assert store.pending_jobs() == []
    store.release(job)
    assert store.pending_jobs() == [job]
    assert store.claim(job)
    assert store.journal("ann", "rsum").finish("s1", [])
    assert not store.claim(job)
    store.release(job)
    assert store.pending_jobs() == []


_CLAIM = """
import sys
from localmem.store import Store
with Store.open(sys.argv[1]) as store:
    print(store.claim(store.pending_jobs()[0]), flush=True)
    sys.stdin.read()
"""


def test_the_job_of_a_dead_process_is_taken_over(store: Store, place: str) -> None:
    _close(store, "ann", "s1")
    (job,) = store.pending_jobs()
    with subprocess.Popen(
        [sys.executable, "-c", _CLAIM, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "True\n"
        assert store.pending_jobs() == []
        assert not store.claim(job)
        worker.kill()
    assert [(waiting.session, waiting.state) for waiting in store.pending_jobs()] == [("s1", "running")]
    assert store.claim(job)
