"""Division of lessons: by user where there are several, else by session and time, and what would be empty."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from finetune.traces.division import describe_division, divide, divide_users
from finetune.traces.trace import Teacher, Trace, make_trace
from localmem.evaluation.answers import Work
from localmem.types import Completion, Message, Prompt

START = datetime(2026, 3, 1, tzinfo=UTC)


def lesson(user: str, day: int) -> Trace:
    prompt = Prompt("rsum/update", (Message("user", f"{user} on day {day}"),))
    trace = make_trace(prompt, Completion("x"), "", Teacher("t"), Work("rsum", "jsonl", user))
    return replace(
        trace, metadata=replace(trace.metadata, session=f"s{day:02}", time=START + timedelta(days=day, hours=1))
    )


def test_one_user_s_log_is_divided_by_session_and_time() -> None:
    traces = [lesson("ana", day) for day in (3, 1, 0, 2, 4, 5, 9, 8, 7, 6) for _ in range(2)]
    part_of = divide(traces)
    by_day = {trace.metadata.session: part_of(trace) for trace in traces}
    assert [by_day[f"s{day:02}"] for day in range(10)] == ["train"] * 8 + ["valid", "test"]


def test_a_time_without_a_zone_is_utc() -> None:
    traces = [lesson("ana", day) for day in range(10)]
    for place, trace in enumerate(traces[::2]):
        naive = START.replace(tzinfo=None) + timedelta(days=2 * place, hours=1)
        traces[2 * place] = replace(trace, metadata=replace(trace.metadata, time=naive))
    part_of = divide(traces)
    assert [part_of(trace) for trace in traces] == ["train"] * 8 + ["valid", "test"]


def test_several_users_are_divided_by_user_and_no_part_is_empty() -> None:
    for users in (3, 4, 7, 40):
        traces = [lesson(f"user{number}", day) for number in range(users) for day in range(4)]
        part_of = divide(traces)
        parts = {trace.metadata.work.episode: part_of(trace) for trace in traces}
        assert all(part_of(trace) == parts[trace.metadata.work.episode] for trace in traces)
        assert set(parts.values()) == {"train", "valid", "test"}


def test_many_users_stay_where_they_are_when_more_join() -> None:
    names = [("jsonl", f"user{number}") for number in range(200)]
    before, after = divide_users(names[:100]), divide_users(names)
    assert all(after[name] == part for name, part in before.items())
    assert divide_users(names[:100], seed=1) != before


def test_an_empty_part_is_said_before_with_the_cure() -> None:
    parts = "training, validation and test traces are those of different"
    assert describe_division({("jsonl", "a"): 9}) == [f"1 user: {parts} sessions, the latest for the test"]
    assert describe_division({("jsonl", name): 1 for name in "abc"}) == [f"3 users: {parts} users"]
    _, cure = describe_division({("jsonl", "a"): 2, ("jsonl", "b"): 1})
    assert cure == (
        "there would be no validation and no test traces: no user has more than 2 sessions; collect from 3 sessions of "
        "one user, or from 3 users, before training"
    )
    traces = [lesson("ana", day) for day in range(2)]
    assert {divide(traces)(trace) for trace in traces} == {"train"}
