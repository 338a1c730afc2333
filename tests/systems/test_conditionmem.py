"""ConditionMem: summary and knowledge of each exchange, searched beside the exchanges, with reflection."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from localmem.bank import Bank
from localmem.factory import Parts
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.conditionmem import ConditionMem, ConditionMemOptions
from localmem.types import AddUnit, Prompt, Session, Unit
from tests.fakes import START, BatchRecorder, WordRetriever, obedient, session, unit

ENOUGH = json.dumps({"enough": True, "query": "more"})


def make(bank: Bank | None = None, llm: LLM | None = None, k: int = 2, rounds: int = 2) -> ConditionMem:
    options = ConditionMemOptions(k=k, rounds=rounds, knowledge=3, longest=200)
    return ConditionMem(Parts(llm or ScriptedLLM(obedient), WordRetriever), options, bank)


def _record(summary: str, *knowledge: str) -> str:
    return json.dumps({"summary": summary, "knowledge": list(knowledge)})


class Script:
    """Records by a word of the exchange, reflections one after another; what was asked is kept."""

    def __init__(self, records: dict[str, str], *reflections: str) -> None:
        self.records = records
        self.reflections = iter(reflections)
        self.prompts: list[Prompt] = []

    def __call__(self, prompt: Prompt) -> str:
        self.prompts.append(prompt)
        if prompt.name == "conditionmem/reflect":
            return next(self.reflections)
        text = prompt.messages[-1].content
        return next((record for word, record in self.records.items() if word in text), _record(""))

    def reflection_prompts(self) -> list[str]:
        return [prompt.messages[-1].content for prompt in self.prompts if prompt.name == "conditionmem/reflect"]


def _units(memory: ConditionMem, past: Session) -> list[Unit]:
    return [change.unit for change in memory.end_session(past) if isinstance(change, AddUnit)]


def _query(text: str = "what does the parrot eat") -> Session:
    return session(text, name="now", start=START + timedelta(days=9))


def _with_past(memory: ConditionMem, *sessions: Session) -> ConditionMem:
    for past in sessions:
        memory.apply(memory.end_session(past))
    return memory


PETS = session("the parrot sings", "bravo", "nuts are dear", "they are")


def test_an_exchange_becomes_a_summary_knowledge_and_itself() -> None:
    memory = make(
        llm=ScriptedLLM(Script({"parrot": _record("User spoke of a parrot.", "User has a parrot.", "It sings.")}))
    )
    units = _units(memory, PETS)
    assert [(unit.kind, unit.text, unit.sources) for unit in units] == [
        ("summary", "User spoke of a parrot.", ("s1.0", "s1.1")),
        ("knowledge", "User has a parrot.", ("s1.0", "s1.1")),
        ("knowledge", "It sings.", ("s1.0", "s1.1")),
        ("exchange", "User: the parrot sings\nAssistant: bravo", ("s1.0", "s1.1")),
        ("exchange", "User: nuts are dear\nAssistant: they are", ("s1.2", "s1.3")),
    ]


def test_the_exchanges_of_a_session_are_asked_about_together() -> None:
    llm = BatchRecorder(obedient)
    make(llm=llm).end_session(session(*("word" for _ in range(500))))
    assert llm.sizes == [250]


def test_each_kind_gives_its_nearest() -> None:
    records = {f"pet-{n}": _record(f"talk {n}", f"parrot fact {n}", f"parrot lore {n}") for n in range(9)}
    memory = make(llm=ScriptedLLM(Script(records, ENOUGH)), k=1)
    _with_past(memory, *(session(f"parrot pet-{n}", "ok", name=f"s{n}") for n in range(9)))
    assert sorted(hit.unit.kind for hit in memory.recall(_query("parrot")).hits) == ["exchange", "knowledge", "summary"]


def test_what_suffices_is_not_searched_again() -> None:
    script = Script({"parrot": _record("A parrot."), "nuts": _record("Nuts.")}, ENOUGH)
    recall = _with_past(make(llm=ScriptedLLM(script), k=1), PETS).recall(_query())
    assert len(script.reflection_prompts()) == 1
    assert [hit.unit.kind for hit in recall.hits] == ["summary", "exchange"]
    assert "2 March 2026: User: the parrot sings\nAssistant: bravo" in script.reflection_prompts()[0]


def test_what_is_missing_is_searched_for() -> None:
    missing = json.dumps({"enough": False, "query": "nuts dear"})
    script = Script({}, missing, ENOUGH)
    recall = _with_past(make(llm=ScriptedLLM(script), k=1), PETS).recall(_query())
    assert [hit.unit.id for hit in recall.hits] == ["s1/e0.0", "s1/e1.0"]
    assert "nuts are dear" not in script.reflection_prompts()[0]
    assert "nuts are dear" in script.reflection_prompts()[1]


def test_reflection_ends_after_its_rounds_and_when_nothing_new_is_found() -> None:
    def missing(query: str) -> str:
        return json.dumps({"enough": False, "query": query})

    again = Script({}, missing("nuts dear"), missing("parrot"), missing("never asked"))
    memory = _with_past(make(llm=ScriptedLLM(again), k=1), PETS)
    memory.recall(_query())
    assert len(again.reflection_prompts()) == 2
    none = Script({}, missing("nuts"))
    assert len(_with_past(make(llm=ScriptedLLM(none), k=1, rounds=0), PETS).recall(_query()).hits) == 1
    assert none.reflection_prompts() == []


@pytest.mark.parametrize("broken", ['{"enough"', "{}"])
def test_answers_that_cannot_be_used_are_counted(broken: str) -> None:
    memory = make(llm=ScriptedLLM(lambda _: broken))
    assert [unit.kind for unit in _units(memory, PETS)] == ["exchange", "exchange"]
    assert memory.fallbacks == {"conditionmem/record": 2}
    _with_past(memory, PETS)
    assert memory.recall(_query()).hits
    assert memory.fallbacks["conditionmem/reflect"] == 1


def test_nothing_is_asked_about_an_empty_memory_or_session() -> None:
    memory = make(llm=ScriptedLLM(lambda _: pytest.fail("nothing is to be asked")))
    assert memory.end_session(session()) == []
    assert memory.recall(_query()).hits == ()


def test_a_note_added_by_hand_is_found() -> None:
    memory = make(llm=ScriptedLLM(Script({}, ENOUGH)), k=1)
    memory.apply([AddUnit(replace(unit("n1", "the parrot eats nuts"), kind="note"), START)])
    assert [hit.unit.id for hit in memory.recall(_query()).hits] == ["n1"]


def test_words_of_the_instructions_and_empty_words_are_no_knowledge() -> None:
    echo = "You keep records of a chat assistant's work, one exchange at a time."
    memory = make(llm=ScriptedLLM(Script({"parrot": _record("...", echo, "User has a parrot.")})))
    assert [unit.kind for unit in _units(memory, PETS)] == ["knowledge", "exchange", "exchange"]
