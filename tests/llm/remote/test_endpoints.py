"""Several servers of one model: who goes where, and what happens when one is gone."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from localmem.errors import LLMUnavailable
from localmem.llm.remote.endpoints import session_headers
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.llm.wrappers import ForUser
from tests.llm.prompts import ask, collect
from tests.llm.remote.conftest import CHAT, Json, Peer, Reply, running_peer
from tests.llm.remote.engines import MODEL, vllm


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    with ExitStack() as stack:
        peers = [stack.enter_context(running_peer()) for _ in range(3)]
        for peer in peers:
            peer.reply = vllm
        yield peers


@pytest.fixture
def remote(peers: list[Peer]) -> Iterator[RemoteLLM]:
    remote = RemoteLLM([peer.url for peer in peers], name=MODEL, context_length=2000)
    yield remote
    remote.close()


def away(path: str, body: Json) -> Reply:
    return 503, {"error": {"message": "loading"}}


def test_a_users_requests_go_to_one_server(peers: list[Peer], remote: RemoteLLM) -> None:
    for number in range(4):
        llm = ForUser(remote, f"user {number}")
        before = [len(peer.bodies()) for peer in peers]
        for _ in range(3):
            llm.generate([ask()])
            collect(llm.stream(ask()))
        assert sorted(len(peer.bodies()) - count for peer, count in zip(peers, before, strict=True)) == [0, 0, 6]


def test_users_are_spread_over_the_servers(remote: RemoteLLM) -> None:
    # The ports differ at each run, so the users are so many that a fair choice leaves no server out.
    first = Counter(remote.endpoints.order(f"user {number}")[0].client.url for number in range(300))
    assert len(first) == 3
    assert min(first.values()) > 50


def test_without_a_user_the_servers_take_turns(peers: list[Peer], remote: RemoteLLM) -> None:
    remote.generate([ask(str(number)) for number in range(12)])
    assert sum(len(peer.bodies()) for peer in peers) == 12
    assert all(peer.bodies() for peer in peers)


def test_the_header_names_the_session_and_not_the_user(peers: list[Peer], remote: RemoteLLM) -> None:
    ForUser(remote, "ana").generate([ask()])
    (peer,) = (peer for peer in peers if peer.bodies())
    sent = [headers for headers, (path, _) in zip(peer.headers, peer.requests, strict=True) if path == CHAT]
    assert sent[0]["x-session-id"] == session_headers("ana")["x-session-id"]
    assert "ana" not in str(sent)
    assert session_headers("") == {}


@pytest.mark.parametrize("streamed", [True, False])
def test_a_server_that_is_gone_is_left_out_and_tried_again(
    peers: list[Peer], remote: RemoteLLM, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(remote.endpoints, "_clock", lambda: now[0])
    prompt = replace(ask(), user="ana")

    def send() -> str:
        return collect(remote.stream(prompt))[1].text if streamed else remote.generate([prompt])[0].text

    send()
    (home,) = (peer for peer in peers if peer.bodies())
    home.reply = away
    assert send() == "fine"
    tries = len(home.bodies())
    assert send() == "fine"
    assert len(home.bodies()) == tries  # left out
    home.reply = vllm
    now[0] = 31.0
    others = Counter({peer.port: len(peer.bodies()) for peer in peers if peer is not home})
    send()
    assert len(home.bodies()) == tries + 1
    assert others == Counter({peer.port: len(peer.bodies()) for peer in peers if peer is not home})


def test_all_gone_is_one_error(peers: list[Peer], remote: RemoteLLM) -> None:
    for peer in peers:
        peer.reply = away
    with pytest.raises(LLMUnavailable, match="503: loading"):
        remote.generate([ask()])
