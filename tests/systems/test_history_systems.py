"""Systems that keep the past as it was said: full history, single utterances, whole sessions."""

from datetime import timedelta

from localmem.bank import Bank
from localmem.chat.agent import ChatAgent
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.systems.full_history import FullHistory
from localmem.systems.session_retrieval import SessionRetrieval
from localmem.systems.utterance_retrieval import UtteranceRetrieval
from localmem.types import Session
from tests.fakes import START, WordRetriever, obedient, session


def make(bank: Bank | None = None, llm: LLM | None = None) -> Memory:
    return FullHistory(llm=llm or ScriptedLLM(obedient), bank=bank)


def _utterances(k: int = 5) -> Memory:
    return UtteranceRetrieval(retriever=WordRetriever(), k=k)


def _sessions(*, k: int = 5, tokens: int = 4096, context: int = 8192) -> SessionRetrieval:
    llm = ScriptedLLM(obedient, context_length=context)
    return SessionRetrieval(llm=llm, retriever=WordRetriever(), k=k, tokens=tokens)


def _lived(memory: Memory) -> Memory:
    for past in (
        session("my parrot sings", "bravo", "and my aunt farms", "oh", name="s1"),
        session("the parrot has a cold", "poor bird", name="s2", start=START + timedelta(days=2)),
    ):
        memory.apply(memory.end_session(past))
    return memory


def _asked(*texts: str) -> Session:
    return session(*texts, name="now", start=START + timedelta(days=9))


def test_full_history_shows_every_session_word_for_word() -> None:
    found = _lived(make()).recall(_asked("hello"))
    assert found.text == (
        "2 March 2026\nUser: my parrot sings\nAssistant: bravo\nUser: and my aunt farms\nAssistant: oh\n\n"
        "4 March 2026\nUser: the parrot has a cold\nAssistant: poor bird"
    )
    assert len(found.hits) == 6


def test_full_history_leaves_out_the_oldest_and_says_so() -> None:
    llm = ScriptedLLM(obedient, context_length=800)
    memory = FullHistory(llm=llm)
    for n in range(20):
        memory.apply(memory.end_session(session(f"talk {n} " + "word " * 40, "ok", name=f"s{n}")))
    assert memory.fallbacks == {}
    reply = ChatAgent(memory=memory, llm=llm).answer(_asked("hello"))
    assert "talk 19 " in reply.recall.text
    assert "talk 0 " not in reply.recall.text
    assert reply.completion.trimmed == 0, "nothing is left for the backend to cut"
    assert memory.fallbacks == {"agent/respond": 1}


def test_single_utterances_of_either_side_come_back_in_the_order_they_were_said() -> None:
    found = _lived(_utterances(k=2)).recall(_asked("how is the parrot"))
    assert [hit.unit.sources for hit in found.hits] == [("s1.0",), ("s2.0",)]
    assert found.text == "2 March 2026: User: my parrot sings\n4 March 2026: User: the parrot has a cold"


def test_no_more_utterances_than_asked_for() -> None:
    assert len(_lived(_utterances(k=5)).recall(_asked("parrot")).hits) == 5


def test_a_session_is_one_unit_and_comes_back_whole() -> None:
    found = _lived(_sessions(k=1)).recall(_asked("tell me of the aunt"))
    (hit,) = found.hits
    assert hit.unit.sources == ("s1.0", "s1.1", "s1.2", "s1.3")
    assert found.text == "2 March 2026: User: my parrot sings\nAssistant: bravo\nUser: and my aunt farms\nAssistant: oh"


def test_sessions_are_shown_in_time_order_under_a_budget() -> None:
    assert [hit.unit.session for hit in _lived(_sessions()).recall(_asked("the parrot")).hits] == ["s1", "s2"]
    nearest_only = _lived(_sessions(tokens=12)).recall(_asked("has the parrot a cold"))
    assert [hit.unit.session for hit in nearest_only.hits] == ["s2"]


def test_a_session_over_the_budget_is_shown_all_the_same_and_counted() -> None:
    memory = _sessions(context=600)
    memory.apply(memory.end_session(session(*("word " * 50 for _ in range(20)))))
    assert len(memory.recall(_asked("word")).hits) == 1
    assert memory.fallbacks == {"agent/respond": 1}


def test_an_empty_session_changes_nothing() -> None:
    assert [memory.end_session(session()) for memory in (make(), _utterances(), _sessions())] == [[], [], []]
    assert _sessions().recall(_asked("hello")).hits == ()
