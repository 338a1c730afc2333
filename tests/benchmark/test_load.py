"""The load benchmark: its arithmetic, its closed loop, and that a lost turn would be found."""

import json
import threading
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from localmem.benchmark.disk import fsync_ms
from localmem.benchmark.load import Plan, percentiles, rows, run, script
from localmem.chat.agent import Announce, ChatAgent
from localmem.cli import bench
from localmem.errors import BadInput, StoreError
from localmem.llm.scripted import ScriptedLLM
from localmem.store import Store
from localmem.systems.none import NoMemory
from localmem.types import Session
from tests.fakes import turns

QUICK = Plan(users=3, turns=4, think=0.0, words=5, answer=6, first_token=0.0, per_token=0.0)


def agent(user: str) -> ChatAgent:
    return ChatAgent(memory=NoMemory(), llm=ScriptedLLM(script(QUICK)))


def test_percentiles_are_nearest_rank() -> None:
    found = percentiles([float(number) for number in range(1, 101)])
    assert found == {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "mean": 50.5, "max": 100.0}
    assert percentiles([7.0])["p99"] == 7.0
    assert percentiles([]) == {}


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=200))
def test_at_least_that_share_lies_at_or_below_a_percentile(values: list[float]) -> None:
    found = percentiles(values)
    for rank in (50, 90, 95, 99):
        assert sum(value <= found[f"p{rank}"] + 0.001 for value in values) * 100 >= rank * len(values)


def test_every_user_says_every_turn_and_all_of_them_count() -> None:
    measured = run(QUICK, agent)
    assert Counter(sample.user for sample in measured.samples) == {f"user{number:04d}": 4 for number in range(3)}
    assert all(len(said) == 8 for said in measured.acknowledged.values())
    assert all(0 <= sample.acknowledged_ms <= sample.turn_ms for sample in measured.samples)
    assert measured.figures(QUICK)["turns"] == 12
    assert len(rows(measured)) == 12


def test_users_talk_at_the_same_time_and_wait_for_their_replies() -> None:
    talking, most, guard = 0, 0, threading.Lock()
    plan = Plan(users=5, turns=2, think=0.0, answer=4, first_token=0.05, per_token=0.0)

    class Watched(ScriptedLLM):
        def stream(self, prompt):  # type: ignore[no-untyped-def]
            nonlocal talking, most
            with guard:
                talking += 1
                most = max(most, talking)
            completion = yield from super().stream(prompt)
            with guard:
                talking -= 1
            return completion

    llm = Watched(script(plan), first_token=0.05)
    measured = run(plan, lambda _user: ChatAgent(memory=NoMemory(), llm=llm))
    assert most > 1
    assert all(sample.turn_ms >= 50 for sample in measured.samples)


def test_seconds_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(users=2, turns=None, seconds=0.3, think=0.0, answer=2, first_token=0.01, per_token=0.0)
    measured = run(plan, agent)
    assert measured.samples
    assert max(sample.began for sample in measured.samples) < 10


def test_a_turn_that_fails_is_counted_and_the_user_goes_on() -> None:
    class Unlucky(ChatAgent):
        def hear(
            self, text: str, time: datetime, session_id: str | None = None, announce: Announce | None = None
        ) -> Session:
            if self.session and len(self.session.turns) == 2 and not self.__dict__.setdefault("failed", False):
                self.__dict__["failed"] = True
                raise StoreError("the disk is full")
            return super().hear(text, time, session_id, announce)

    measured = run(QUICK, lambda _user: Unlucky(memory=NoMemory(), llm=ScriptedLLM(script(QUICK))))
    assert measured.failed == {"StoreError": 3}
    assert len(measured.samples) == 3 * 3


def load(tmp_path: Path, *arguments: str) -> Result:
    quick = ("--users", "3", "--turns", "2", "--think", "0", "--first-token", "0", "--per-token", "0")
    where = ("--data", str(tmp_path / "store"), "--system", "none")
    return CliRunner().invoke(bench.bench, ["load", *quick, *where, *arguments])


def test_the_command_gives_one_document_with_all_that_made_it(tmp_path: Path) -> None:
    done = load(tmp_path, "--json", "--samples", str(tmp_path / "samples.jsonl"))
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["turns"] == 6
    assert report["acknowledged"] == 12
    assert report["lost"] == 0
    assert report["failed"] == {}
    assert set(report["acknowledged_ms"]) == {"p50", "p90", "p95", "p99", "mean", "max"}
    assert 0 < report["fsync_ms"]["p50"] <= report["fsync_ms"]["p95"]
    assert report["plan"]["users"] == 3
    assert report["settings"]["system"] == "none"
    assert report["machine"]["file_system"]
    assert report["versions"]["sqlite"]
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 6


def test_the_table_says_what_was_measured(tmp_path: Path) -> None:
    done = load(tmp_path)
    assert done.exit_code == 0, done.output
    assert "turn durable" in done.stdout
    assert "the disk's fsync" in done.stdout
    assert "12 turns acknowledged, 0 of them not found" in done.stdout


def test_the_disk_is_measured_and_left_clean(tmp_path: Path) -> None:
    found = fsync_ms(tmp_path, 5)
    assert len(found) == 5
    assert min(found) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_turn_that_the_store_does_not_hold_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Store.session

    def forgetful(self: Store, user: str, session_id: str) -> Session:
        found = whole(self, user, session_id)
        return Session(found.id, found.turns[:-1])

    monkeypatch.setattr(Store, "session", forgetful)
    done = load(tmp_path)
    assert done.exit_code == 1
    assert "12 turns acknowledged, 3 of them not found" in done.stdout


def test_nobodys_memory_is_talked_into(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        store.journal("ann", "none").add_turns("s", turns("Hello."))
    done = load(tmp_path)
    assert isinstance(done.exception, BadInput)
    assert "holds users already" in str(done.exception)
