"""When sessions are closed: by idle time, across restarts, with clocks that jump."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from localmem.server.app import IdleWatch
from localmem.store import Store
from tests.server.conftest import Clock, LiveServer, serving
from tests.waiting import wait_until

IDLE = timedelta(minutes=30)


class MonotonicClock:
    """A clock that a test sets forward."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def send(live: LiveServer, text: str, session: str = "s") -> str:
    body = {"model": "localmem", "messages": [{"role": "user", "content": text}]}
    answer = live.http().post("/v1/chat/completions", json=body, headers={"x-localmem-session": session})
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-localmem-session"])


@pytest.fixture
def monotonic() -> MonotonicClock:
    return MonotonicClock()


@pytest.fixture
def watch(live: LiveServer, monotonic: MonotonicClock) -> IdleWatch:
    """An idle watch that checks only when a test calls it."""
    return IdleWatch(live.runtime, live.services.sessions, live.clock, idle=IDLE, monotonic=monotonic)


def test_an_idle_session_is_closed(live: LiveServer, watch: IdleWatch) -> None:
    send(live, "Hello.")
    live.clock.advance(minutes=20)
    send(live, "Still here.", "other")
    live.clock.advance(minutes=9)
    assert watch.check() == []
    live.clock.advance(minutes=1)
    assert watch.check() == ["s"]
    assert send(live, "Again.") == "s~2"
    live.wait_until_remembered()


def test_a_check_loads_no_agent_of_an_active_session(live: LiveServer, watch: IdleWatch) -> None:
    send(live, "Hello.")
    live.runtime.forget_agent("ann")
    live.runtime.forget_agent(live.runtime.settings.user)
    agent_count = len(live.runtime._agents)
    assert watch.check() == []
    assert len(live.runtime._agents) == agent_count
    live.clock.advance(minutes=31)
    assert watch.check() == ["s"]


def test_a_clock_set_back_neither_breaks_a_dialogue_nor_keeps_a_session_open(
    live: LiveServer, watch: IdleWatch, monotonic: MonotonicClock
) -> None:
    send(live, "Hello.")
    live.clock.advance(days=-1)
    assert send(live, "Yesterday?") == "s"
    assert watch.check() == []
    monotonic.seconds = 29 * 60
    assert watch.check() == []
    send(live, "A word.")
    assert watch.check() == []
    monotonic.seconds += 29 * 60
    assert watch.check() == []
    monotonic.seconds += 60
    assert watch.check() == ["s"]


def test_a_session_of_an_earlier_run_continues_or_is_closed(tmp_path: Path) -> None:
    clock = Clock()
    with serving(tmp_path, clock=clock) as live:
        send(live, "Before.")
    with serving(tmp_path, clock=clock) as live:
        assert send(live, "After.") == "s"
        assert live.log() == [["Before.", ">You said: Before.", "After.", ">You said: After."]]
    clock.advance(hours=1)
    with serving(tmp_path, clock=clock, server={"idle_minutes": 0.01}) as live:
        live.wait_until_remembered()
        wait_until(lambda: not live.runtime.store.open_sessions("me"))
        live.wait_until_remembered()
        texts = [unit.text for unit in live.runtime.store.bank("me", live.runtime.settings.system).live()]
        assert texts == ["User: Before.", "User: After."]


def test_a_session_with_a_reply_in_progress_is_not_idle(live: LiveServer, watch: IdleWatch) -> None:
    live.llm.slow(0.05)
    live.llm.answer = lambda _prompt: " ".join(["word"] * 200)
    body = {"model": "localmem", "messages": [{"role": "user", "content": "Talk."}], "stream": True, "max_tokens": 200}
    with live.http().stream("POST", "/v1/chat/completions", json=body) as stream:
        next(stream.iter_lines())
        live.clock.advance(hours=1)
        assert watch.check() == []
    assert live.llm.finished.wait(10)


