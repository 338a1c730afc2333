"""The baselines: what becomes a unit, and what is recalled."""

import json
from datetime import timedelta

from localmem import factory
from localmem.chat.conversation import Conversation
from localmem.config import load_settings
from localmem.factory import Parts
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.systems.baselines import (
    FullHistory,
    MemoryRetrieval,
    RetrievalOptions,
    SessionOptions,
    SessionRetrieval,
    exchange_retrieval,
    utterance_retrieval,
)
from localmem.types import AddUnit, Change, JsonSchema, Prompt, Session, Unit
from tests.fakes import START, WordRetriever, obedient, session


def _units(changes: list[Change]) -> list[Unit]:
    return [change.unit for change in changes if isinstance(change, AddUnit)]


def test_each_exchange_is_a_unit_with_its_source_and_time() -> None:
    memory = exchange_retrieval(WordRetriever())
    past = session("my dog is Bruno", "nice", "my cat is Tom", "sweet")
    first, second = _units(memory.end_session(past))
    assert "my dog is Bruno" in first.key
    assert first.sources == ("s1.0", "s1.1")
    assert (first.time, second.time) == (past.turns[0].time, past.turns[2].time)
    assert first.learned == past.turns[-1].time
    assert memory.end_session(past) == memory.end_session(past)


def test_the_nearest_come_back_in_the_order_of_time_with_their_dates() -> None:
    memory = exchange_retrieval(WordRetriever(), k=2)
    memory.apply(memory.end_session(session("I live in Paris", "ok", "I eat bread", "ok")))
    later = session("now I live in Lyon", "ok", name="s2", start=START + timedelta(days=7))
    memory.apply(memory.end_session(later))
    recall = memory.recall(session("where do I live", name="s3"))
    assert [hit.unit.id for hit in recall.hits] == ["s1/e0", "s2/e0"]
    assert recall.text.index("2 March 2026") < recall.text.index("9 March 2026")
    assert recall.proposed == ()


def _llm(*sentences: str, prompts: list[Prompt] | None = None) -> ScriptedLLM:
    def script(prompt: Prompt) -> str:
        if prompts is not None:
            prompts.append(prompt)
        return json.dumps({"memories": list(sentences)})

    return ScriptedLLM(script, context_length=4096)


def _memories(llm: ScriptedLLM) -> MemoryRetrieval:
    return MemoryRetrieval(Parts(llm, WordRetriever), RetrievalOptions(k=6))


def test_sessions_become_sentences_once() -> None:
    prompts: list[Prompt] = []
    llm = _llm("User has a dog.", " User  has a dog. ", "", "User likes tea.", prompts=prompts)
    memory = _memories(llm)
    past = session("I have a dog and like tea", "ok")
    changes = memory.end_session(past)
    assert [unit.text for unit in _units(changes)] == ["User has a dog.", "User likes tea."]
    assert isinstance(prompts[0].format, JsonSchema)
    assert "I have a dog and like tea" in prompts[0].messages[-1].content
    memory.apply(changes)
    assert _units(memory.end_session(session("again", "ok", name="s2"))) == []
    assert {hit.unit.text for hit in memory.recall(session("a dog")).hits} == {"User has a dog.", "User likes tea."}


def test_a_long_session_is_summarised_in_parts_sent_together() -> None:
    prompts: list[Prompt] = []
    memory = _memories(_llm("User talked.", prompts=prompts))
    memory.end_session(session(*(f"turn {n} " + "word " * 100 for n in range(100))))
    assert len(prompts) > 1
    for n in range(100):
        assert sum(f"turn {n} " in prompt.messages[-1].content for prompt in prompts) == 1


def test_the_names_are_those_of_the_systems() -> None:
    memories = [exchange_retrieval(WordRetriever()), utterance_retrieval(WordRetriever(), k=1), _sessions()]
    assert [memory.name for memory in memories] == ["exchange_retrieval", "utterance_retrieval", "session_retrieval"]


def _sessions(*, k: int = 5, tokens: int = 4096, context: int = 8192) -> SessionRetrieval:
    llm = ScriptedLLM(obedient, context_length=context)
    return SessionRetrieval(Parts(llm, WordRetriever), SessionOptions(k=k, tokens=tokens))


def _with_past(memory: Memory) -> Memory:
    for past in (
        session("my parrot sings", "bravo", "and my aunt farms", "oh", name="s1"),
        session("the parrot has a cold", "poor bird", name="s2", start=START + timedelta(days=2)),
    ):
        memory.apply(memory.end_session(past))
    return memory


def _query(*texts: str) -> Session:
    return session(*texts, name="now", start=START + timedelta(days=9))


