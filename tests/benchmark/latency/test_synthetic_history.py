"""Every system keeps the synthetic history by its own code, without weights, the same for every user."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest

from localmem import factory
from localmem.bank import Bank
from localmem.benchmark.latency import client
from localmem.chat.conversation import Conversation
from localmem.config import load_settings
from localmem.factory import SYSTEMS
from localmem.journal import Journal
from localmem.types import AddUnit, Change
from tests.fakes import MemoryJournal, WordRetriever
from tests.llm.prompts import ask


def _changes(system: str) -> Sequence[Change]:
    settings = load_settings(flags={"system": system})
    llm = client.scripted_llm(20)

    def reader(journal: Journal) -> Conversation:
        memory = factory.memory(settings, factory.Parts(llm, WordRetriever), Bank())
        return Conversation(memory=memory, llm=llm, journal=journal)

    return client.remember(reader, client.generate_sessions(3, 3, seed=1))


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_keeps_the_history_in_its_own_form(system: str) -> None:
    if system == "secom":
        pytest.skip("LLMLingua-2's weights are on no package registry")
    changes = _changes(system)
    bank = Bank().apply(changes)
    assert bool(changes) == (system != "none")
    units = [change for change in changes if isinstance(change, AddUnit)]
    assert units or bank.notes or system == "none"
    journal = MemoryJournal()
    client.commit_history(journal, changes)
    assert journal.bank() == bank
    assert changes == _changes(system)


def test_sessions_are_a_day_apart_and_all_before_today() -> None:
    sessions = client.generate_sessions(4, 2, seed=3)
    assert [len(session.turns) for session in sessions] == [4] * 4
    days = [(after.turns[0].time - before.turns[0].time).days for before, after in pairwise(sessions)]
    assert days == [1, 1, 1]
    assert sessions[-1].turns[-1].time < client.today(4)
    assert sessions[:2] == client.generate_sessions(2, 2, seed=3)[:2]


def test_no_turn_repeats() -> None:
    texts_of_user = client.user_texts(3, 5, 1, "user001")
    texts = [next(texts_of_user) for _ in range(50)]
    assert len(set(texts)) == 50
    other_user = client.user_texts(3, 5, 1, "user002")
    assert next(other_user) != texts[0]


def test_scripted_answers_fit_the_format() -> None:
    schema = {
        "type": "object",
        "properties": {
            "memories": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 9},
            "kind": {"enum": ["a", "b"]},
            "from": {"type": "integer", "minimum": 3, "maximum": 5},
            "enough": {"type": "boolean"},
        },
    }
    for text in "abcdefgh":
        value = json.loads(client.scripted_answer(ask(text, schema=schema), 9))
        assert all(len(memory) <= 12 for memory in value["memories"])
        assert value["kind"] in ("a", "b")
        assert 3 <= value["from"] <= 5
        assert isinstance(value["enough"], bool)
        assert client.scripted_answer(ask(text, choice=["yes", "no"]), 9) in ("yes", "no")
    assert len(client.scripted_answer(ask(name="agent/respond"), 17).split()) == 17
