"""Streaming clients of a real server over HTTP, the search for the most users, and AIPerf's records."""

from pathlib import Path

import pytest

from localmem.benchmark.latency.result import Sample
from localmem.benchmark.recipes import ServeRecipe
from localmem.benchmark.serving import Service, UserCount, judge, largest, most_users, talk, to_aiperf
from tests.server.conftest import KEYS, serving


def turn(number: int, ttft: float | None = 100.0, error: str | None = None, *, warm_up: bool = False) -> Sample:
    elapsed = (ttft or 0.0) + 90
    return Sample(
        "serve", "turn", "u", "s", number, 1.5, ttft, elapsed, (30.0,) * 3, 70, 0, 4, error=error, warm_up=warm_up
    )


def test_users_talk_to_a_real_server_each_in_a_session_of_its_own(tmp_path: Path) -> None:
    recipe = ServeRecipe(users=(2,), turns=2, warm_up=1, think=0.01, answer=8)
    with serving(tmp_path, server={"keys": KEYS}) as live:
        samples, seconds = talk(Service(live.url, ["key-of-ann-1", "key-of-ben-1"]), recipe, 2, "2-users")
        logs = [live.log(user) for user in ("ann", "ben")]
    assert [sample.error for sample in samples] == [None] * 6
    assert [(sample.turn, sample.warm_up) for sample in samples] == [(1, True), (2, False), (3, False)] * 2
    assert all(0 < (sample.ttft_ms or 0) <= sample.e2el_ms <= 1000 * seconds for sample in samples)
    assert [[len(session) for session in sessions] for sessions in logs] == [[6], [6]]
    assert logs[0] != logs[1]


def test_a_refused_request_is_a_failed_turn(tmp_path: Path) -> None:
    recipe = ServeRecipe(users=(1,), turns=1, warm_up=0, think=0.0)
    with serving(tmp_path, server={"keys": KEYS}) as live:
        samples, seconds = talk(Service(live.url, ["no such key"]), recipe, 1, "x")
    assert "401" in str(samples[0].error)
    result = judge(samples, seconds, 1, recipe)
    assert (result.within, result.passed) == (0.0, False)


def test_a_share_of_turns_must_keep_every_limit() -> None:
    recipe = ServeRecipe(limits={"ttft": 150.0, "tpot": 40.0}, share=0.75)
    samples = [turn(1, warm_up=True, ttft=9000.0), turn(2), turn(3), turn(4), turn(5, ttft=151.0)]
    assert judge(samples, 1.0, 1, recipe).passed
    assert not judge([*samples, turn(6, None, "ValueError: 500")], 1.0, 1, recipe).passed
    assert not judge(samples, 1.0, 1, recipe.model_copy(update={"limits": {"ttft": 150.0, "tpot": 29.0}})).passed


@pytest.mark.parametrize(
    ("can", "limit", "tried"),
    [(0, 8, [1]), (1, 8, [1, 2]), (5, 64, [1, 2, 4, 8, 6, 5]), (64, 6, [1, 2, 4, 6]), (6, 64, [1, 2, 4, 8, 6, 7])],
)
def test_the_search_doubles_and_then_halves(can: int, limit: int, tried: list[int]) -> None:
    counts = most_users(lambda users: UserCount(users, 1.0, users <= can, {}), limit)
    assert [count.users for count in counts] == tried
    assert largest(counts) == min(can, limit)


def test_records_have_aiperfs_form() -> None:
    good, bad = to_aiperf([turn(2), turn(3, None, "ValueError: 500")], began_ns=10**18)
    metadata, metrics = good["metadata"], good["metrics"]
    assert isinstance(metadata, dict)
    assert metadata["request_start_ns"] == 10**18 + 1_500_000_000
    assert metadata["request_end_ns"] == metadata["request_start_ns"] + 190_000_000
    assert (metadata["conversation_id"], metadata["turn_index"], metadata["benchmark_phase"]) == ("s", 1, "profiling")
    assert metrics == {
        "time_to_first_token": {"value": 100.0, "unit": "ms"},
        "request_latency": {"value": 190.0, "unit": "ms"},
        "inter_token_latency": {"value": 30.0, "unit": "ms"},
        "input_sequence_length": {"value": 70, "unit": "tokens"},
        "output_sequence_length": {"value": 4, "unit": "tokens"},
    }
    assert good["error"] is None
    assert bad["metrics"] == {}
    assert bad["error"] == {"message": "ValueError: 500", "type": "RequestError"}
