"""Every memory system on every engine's wire: what it needs of a backbone, each engine does in one way or another."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localmem import factory
from localmem.chat.conversation import Conversation
from localmem.config import load_settings, system_names
from localmem.llm.remote.remote_llm import RemoteLLM
from tests.fakes import START, MemoryJournal, WordRetriever, session
from tests.llm.remote.conftest import Peer
from tests.llm.remote.engines import MODEL, WIRES

pytestmark = pytest.mark.slow

ASKS_WHEN_A_SESSION_ENDS = {"rsum", "summem", "comedy", "carecall", "memorybank", "theanine", "creem", "conditionmem"}


@pytest.fixture(params=WIRES)
def remote(request: pytest.FixtureRequest, peer: Peer) -> Iterator[RemoteLLM]:
    peer.reply = WIRES[request.param]
    remote = RemoteLLM(peer.url, name=MODEL)
    yield remote
    remote.close()


@pytest.mark.parametrize("system", system_names())
def test_a_session_is_remembered_and_the_next_one_answered(
    system: str, remote: RemoteLLM, peer: Peer, tmp_path: Path
) -> None:
    settings = load_settings(flags={"system": system, "data": tmp_path})
    memory = factory.memory(settings, factory.Parts(remote, WordRetriever))
    agent = Conversation(memory=memory, llm=remote, journal=MemoryJournal())
    agent.writer.read([session("I sail a boat on the lake.", "Lovely.", "It is old.", "Nice.")])
    count = len(peer.requests)
    assert agent.chat("What do I do on the lake?", START.replace(year=2027)).completion.text == "fine"
    agent.end_session()
    assert len(peer.requests) - count > (system in ASKS_WHEN_A_SESSION_ENDS)
