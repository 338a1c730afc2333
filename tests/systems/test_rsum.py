"""LLM-Rsum: the note is rewritten from itself and the session, in at most 20 sentences."""

from datetime import timedelta

import pytest

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.errors import BadSettings
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.prompts import load
from localmem.systems.rsum import RecursiveSummary
from localmem.types import AddUnit, Message, Prompt, Session, SetNote
from tests.fakes import START, WordRetriever, obedient, session


def make(bank: Bank | None = None, llm: LLM | None = None) -> Memory:
    return RecursiveSummary(
        llm=llm or ScriptedLLM(obedient),
        bank=bank,
        limit=20,
        examples=2,
        retriever=WordRetriever(),
        retrieve=5,
        long_context=True,
    )


def _text(prompt: Prompt) -> str:
    return "\n".join(message.content for message in prompt.messages)


def test_the_new_memory_comes_from_the_old_one_and_the_session() -> None:
    prompts: list[str] = []

    def script(prompt: Prompt) -> str:
        prompts.append(_text(prompt))
        return f"The user said things {len(prompts)} times."

    memory = RecursiveSummary(llm=ScriptedLLM(script))
    assert memory.recall(session("hi")).text == ""
    for name in ("s1", "s2"):
        changes = memory.end_session(session(f"I like tea in {name}", "noted", name=name))
        assert [type(change) for change in changes] == [SetNote]
        memory.apply(changes)
    assert "I like tea in s1" in prompts[0]
    assert "I like tea in s2" in prompts[1]
    assert "The user said things 1 times." in prompts[1]
    assert "I like tea in s1" not in prompts[1]
    assert memory.recall(session("hi")).text == "The user said things 2 times."


def test_no_more_than_the_limit_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    memory = RecursiveSummary(llm=ScriptedLLM(lambda _: " ".join(f"It was {chr(97 + n) * 3}." for n in range(26))))
    memory.apply(memory.end_session(session("a", "b")))
    lines = memory.recall(session("hi")).text.splitlines()
    assert len(lines) == 20
    assert lines[0] == "It was aaa."
    assert "26 sentences" in caplog.text
    assert memory.fallbacks == {"rsum/update": 1}