def test_a_request_that_only_reads_is_not_awaited_by_what_it_waits_for(live: LiveServer) -> None:
    body = {"model": "localmem", "messages": [{"role": "user", "content": "Hello."}]}
    sessions, requests = live.services.sessions, live.services.metrics.chats.labels("read")
    with ThreadPoolExecutor() as pool:
        with sessions.current_agent("me"):  # as an erasure holds the user's memory
            post = pool.submit(live.http().post, "/v1/chat/completions", json=body, headers={"x-localmem": "read"})
            wait_until(requests._value.get)
            live.pause.wait(0.3)
            assert sessions.count_active() == 0
        assert post.result(30).status_code == 200


def test_ending_an_unknown_session_is_an_error_and_ending_none_is_not(live: LiveServer) -> None:
    http = live.http()
    assert http.post("/v1/sessions/end", json={"session": "nothing"}).status_code == 404
    assert http.post("/v1/sessions/end").json() == {"object": "list", "ended": []}
    assert http.post("/v1/sessions/end", json={"sesion": "x"}).status_code == 400
    send(live, "One.", "a")
    send(live, "Two.", "b")
    assert sorted(http.post("/v1/sessions/end", json={}).json()["ended"]) == ["a", "b"]


@pytest.mark.parametrize("name", ["has space", "x" * 101, "-dash", "line\tbreak", "line\n"])
def test_an_invalid_session_name_is_refused(live: LiveServer, name: str) -> None:
    body = {"model": "localmem", "messages": [{"role": "user", "content": "Hi"}], "metadata": {"session": name}}
    assert live.http().post("/v1/chat/completions", json=body).status_code == 400
    assert live.log() == []


def test_a_session_that_another_process_closed_is_followed_by_another(live: LiveServer) -> None:
    send(live, "Hello.")
    with Store.open(live.runtime.settings.store_url) as elsewhere:
        elsewhere.journal("me", "exchange_retrieval").close("s")
    assert send(live, "Again.") == "s~2"
    assert [log[0] for log in live.log()] == ["Hello.", "Again."]


def resume(live: LiveServer, dialogue: list[str], text: str, session: str = "") -> None:
    """Send a whole dialogue with a new message, and end the session; the dialogue grows."""
    dialogue.append(text)
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": each} for number, each in enumerate(dialogue)]
    body = {"model": "localmem", "messages": messages}
    answer = live.http().post("/v1/chat/completions", json=body, headers={"x-localmem-session": session})
    assert answer.status_code == 200, answer.text
    dialogue.append(answer.json()["choices"][0]["message"]["content"])
    live.http().post("/v1/sessions/end")


@pytest.mark.parametrize("name", ["", "trip"])
def test_a_dialogue_is_resumed_after_many_others(live: LiveServer, name: str) -> None:
    dialogue: list[str] = []
    resume(live, dialogue, "I plan a trip.", name)
    resume(live, dialogue, "To Graz.", name)
    for number in range(25):
        resume(live, [], f"Talk {number}.", f"other{number}")
    resume(live, dialogue, "By train.", name)
    resume(live, dialogue, "In May.", name)
    own = [text for log in live.log() for text in log if not text.startswith((">", "Talk"))]
    assert own == ["I plan a trip.", "To Graz.", "By train.", "In May."]


def test_a_session_that_another_process_continued_continues(live: LiveServer) -> None:
    send(live, "Hello.")
    with Store.open(live.runtime.settings.store_url) as elsewhere:
        turn = replace(elsewhere.session("me", "s").turns[0], id="s.2", text="From elsewhere.", time=live.clock.time)
        elsewhere.journal("me", "exchange_retrieval").add_turns("s", [turn])
    assert send(live, "Again.") == "s"
    (log,) = live.log()
    assert log[:4] == ["Hello.", ">You said: Hello.", "From elsewhere.", "Again."]