def test_utterances_of_either_side_are_shown_in_time_order() -> None:
    recall = _with_past(utterance_retrieval(WordRetriever(), k=2)).recall(_query("how is the parrot"))
    assert [hit.unit.sources for hit in recall.hits] == [("s1.0",), ("s2.0",)]
    assert recall.text == "2 March 2026: User: my parrot sings\n4 March 2026: User: the parrot has a cold"


def test_at_most_k_utterances_are_recalled() -> None:
    assert len(_with_past(utterance_retrieval(WordRetriever(), k=5)).recall(_query("parrot")).hits) == 5


def test_a_session_is_one_unit_and_is_shown_whole() -> None:
    recall = _with_past(_sessions(k=1)).recall(_query("tell me of the aunt"))
    (hit,) = recall.hits
    assert hit.unit.sources == ("s1.0", "s1.1", "s1.2", "s1.3")
    assert (
        recall.text == "2 March 2026: User: my parrot sings\nAssistant: bravo\nUser: and my aunt farms\nAssistant: oh"
    )


def test_sessions_are_shown_in_time_order_under_a_budget() -> None:
    assert [hit.unit.session for hit in _with_past(_sessions()).recall(_query("the parrot")).hits] == ["s1", "s2"]
    nearest = _with_past(_sessions(tokens=12)).recall(_query("has the parrot a cold"))
    assert [hit.unit.session for hit in nearest.hits] == ["s2"]


def test_a_nearest_session_over_the_budget_is_shown_and_counted() -> None:
    memory = _sessions(context=600)
    memory.apply(memory.end_session(session(*("word " * 50 for _ in range(20)))))
    assert len(memory.recall(_query("word")).hits) == 1
    assert memory.fallbacks == {"agent/respond": 1}


def test_an_empty_session_changes_nothing() -> None:
    memories = [
        exchange_retrieval(WordRetriever()),
        utterance_retrieval(WordRetriever(), k=5),
        _sessions(),
        _memories(_llm("User is here.")),
    ]
    assert [memory.end_session(session()) for memory in memories] == [[], [], [], []]
    assert _sessions().recall(_query("hello")).hits == ()


QUERY = session("hello", name="now", start=START + timedelta(days=9))


def test_shows_every_session_word_for_word() -> None:
    memory = FullHistory(llm=ScriptedLLM(obedient))
    memory.apply(memory.end_session(session("my parrot sings", "bravo", "and my aunt farms", "oh", name="s1")))
    later = session("the parrot has a cold", "poor bird", name="s2", start=START + timedelta(days=2))
    memory.apply(memory.end_session(later))
    recall = memory.recall(QUERY)
    assert recall.text == (
        "2 March 2026\nUser: my parrot sings\nAssistant: bravo\nUser: and my aunt farms\nAssistant: oh\n\n"
        "4 March 2026\nUser: the parrot has a cold\nAssistant: poor bird"
    )
    assert len(recall.hits) == 6


def test_leaves_out_the_oldest_and_counts_it() -> None:
    llm = ScriptedLLM(obedient, context_length=800)
    memory = FullHistory(llm=llm)
    for n in range(20):
        memory.apply(memory.end_session(session(f"talk {n} " + "word " * 40, "ok", name=f"s{n}")))
    assert memory.fallbacks == {}
    reply = Conversation(memory=memory, llm=llm).responder.answer(QUERY)
    assert "talk 19 " in reply.recall.text
    assert "talk 0 " not in reply.recall.text
    assert reply.completion.trimmed == 0, "nothing is left for the backend to cut"
    assert memory.fallbacks == {"agent/respond": 1}


def test_an_empty_session_adds_nothing_to_the_full_history() -> None:
    assert FullHistory(llm=ScriptedLLM(obedient)).end_session(session()) == []


def test_dates_behind_times_are_an_option_of_the_papers_systems_too() -> None:
    past = session("Tomorrow I paint the stall.", "Good luck.", name="s1")
    texts = []
    for options in ({}, {"show_times": True}):
        settings = load_settings(flags={"system": "exchange_retrieval", "options": options})
        memory = factory.memory(settings, Parts(ScriptedLLM(lambda _: ""), WordRetriever))
        memory.apply(memory.end_session(past))
        texts.append(memory.recall_shown(session("Who paints the stall?", name="q")).text)
    assert texts == [
        "2 March 2026: User: Tomorrow I paint the stall.\nAssistant: Good luck.",
        "2 March 2026: User: Tomorrow (3 March 2026) I paint the stall.\nAssistant: Good luck.",
    ]
