"""When sessions end: by idle time, across restarts, with clocks that jump; what a restart keeps."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from localmem.server.idle import IdleWatch
from localmem.store import Store
from tests.server.conftest import Clock, House, serving

IDLE = timedelta(minutes=30)


class MonotonicClock:
    """A clock that only goes forward, when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def say(house: House, text: str, session: str = "s") -> str:
    body = {"model": "localmem", "messages": [{"role": "user", "content": text}]}
    answer = house.http().post("/v1/chat/completions", json=body, headers={"x-localmem-session": session})
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-localmem-session"])


@pytest.fixture
def monotonic() -> MonotonicClock:
    return MonotonicClock()


@pytest.fixture
def watch(house: House, monotonic: MonotonicClock) -> IdleWatch:
    """One that looks only when it is told to."""
    return IdleWatch(house.runtime, house.services.sessions, house.clock, idle=IDLE, monotonic=monotonic)


def test_a_session_ends_when_nobody_spoke_for_long_enough(house: House, watch: IdleWatch) -> None:
    say(house, "Hello.")
    house.clock.pass_by(minutes=20)
    say(house, "Still here.", "other")
    house.clock.pass_by(minutes=9)
    assert watch.check() == []
    house.clock.pass_by(minutes=1)
    assert watch.check() == ["s"]
    assert say(house, "Again.") == "s~2"
    house.remembered()


def test_a_look_brings_nobody_into_memory_whose_session_goes_on(house: House, watch: IdleWatch) -> None:
    say(house, "Hello.")
    house.runtime.forget_agent("ann")
    house.runtime.forget_agent(house.runtime.settings.user)
    held = len(house.runtime._agents)
    assert watch.check() == []
    assert len(house.runtime._agents) == held
    house.clock.pass_by(minutes=31)
    assert watch.check() == ["s"]


def test_a_clock_that_was_set_back_neither_stops_a_talk_nor_keeps_a_session_open(
    house: House, watch: IdleWatch, monotonic: MonotonicClock
) -> None:
    say(house, "Hello.")
    house.clock.pass_by(days=-1)
    assert say(house, "Yesterday?") == "s"
    assert watch.check() == []
    monotonic.seconds = 29 * 60
    assert watch.check() == []
    say(house, "A word.")
    assert watch.check() == []
    monotonic.seconds += 29 * 60
    assert watch.check() == []
    monotonic.seconds += 60
    assert watch.check() == ["s"]


def test_a_session_of_an_earlier_run_goes_on_or_ends(tmp_path: Path) -> None:
    clock = Clock()
    with serving(tmp_path, clock=clock) as house:
        say(house, "Before.")
    with serving(tmp_path, clock=clock) as house:
        assert say(house, "After.") == "s"
        assert house.log() == [["Before.", ">You said: Before.", "After.", ">You said: After."]]
    clock.pass_by(hours=1)
    with serving(tmp_path, clock=clock, server={"idle_minutes": 0.01}) as house:
        house.remembered()
        for _ in range(100):
            if not house.runtime.store.open_sessions("me"):
                break
            house.waiting.wait(0.05)
        assert house.runtime.store.open_sessions("me") == []
        house.remembered()
        assert len(house.runtime.store.bank("me", "exchange_retrieval").units) == 2


def test_a_session_in_which_a_reply_is_given_is_not_idle(house: House, watch: IdleWatch) -> None:
    house.llm.slow(0.05)
    house.llm.answer = lambda _prompt: " ".join(["word"] * 200)
    body = {"model": "localmem", "messages": [{"role": "user", "content": "Talk."}], "stream": True, "max_tokens": 200}
    with house.http().stream("POST", "/v1/chat/completions", json=body) as stream:
        next(stream.iter_lines())
        house.clock.pass_by(hours=1)
        assert watch.check() == []
    assert house.llm.ended.wait(10)


def test_ending_a_session_that_does_not_go_on_is_an_error_and_ending_none_is_not(house: House) -> None:
    http = house.http()
    assert http.post("/v1/sessions/end", json={"session": "nothing"}).status_code == 404
    assert http.post("/v1/sessions/end").json() == {"object": "list", "ended": []}
    assert http.post("/v1/sessions/end", json={"sesion": "x"}).status_code == 400
    say(house, "One.", "a")
    say(house, "Two.", "b")
    assert sorted(http.post("/v1/sessions/end", json={}).json()["ended"]) == ["a", "b"]


@pytest.mark.parametrize("name", ["has space", "x" * 101, "-dash", "line\tbreak"])
def test_a_session_name_that_cannot_be_used_is_refused(house: House, name: str) -> None:
    body = {"model": "localmem", "messages": [{"role": "user", "content": "Hi"}], "metadata": {"session": name}}
    assert house.http().post("/v1/chat/completions", json=body).status_code == 400
    assert house.log() == []


def test_a_session_that_another_process_closed_is_followed_by_another(house: House) -> None:
    say(house, "Hello.")
    with Store.open(house.runtime.settings.store_url) as elsewhere:
        elsewhere.journal("me", "exchange_retrieval").close("s")
    assert say(house, "Again.") == "s~2"
    assert [log[0] for log in house.log()] == ["Hello.", "Again."]


def test_a_session_in_which_another_process_talked_goes_on(house: House) -> None:
    say(house, "Hello.")
    with Store.open(house.runtime.settings.store_url) as elsewhere:
        turn = replace(elsewhere.session("me", "s").turns[0], id="s.2", text="From elsewhere.", time=house.clock.time)
        elsewhere.journal("me", "exchange_retrieval").add_turns("s", [turn])
    assert say(house, "Again.") == "s"
    (log,) = house.log()
    assert log[:4] == ["Hello.", ">You said: Hello.", "From elsewhere.", "Again."]


def test_what_another_process_erased_is_not_recalled(house: House) -> None:
    say(house, "Minka is my cat.")
    house.http().post("/v1/sessions/end")
    house.remembered()
    with Store.open(house.runtime.settings.store_url) as elsewhere:
        elsewhere.delete_session("me", "s")
    say(house, "Who is Minka?")
    assert "my cat" not in "".join(message.content for message in house.llm.prompts[-1].messages)
    assert house.http().get("/v1/memories").json()["data"] == []