def test_an_empty_answer_keeps_the_old_memory(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter(["The user likes tea.", "  "])
    memory = RecursiveSummary(llm=ScriptedLLM(lambda _: next(answers)))
    memory.apply(memory.end_session(session("tea", "ok")))
    assert memory.end_session(session("nothing", "ok", name="s2")) == []
    assert "holds nothing that can be stored" in caplog.text
    assert memory.fallbacks == {"rsum/update": 1}


def test_a_session_longer_than_the_context_is_read_in_parts_in_order() -> None:
    prompts: list[str] = []

    def script(prompt: Prompt) -> str:
        prompts.append(_text(prompt))
        return f"Part {len(prompts)} was read."

    long = session(*(f"turn {n} " + "word " * 200 for n in range(40)))
    memory = RecursiveSummary(llm=ScriptedLLM(script, context_length=3000))
    memory.apply(memory.end_session(long))
    assert len(prompts) > 1
    for n in range(40):
        assert sum(f"turn {n} " in text for text in prompts) == 1
    assert "Part 1 was read." in prompts[1]


def test_an_empty_session_changes_nothing() -> None:
    memory = RecursiveSummary(llm=ScriptedLLM(lambda _: pytest.fail("nothing is to be asked")))
    assert memory.end_session(session()) == []


# -- beside the memory -------------------------------------------------------------------------------------------------


def _past(memory: RecursiveSummary) -> RecursiveSummary:
    past = [
        session("my parrot sings opera", "bravo", "and my aunt farms", "oh", name="s1"),
        session("the parrot has a cold", "poor bird", name="s2", start=START + timedelta(days=2)),
    ]
    for each in past:
        memory.apply(memory.end_session(each))
    return memory


def _query(*texts: str) -> Session:
    return session(*texts, name="now", start=START + timedelta(days=9))


def _noting(text: str = "User has a parrot.") -> ScriptedLLM:
    return ScriptedLLM(lambda _: text, context_length=4096)


def test_without_retrieval_and_long_context_only_the_note_is_kept() -> None:
    memory = _past(RecursiveSummary(llm=_noting(), retriever=WordRetriever()))
    assert not memory.bank.units
    assert memory.recall(_query("parrot")).text == "User has a parrot."


def test_the_nearest_past_utterances_stand_beside_the_memory_in_time_order() -> None:
    memory = _past(RecursiveSummary(llm=_noting(), retriever=WordRetriever(), retrieve=2))
    recall = memory.recall(_query("how is the parrot"))
    assert [hit.unit.sources for hit in recall.hits] == [("s1.0",), ("s2.0",)]
    assert recall.text == (
        "Earlier messages that may matter now:\n"
        "2 March 2026: User: my parrot sings opera\n"
        "4 March 2026: User: the parrot has a cold\n\n"
        "In summary:\n"
        "User has a parrot."
    )
    assert memory.recall(_query("how is the parrot")) == recall


def test_retrieval_needs_a_retriever() -> None:
    with pytest.raises(BadSettings, match="retriever"):
        RecursiveSummary(llm=_noting(), retrieve=5)


def test_in_long_context_mode_past_sessions_stand_beside_the_memory() -> None:
    memory = _past(RecursiveSummary(llm=_noting(), long_context=True))
    recall = memory.recall(_query("hello"))
    assert recall.text == (
        "Past conversations:\n\n"
        "2 March 2026\nUser: my parrot sings opera\nAssistant: bravo\nUser: and my aunt farms\nAssistant: oh\n\n"
        "4 March 2026\nUser: the parrot has a cold\nAssistant: poor bird\n\n"
        "In summary:\nUser has a parrot."
    )
    assert len(recall.hits) == 6


def test_the_oldest_of_the_past_gives_way_to_the_dialogue() -> None:
    llm = ScriptedLLM(lambda _: "User talks.", context_length=1600)
    memory = RecursiveSummary(llm=llm, long_context=True)
    for n in range(20):
        memory.apply(memory.end_session(session("word " * 50, "ok", name=f"s{n}")))
    short, long = (memory.recall(_query("word " * words)) for words in (1, 900))
    assert 0 < len(long.hits) < len(short.hits) < 40
    assert short.hits[-1].unit.id == long.hits[-1].unit.id == "s19/t1"
    agent = Conversation(memory=memory, llm=llm)
    assert agent.responder.answer(_query("word " * 900)).completion.trimmed == 0


def test_what_was_retrieved_is_not_shown_twice() -> None:
    memory = _past(RecursiveSummary(llm=_noting(), retriever=WordRetriever(), retrieve=5, long_context=True))
    text = memory.recall(_query("how is the parrot")).text
    assert text.count("my parrot sings opera") == 1
    assert "Earlier messages" not in text


def test_a_bank_of_a_longer_past_is_indexed_again() -> None:
    memory = _past(RecursiveSummary(llm=_noting(), retriever=WordRetriever(), retrieve=2))
    again = RecursiveSummary(llm=_noting(), retriever=WordRetriever(), retrieve=2, bank=memory.bank)
    assert again.recall(_query("parrot cold")) == memory.recall(_query("parrot cold"))


# -- examples ----------------------------------------------------------------------------------------------------------

_VALUES = {"today": "2 March 2026", "user": "Bo", "assistant": "Ada", "instructions": ""}


@pytest.mark.parametrize("count", [0, 2, 3])
def test_examples_stand_in_the_fixed_part_of_the_reply_prompt(count: int) -> None:
    prompts: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        return "Fine."

    memory = RecursiveSummary(llm=ScriptedLLM(script), examples=count)
    Conversation(memory=memory, llm=ScriptedLLM(script)).responder.answer(_query("hello"))
    (prompt,) = prompts
    assert prompt.messages[0].content.count("\nExample ") == count
    assert prompt.messages[1:] == (Message("user", "hello"),)
    assert RecursiveSummary.response_prompt == "rsum/respond", "another user's memory is as it was"


@pytest.mark.parametrize("memory", ["", "Bo sails."])
@pytest.mark.parametrize("count", [2, 3])
def test_the_reply_prompts_differ_in_their_examples_only(count: int, memory: str) -> None:
    plain = load("rsum/respond")
    file = load(f"rsum/respond_{count}_examples")
    assert (file.inputs, file.max_tokens, file.temperature) == (plain.inputs, plain.max_tokens, plain.temperature)
    assert file.sections["memory"] == plain.sections["memory"]
    before, _, after = file.section("system", memory=memory, **_VALUES).partition("\n\nThese examples are about other")
    after = after.partition("End of the examples.")[2]
    assert f"{before}{after}" == plain.section("system", memory=memory, **_VALUES)


def test_another_number_of_examples_is_refused() -> None:
    with pytest.raises(BadSettings, match="0, 2 or 3"):
        RecursiveSummary(llm=_noting(), examples=4)


def test_examples_never_become_memories() -> None:
    """A backbone that repeats all that it is shown brings no example into the bank."""

    def parrot(prompt: Prompt) -> str:
        return "\n".join(line for message in prompt.messages for line in message.content.splitlines())

    llm = ScriptedLLM(parrot, context_length=20_000)
    memory = RecursiveSummary(llm=llm, limit=1000, examples=3, retriever=WordRetriever(), retrieve=5, long_context=True)
    agent = Conversation(memory=memory, llm=llm)
    text = agent.responder.prepare(_query("hello")).prompt.messages[0].content
    block = text.partition("Example 1")[2].partition("End of the examples")[0]
    examples = [line for line in block.splitlines() if len(line.split()) > 3 and not line.startswith("What is known")]
    assert len(examples) > 10
    agent.writer.read([session("I like tea", "noted"), session("and cake", "ok", name="s2")])
    remembered = "\n".join([*agent.memory.bank.notes.values(), *(unit.text for unit in agent.memory.bank.live())])
    assert "I like tea" in remembered
    assert [line for line in examples if line in remembered] == []


# -- the paper's example, in our words ---------------------------------------------------------------------------------


def test_the_shoe_example_of_figure_8() -> None:
    """The bot once said that it buys shoes it never wears; much later the user asks about that habit in other words."""
    fact = "Assistant keeps buying running shoes and leaves them in the box."

    def script(prompt: Prompt) -> str:
        text = _text(prompt)
        if prompt.name == "rsum/update":
            sentences = [fact] if "yet another pair" in text or fact in text else []
            return "\n".join([*sentences, "User repairs bicycles."])
        return "I still buy shoes, but I try to wear them." if fact in text else "I am a program and spend no money."

    llm = ScriptedLLM(script)
    memory = RecursiveSummary(llm=llm)
    agent = Conversation(memory=memory, llm=llm)
    smalltalk = [f"line {n} about bicycles" for n in range(20)]
    agent.writer.read(
        [
            session("what do you buy too often?", "I bought yet another pair of running shoes, never worn", name="s1"),
            session(*smalltalk, name="s2", start=START + timedelta(days=1)),
        ]
    )
    question = _query("is your spending habit any better?")
    assert fact in memory.bank.notes["summary"].splitlines(), "it lived through a session that does not speak of it"
    assert "shoes" in agent.responder.answer(question).turn.text
    assert "program" in Conversation(memory=RecursiveSummary(llm=llm), llm=llm).responder.answer(question).turn.text
    assert memory.bank.notes.keys() == {"summary"}
    assert not any(isinstance(change, AddUnit) for change in memory.end_session(question))


@pytest.mark.parametrize(
    ("limit", "context", "longest"), [(10, 8192, 640), (20, 8192, 640), (60, 8192, 1920), (60, 2048, 1024)]
)
def test_an_answer_has_room_for_its_sentences_and_is_counted_where_it_is_cut(
    limit: int, context: int, longest: int
) -> None:
    sizes: list[int] = []

    def script(prompt: Prompt) -> str:
        sizes.append(prompt.max_tokens)
        return "The user said hi. Then " + "and " * 3000

    memory = RecursiveSummary(llm=ScriptedLLM(script, context_length=context), limit=limit)
    (note,) = memory.end_session(session("hi", "ok"))
    assert isinstance(note, SetNote)
    assert note.text == "The user said hi."
    assert sizes == [longest]
    assert memory.fallbacks == {"rsum/update": 1}
