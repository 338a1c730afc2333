"""The load benchmark: its arithmetic, its closed loop, and that a lost turn is detected."""

import json
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from localmem.benchmark.load import fsync_ms, percentiles, reply_script, run_load
from localmem.benchmark.recipes import LoadRecipe
from localmem.chat.conversation import Announce, Conversation
from localmem.cli import bench
from localmem.errors import BadInput, StoreError
from localmem.llm.scripted import ScriptedLLM
from localmem.store import Store
from localmem.systems.baselines import NoMemory
from localmem.types import Message, Session
from tests.fakes import turns

QUICK = LoadRecipe(users=3, turns=4, think=0.0, words=5, answer=6, first_token=0.0, per_token=0.0)


def agent(user: str) -> Conversation:
    return Conversation(memory=NoMemory(), llm=ScriptedLLM(reply_script(QUICK)))


def test_percentiles_are_nearest_rank() -> None:
    values = percentiles([float(number) for number in range(1, 101)])
    assert values == {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "mean": 50.5, "max": 100.0}
    assert percentiles([7.0])["p99"] == 7.0
    assert percentiles([]) == {}


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=200))
def test_a_percentile_has_its_share_at_or_below_it(values: list[float]) -> None:
    ranks = percentiles(values)
    for rank in (50, 90, 95, 99):
        assert sum(value <= ranks[f"p{rank}"] + 0.001 for value in values) * 100 >= rank * len(values)


def test_every_user_sends_every_turn() -> None:
    result = run_load(QUICK, agent)
    assert Counter(sample.user for sample in result.samples) == {f"user{number:04d}": 4 for number in range(3)}
    assert all(len(texts) == 8 for texts in result.acknowledged.values())
    assert all(0 <= sample.acknowledged_ms <= sample.turn_ms for sample in result.samples)
    assert result.figures(QUICK)["turns"] == 12


def test_users_talk_at_the_same_time_and_wait_for_replies() -> None:
    talking, maximum, lock = 0, 0, threading.Lock()
    recipe = LoadRecipe(users=5, turns=2, think=0.0, answer=4, first_token=0.05, per_token=0.0)

    class CountingLLM(ScriptedLLM):
        def stream(self, prompt):  # type: ignore[no-untyped-def]
            nonlocal talking, maximum
            with lock:
                talking += 1
                maximum = max(maximum, talking)
            completion = yield from super().stream(prompt)
            with lock:
                talking -= 1
            return completion

    llm = CountingLLM(reply_script(recipe), first_token=0.05)
    result = run_load(recipe, lambda _user: Conversation(memory=NoMemory(), llm=llm))
    assert maximum > 1
    assert all(sample.turn_ms >= 50 for sample in result.samples)


def test_seconds_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = LoadRecipe(users=2, turns=None, seconds=0.3, think=0.0, answer=2, first_token=0.01, per_token=0.0)
    result = run_load(recipe, agent)
    assert result.samples
    assert max(sample.sent for sample in result.samples) < 10


def test_a_failed_turn_is_counted_and_the_user_continues() -> None:
    class Unlucky(Conversation):
        failed = False

        def log_turns(
            self,
            messages: str | Sequence[Message],
            time: datetime,
            session_id: str | None = None,
            announce: Announce | None = None,
        ) -> Session:
            if self.sessions and len(self.sessions[-1].turns) == 2 and not self.failed:
                self.failed = True
                raise StoreError("the disk is full")
            return super().log_turns(messages, time, session_id, announce)

    result = run_load(QUICK, lambda _user: Unlucky(memory=NoMemory(), llm=ScriptedLLM(reply_script(QUICK))))
    assert result.failed == {"StoreError": 3}
    assert len(result.samples) == 3 * 3


def load(tmp_path: Path, *arguments: str) -> Result:
    quick = ("--users", "3", "--turns", "2", "--set", "think=0", "--set", "first_token=0", "--set", "per_token=0")
    where = ("--data-dir", str(tmp_path / "store"), "--system", "none")
    return CliRunner().invoke(bench.bench, ["load", *quick, *where, *arguments])


def test_the_command_prints_one_document_with_its_settings(tmp_path: Path) -> None:
    invocation = load(tmp_path, "--json", "--turn-times", str(tmp_path / "samples.jsonl"))
    assert invocation.exit_code == 0, invocation.output
    report = json.loads(invocation.stdout)
    assert report["turns"] == 6
    assert report["acknowledged"] == 12
    assert report["lost"] == 0
    assert report["failed"] == {}
    assert set(report["acknowledged_ms"]) == {"p50", "p90", "p95", "p99", "mean", "max"}
    assert 0 < report["fsync_ms"]["p50"] <= report["fsync_ms"]["p95"]
    assert report["recipe"]["users"] == 3
    assert report["settings"]["system"] == "none"
    assert report["machine"]["file_system"]
    assert report["versions"]["sqlite"]
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 6


def test_the_table_has_all_figures(tmp_path: Path) -> None:
    invocation = load(tmp_path)
    assert invocation.exit_code == 0, invocation.output
    assert "turn durable" in invocation.stdout
    assert "fsync of the disk" in invocation.stdout
    assert "12 turns acknowledged, 0 of them missing" in invocation.stdout


def test_the_fsync_test_leaves_no_file(tmp_path: Path) -> None:
    values = fsync_ms(tmp_path, 5)
    assert len(values) == 5
    assert min(values) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_lost_turn_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Store.session

    def forgetful(self: Store, user: str, session_id: str) -> Session:
        session = original(self, user, session_id)
        return Session(session.id, session.turns[:-1])

    monkeypatch.setattr(Store, "session", forgetful)
    invocation = load(tmp_path)
    assert invocation.exit_code == 1
    assert "12 turns acknowledged, 3 of them missing" in invocation.stdout


def test_a_store_with_users_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        store.journal("ann", "none").add_turns("s", turns("Hello."))
    invocation = load(tmp_path)
    assert isinstance(invocation.exception, BadInput)
    assert "already has users" in str(invocation.exception)
