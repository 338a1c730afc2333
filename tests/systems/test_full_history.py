"""Full history: every past session word for word, as far as it fits."""

from datetime import timedelta

from localmem.chat.conversation import Conversation
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.full_history import FullHistory
from tests.fakes import START, obedient, session

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


def test_an_empty_session_changes_nothing() -> None:
    assert FullHistory(llm=ScriptedLLM(obedient)).end_session(session()) == []