def test_a_reply_to_what_another_process_erased_meanwhile_is_not_stored(live: LiveServer) -> None:
    send(live, "My PIN is 4711.")

    def erase(_prompt: object) -> str:
        with Store.open(live.runtime.settings.store_url) as elsewhere:
            elsewhere.delete_session("me", "s")
        return "It is 4711."

    live.llm.answer = erase
    body = {"model": "localmem", "messages": [{"role": "user", "content": "What is my PIN?"}]}
    answer = live.http().post("/v1/chat/completions", json=body, headers={"x-localmem-session": "s"})
    assert answer.status_code == 404, answer.text
    assert live.log() == []


def test_two_chats_that_begin_alike_and_go_on_at_once_keep_their_replies(live: LiveServer) -> None:
    def post(*texts: str) -> str:
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
        answer = live.http().post("/v1/chat/completions", json={"model": "localmem", "messages": messages})
        return str(answer.json()["choices"][0]["message"]["content"])

    begin = ("Hello there", post("Hello there"))
    assert post("Hello there") == begin[1]  # a retry, or another window: nothing tells them apart
    live.llm.slow(0.2)
    live.llm.answer = lambda prompt: f"Good day, {prompt.messages[-1].content.split()[-1]} and all of yours"
    with ThreadPoolExecutor() as pool:
        ann = pool.submit(post, *begin, "My name is Ann.")
        while len(live.log()[0]) < 3:
            live.pause.wait(0.02)
        bob = pool.submit(post, *begin, "My name is Bob.")
    assert [message.content for message in live.llm.prompts[-1].messages[1:3]] == list(begin)
    live.llm.slow(0)
    live.llm.answer = lambda _prompt: "Bye."
    post(*begin, "My name is Ann.", ann.result(), "I am from Graz.")
    post(*begin, "My name is Bob.", bob.result(), "I am from Linz.")
    own = [f">Good day, {name} and all of yours" for name in ("Ann.", "Bob.")]
    assert live.log() == [
        [begin[0], f">{begin[1]}", "My name is Ann.", own[0], "I am from Graz.", ">Bye."],
        ["My name is Bob.", own[1], "I am from Linz.", ">Bye."],
    ]


def test_a_retry_while_the_first_reply_is_in_progress_doubles_nothing(live: LiveServer) -> None:
    live.llm.slow(0.1)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(send, live, "Hello there", "")
        while not live.log():
            live.pause.wait(0.02)
        assert send(live, "Hello there", "") == first.result()
    assert live.log() == [["Hello there", ">You said: Hello there"]]


@pytest.mark.parametrize("name", ["s", ""])
def test_an_earlier_reply_that_is_made_anew_stays_with_its_question(live: LiveServer, name: str) -> None:
    """In the session that it belongs to, as often as that is asked for; the dialogue goes on behind it."""

    def post(*texts: str) -> None:
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
        headers = {"x-localmem-session": name} if name else {}
        live.http().post("/v1/chat/completions", json={"model": "localmem", "messages": messages}, headers=headers)

    begin = ("One.", "You said: One.", "Two.")
    post("One.")
    post(*begin)
    post(*begin, "You said: Two.", "Three.")
    live.llm.answer = lambda _prompt: "Anew."
    post(*begin)
    assert [message.content for message in live.llm.prompts[-1].messages[1:]] == list(begin)
    post(*begin, "Anew.", "Four.")
    live.http().post("/v1/sessions/end")
    live.wait_until_remembered()
    before = ["One.", ">You said: One.", "Two.", ">You said: Two.", "Three.", ">You said: Three."]
    assert live.log() == [[*before, "Two.", ">Anew.", "Four.", ">Anew."]]


def test_what_another_process_erased_is_not_recalled(live: LiveServer) -> None:
    send(live, "Minka is my cat.")
    live.http().post("/v1/sessions/end")
    live.wait_until_remembered()
    with Store.open(live.runtime.settings.store_url) as elsewhere:
        elsewhere.delete_session("me", "s")
    send(live, "Who is Minka?")
    assert "my cat" not in "".join(message.content for message in live.llm.prompts[-1].messages)
    assert live.http().get("/v1/memories").json()["data"] == []
