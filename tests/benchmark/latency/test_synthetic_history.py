"""The past of every system is made by the system itself, without weights, and is the same for every user."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from localmem import factory
from localmem.bank import Bank
from localmem.benchmark.latency import synthetic_history
from localmem.chat.agent import ChatAgent
from localmem.config import load_settings
from localmem.factory import SYSTEMS
from localmem.journal import Journal
from localmem.types import AddUnit, Change
from tests.fakes import MemoryJournal, WordEncoder, WordRetriever
from tests.llm.asking import ask


def _changes(system: str) -> Sequence[Change]:
    settings = load_settings(flags={"system": system})
    llm = synthetic_history.scripted(20, name="scripted")

    def reader(journal: Journal) -> ChatAgent:
        memory = factory.memory(settings, factory.Parts(llm, WordRetriever), Bank())
        return ChatAgent(memory=memory, llm=llm, journal=journal)

    return synthetic_history.changes(reader, synthetic_history.sessions(3, 3, seed=1))


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_comes_to_a_past_of_its_own_kind(system: str) -> None:
    if system == "secom":
        pytest.skip("LLMLingua-2's weights are on no package registry")
    made = _changes(system)
    bank = Bank().apply(made)
    assert bool(made) == (system != "none")
    units = [change for change in made if isinstance(change, AddUnit)]
    assert units or bank.notes or system == "none"
    journal = MemoryJournal()
    synthetic_history.give(journal, made)
    assert journal.bank() == bank
    assert made == _changes(system)


def test_sessions_are_a_day_apart_and_all_before_today() -> None:
    made = synthetic_history.sessions(4, 2, seed=3)
    assert [len(session.turns) for session in made] == [4] * 4
    days = [(after.turns[0].time - before.turns[0].time).days for before, after in pairwise(made)]
    assert days == [1, 1, 1]
    assert made[-1].turns[-1].time < synthetic_history.today(4)
    assert made[:2] == synthetic_history.sessions(2, 2, seed=3)[:2]


def test_no_user_says_the_same_twice() -> None:
    said = synthetic_history.words(3, 5, 1, "user001")
    texts = [next(said) for _ in range(50)]
    assert len(set(texts)) == 50
    other = synthetic_history.words(3, 5, 1, "user002")
    assert next(other) != texts[0]


def test_scripted_answers_keep_to_the_format() -> None:
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
        made = json.loads(synthetic_history.answer(ask(text, schema=schema), 9))
        assert all(len(memory) <= 12 for memory in made["memories"])
        assert made["kind"] in ("a", "b")
        assert 3 <= made["from"] <= 5
        assert isinstance(made["enough"], bool)
        assert synthetic_history.answer(ask(text, choice=["yes", "no"]), 9) in ("yes", "no")
    assert len(synthetic_history.answer(ask(name="agent/respond"), 17).split()) == 17


def test_mixed_vectors_are_the_encoders_then_near_them() -> None:
    plain = WordEncoder()
    mixed = synthetic_history.Mixed(plain, most=20)
    chance = random.Random(1)
    texts = [" ".join(chance.choices("abcdefghijklmnop", k=6)) for _ in range(60)]
    rows = np.concatenate([mixed.encode(texts[:15], "passage"), mixed.encode(texts[15:], "passage")])
    assert len(plain.encoded) == 20
    assert np.allclose(rows[:20], WordEncoder().encode(texts[:20], "passage"))
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    nearest = (rows[20:] @ rows[:20].T).max(axis=1)
    assert nearest.min() > 0.6
    assert mixed.encode(["a question"], "query").shape == (1, plain.dimension)
    assert mixed.identity == plain.identity
