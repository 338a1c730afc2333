"""Exchange retrieval and memory retrieval: what becomes a unit, and what comes back."""

import json
from datetime import timedelta

from localmem.llm.scripted import ScriptedLLM
from localmem.systems.exchange_retrieval import ExchangeRetrieval
from localmem.systems.memory_retrieval import MemoryRetrieval
from localmem.text.summarize import Summarizer
from localmem.types import AddUnit, Change, JsonSchema, Prompt, Unit
from tests.fakes import START, WordRetriever, session


def _units(changes: list[Change]) -> list[Unit]:
    return [change.unit for change in changes if isinstance(change, AddUnit)]


def test_each_exchange_is_a_unit_with_its_source_and_time() -> None:
    memory = ExchangeRetrieval(retriever=WordRetriever())
    said = session("my dog is Bruno", "nice", "my cat is Tom", "sweet")
    first, second = _units(memory.end_session(said))
    assert "my dog is Bruno" in first.key
    assert first.sources == ("s1.0", "s1.1")
    assert (first.time, second.time) == (said.turns[0].time, said.turns[2].time)
    assert first.learned == said.turns[-1].time
    assert memory.end_session(said) == memory.end_session(said)


def test_the_nearest_come_back_in_the_order_of_time_with_their_dates() -> None:
    memory = ExchangeRetrieval(retriever=WordRetriever(), k=2)
    memory.apply(memory.end_session(session("I live in Paris", "ok", "I eat bread", "ok")))
    later = session("now I live in Lyon", "ok", name="s2", start=START + timedelta(days=7))
    memory.apply(memory.end_session(later))
    found = memory.recall(session("where do I live", name="s3"))
    assert [hit.unit.id for hit in found.hits] == ["s1/e0", "s2/e0"]
    assert found.text.index("2 March 2026") < found.text.index("9 March 2026")
    assert found.proposed == ()


def _summarizer(*sentences: str, asked: list[Prompt] | None = None) -> Summarizer:
    def script(prompt: Prompt) -> str:
        if asked is not None:
            asked.append(prompt)
        return json.dumps({"memories": list(sentences)})

    return Summarizer(ScriptedLLM(script, context_length=4096))


def test_sessions_become_sentences_once() -> None:
    asked: list[Prompt] = []
    summarize = _summarizer("User has a dog.", " User  has a dog. ", "", "User likes tea.", asked=asked)
    memory = MemoryRetrieval(retriever=WordRetriever(), summarize=summarize)
    said = session("I have a dog and like tea", "ok")
    changes = memory.end_session(said)
    assert [unit.text for unit in _units(changes)] == ["User has a dog.", "User likes tea."]
    assert isinstance(asked[0].format, JsonSchema)
    assert "I have a dog and like tea" in asked[0].messages[-1].content
    memory.apply(changes)
    assert _units(memory.end_session(session("again", "ok", name="s2"))) == []
    assert {hit.unit.text for hit in memory.recall(session("a dog")).hits} == {"User has a dog.", "User likes tea."}


def test_a_long_session_is_summarised_in_parts_sent_together() -> None:
    asked: list[Prompt] = []
    memory = MemoryRetrieval(retriever=WordRetriever(), summarize=_summarizer("User talked.", asked=asked))
    memory.end_session(session(*(f"turn {n} " + "word " * 100 for n in range(100))))
    assert len(asked) > 1
    for n in range(100):
        assert sum(f"turn {n} " in prompt.messages[-1].content for prompt in asked) == 1


def test_an_empty_session_changes_nothing() -> None:
    memory = MemoryRetrieval(retriever=WordRetriever(), summarize=_summarizer("User is here."))
    assert memory.end_session(session()) == []
    assert ExchangeRetrieval(retriever=WordRetriever()).end_session(session()) == []
