"""COMEDY: session memories, compressed into portrait, relationship and events."""

import json
from datetime import timedelta

import pytest

from localmem.bank import Bank
from localmem.factory import Parts
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.comedy import Comedy, ComedyOptions
from localmem.types import AddUnit, JsonSchema, Prompt, RefuseText, Session, SetNote
from tests.fakes import START, WordRetriever, obedient, session


def make(bank: Bank | None = None, llm: LLM | None = None) -> Comedy:
    options = ComedyOptions(portrait=8, relationship=4, events=8, longest=160)
    return Comedy(Parts(llm or ScriptedLLM(obedient), WordRetriever), options, bank)


class Script:
    """`told` are the memories of one session after another; `parts` is the compressed text."""

    def __init__(self, *memories: list[str], parts: str = "") -> None:
        self.memories = iter(memories)
        self.parts = parts or _parts(["User sails."], ["They joke."], ["User won."])
        self.prompts: list[Prompt] = []

    def __call__(self, prompt: Prompt) -> str:
        self.prompts.append(prompt)
        return self.parts if prompt.name == "comedy/compress" else json.dumps({"memories": next(self.memories)})

    def compression_prompt(self) -> str:
        return next(p for p in reversed(self.prompts) if p.name == "comedy/compress").messages[-1].content


def _parts(portrait: list[str], relationship: list[str], events: list[str]) -> str:
    return json.dumps({"portrait": portrait, "relationship": relationship, "events": events})


def _query() -> Session:
    return session("hello", name="now", start=START + timedelta(days=9))


def _live(memory: Comedy, *sessions: Session) -> None:
    for past in sessions:
        memory.apply(memory.end_session(past))


def test_the_reply_sees_the_three_parts() -> None:
    memory = make(
        llm=ScriptedLLM(Script(["User won a race."], parts=_parts(["User sails.", "User is calm."], [], ["Won."])))
    )
    _live(memory, session("I won", "bravo"))
    assert memory.recall(_query()).text == "The user:\nUser sails.\nUser is calm.\n\nWhat happened recently:\nWon."
    assert memory.bank.notes.keys() == {"portrait", "relationship", "events"}


def test_the_memories_of_all_sessions_are_compressed_each_time() -> None:
    script = Script(["User sails.", "User won."], ["User sails.", "User moved."])
    memory = make(llm=ScriptedLLM(script))
    _live(memory, session("a", "b", name="s1"), session("c", "d", name="s2", start=START + timedelta(days=1)))
    assert [unit.text for unit in memory.bank.live()] == ["User sails.", "User won.", "User moved."]
    memories = script.compression_prompt().partition("Memories:\n")[2].removesuffix("\n\nThe three lists:")
    assert memories == "2 March 2026: User sails.\n2 March 2026: User won.\n3 March 2026: User moved."
    assert "Compressed so far" not in script.compression_prompt(), "while all memories fit they are the only source"


def test_a_session_that_tells_nothing_new_changes_nothing() -> None:
    script = Script(["User sails."], ["User sails."], [])
    memory = make(llm=ScriptedLLM(script))
    _live(memory, session("a", "b", name="s1"))
    (refusal,) = memory.end_session(session("c", "d", name="s2"))
    assert isinstance(refusal, RefuseText)
    assert refusal.reason == "duplicate"
    assert memory.end_session(session("e", "f", name="s3")) == []


def test_the_compressed_text_stands_in_for_memories_that_do_not_fit() -> None:
    script = Script(
        *([f"User did thing {n} and so on, with all that comes of it for people and for the land."] for n in range(40))
    )
    memory = make(llm=ScriptedLLM(script, context_length=1800))
    _live(memory, *(session(f"thing {n}", "b", name=f"s{n}") for n in range(40)))
    assert "thing 39 " in script.compression_prompt()
    assert "thing 0 " not in script.compression_prompt()
    assert "User sails." in script.compression_prompt()
    assert memory.fallbacks["comedy/compress"] > 0


@pytest.mark.parametrize("parts", ['{"portrait": ["a"]}', '{"portrait', "[]"])
def test_an_answer_that_cannot_be_used_leaves_the_parts_as_they_were(parts: str) -> None:
    script = Script(["User sails."], ["User moved."])
    memory = make(llm=ScriptedLLM(script))
    _live(memory, session("a", "b", name="s1"))
    before = memory.recall(_query()).text
    script.parts = parts
    changes = memory.end_session(session("c", "d", name="s2"))
    assert [type(change) for change in changes] == [AddUnit]
    memory.apply(changes)
    assert memory.recall(_query()).text == before
    assert memory.fallbacks == {"comedy/compress": 1}


def test_the_answer_is_bounded() -> None:
    script = Script(["User sails."])
    make(llm=ScriptedLLM(script)).end_session(session("a", "b"))
    form = script.prompts[-1].format
    assert isinstance(form, JsonSchema)
    properties = form.schema["properties"]
    assert isinstance(properties, dict)
    assert {name: part["maxItems"] for name, part in properties.items()} == {
        "portrait": 8,
        "relationship": 4,
        "events": 8,
    }


def test_changes_carry_the_time_of_the_session() -> None:
    past = session("a", "b")
    changes = make(llm=ScriptedLLM(Script(["User sails."]))).end_session(past)
    assert {change.time for change in changes} == {past.turns[-1].time}
    assert [change.name for change in changes if isinstance(change, SetNote)] == ["portrait", "relationship", "events"]


def test_an_empty_session_changes_nothing() -> None:
    memory = make(llm=ScriptedLLM(lambda _: pytest.fail("nothing is to be asked")))
    assert memory.end_session(session()) == []
    assert memory.recall(_query()).text == ""
