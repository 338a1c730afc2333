"""MemoryBank: days, a portrait, and pieces that fade unless they are recalled."""

from dataclasses import replace
from datetime import timedelta
from itertools import count
from math import exp, log

import pytest

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.factory import Parts
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.memorybank import EVENTS, PORTRAIT, MemoryBank, MemoryBankOptions, retention
from localmem.types import AddUnit, Exchange, MarkUnit, Prompt, RetireUnit, Session, SetNote
from tests.fakes import START, BatchRecorder, WordRetriever, obedient, session, unit

DAY = timedelta(days=1)


def make(
    bank: Bank | None = None, llm: LLM | None = None, threshold: float = 0.001, k: int = 6, pool: int = 24
) -> MemoryBank:
    options = MemoryBankOptions(k=k, pool=pool, strength=1.0, gain=1.0, threshold=threshold)
    return MemoryBank(Parts(llm or ScriptedLLM(obedient), WordRetriever), options, bank)


def _question(prompt: Prompt) -> str:
    return prompt.messages[-1].content


def _later(days: float, text: str = "how is the parrot", name: str = "later") -> Session:
    return session(text, name=name, start=START + days * DAY)


def _silent(**options: float) -> MemoryBank:
    """No text comes back, so that exchanges are the only pieces."""
    return make(llm=ScriptedLLM(lambda _: ""), **options)  # type: ignore[arg-type]


def _with_past(memory: MemoryBank, *sessions: Session) -> MemoryBank:
    for past in sessions:
        memory.apply(memory.end_session(past))
    return memory


PARROT = session("the parrot sings", "bravo", name="s1")


def _exchange(memory: MemoryBank, query: Session) -> Exchange:
    reply = replace(query.turns[-1], id=f"{query.id}.reply", role="assistant", text="fine")
    return Exchange(query.turns[-1], reply, memory.recall(query))


def test_retention_is_the_papers_and_not_its_codes() -> None:
    assert retention(1, 0) == 1
    assert retention(1, 2) == pytest.approx(exp(-2))
    assert retention(3, 2) == pytest.approx(exp(-2 / 3))
    assert retention(3, 2) > retention(1, 2), "the stronger piece is kept longer"
    assert retention(1, -5) == 1


def test_each_day_is_summarised_and_goes_into_the_global_texts() -> None:
    prompts: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        task = prompt.name.partition("/")[2]
        if task in ("day", "insight"):
            return f"The {task} of {'tea' if 'tea' in _question(prompt) else 'wine'}."
        return f"All {task}."

    night = session("I like tea", "noted", "and wine", "noted", start=START + timedelta(hours=5, minutes=58))
    changes = make(llm=ScriptedLLM(script)).end_session(night)
    days = [change.unit for change in changes if isinstance(change, AddUnit) and change.unit.kind == "day"]
    assert [(unit.text, unit.key, unit.sources) for unit in days] == [
        ("The day of tea.", "2 March 2026: The day of tea.", ("s1.0", "s1.1")),
        ("The day of wine.", "3 March 2026: The day of wine.", ("s1.2", "s1.3")),
    ]
    notes = {change.name: change.text for change in changes if isinstance(change, SetNote)}
    assert notes == {EVENTS: "All events.", PORTRAIT: "All portrait."}
    by_name = {prompt.name: _question(prompt) for prompt in prompts}
    assert "2 March 2026: The day of tea.\n3 March 2026: The day of wine." in by_name["memorybank/events"]
    assert "The insight of tea.\nThe insight of wine." in by_name["memorybank/portrait"]


def test_the_global_texts_are_rewritten_from_themselves_and_the_news() -> None:
    number = count()
    prompts: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        return f"Text number {next(number)}."

    memory = _with_past(make(llm=ScriptedLLM(script)), session("a", "b", name="s1"))
    previous = memory.bank.notes[PORTRAIT]
    prompts.clear()
    memory.end_session(session("c", "d", name="s2"))
    (portrait,) = [prompt for prompt in prompts if prompt.name == "memorybank/portrait"]
    assert previous in _question(portrait)
    assert all(
        previous not in _question(prompt)
        for prompt in prompts
        if prompt.name in ("memorybank/day", "memorybank/insight")
    )


def test_the_calls_of_a_session_go_out_in_two_steps() -> None:
    llm = BatchRecorder(obedient)
    make(llm=llm).end_session(PARROT)
    assert llm.sizes == [2, 2]


def test_a_text_that_came_back_empty_leaves_the_old_one() -> None:
    memory = make(llm=ScriptedLLM(lambda prompt: "" if prompt.name == "memorybank/portrait" else "Some text."))
    changes = memory.end_session(PARROT)
    assert [change.name for change in changes if isinstance(change, SetNote)] == [EVENTS]
    assert memory.fallbacks == {"memorybank/portrait": 1}


def test_what_is_shown() -> None:
    memory = _with_past(make(llm=ScriptedLLM(lambda prompt: f"Text of {prompt.name.partition('/')[2]}.")), PARROT)
    assert memory.recall(_later(1)).text == (
        "The user:\nText of portrait.\n\n"
        "What happened so far:\nText of events.\n\n"
        "Earlier messages and days that may matter now:\n"
        "2 March 2026: Text of day.\n"
        "2 March 2026: User: the parrot sings\nAssistant: bravo"
    )


def test_a_recalled_piece_is_strengthened_and_its_clock_starts_anew() -> None:
    memory = _with_past(_silent(), PARROT)
    query = _later(2)
    changes = memory.observe(_exchange(memory, query))
    now = query.turns[-1].time
    assert changes == [MarkUnit("s1/e0", "strength", 2.0, now), MarkUnit("s1/e0", "recalled", now.timestamp(), now)]
    memory.apply(changes)
    (strength, _) = memory.observe(_exchange(memory, _later(3)))
    assert isinstance(strength, MarkUnit)
    assert strength.value == 3.0


def test_an_exchange_without_recall_strengthens_nothing() -> None:
    assert make().observe(Exchange(PARROT.turns[0], PARROT.turns[1])) == []


def test_what_is_never_recalled_is_forgotten_and_what_is_recalled_is_kept() -> None:
    """Below 0.001: after 6.9 days at strength 1, after 20.7 at strength 3: the second session recalled the first."""
    cat = session("the cat sleeps", "quietly", name="s2")
    memory = _with_past(_silent(k=1), PARROT, cat)
    memory.apply(memory.observe(_exchange(memory, _later(1))))
    (retired,) = [c for c in memory.end_session(_later(8, "hello", "s3")) if isinstance(c, RetireUnit)]
    assert (retired.unit, retired.by) == ("s2/e0", "memorybank/forgetting")
    late = memory.end_session(_later(1 + 3 * -log(0.001) + 0.1, "hello", "s4"))
    assert {c.unit for c in late if isinstance(c, RetireUnit)} == {"s1/e0", "s2/e0"}


def test_a_forgotten_piece_is_not_recalled_even_before_a_session_ends() -> None:
    memory = _with_past(_silent(), PARROT)
    assert memory.recall(_later(6)).hits
    assert memory.recall(_later(8)).hits == ()


def test_at_a_threshold_of_zero_nothing_is_forgotten() -> None:
    memory = _with_past(_silent(threshold=0), PARROT)
    assert not any(isinstance(change, RetireUnit) for change in memory.end_session(_later(4000, name="s2")))
    assert memory.recall(_later(4000)).hits


def test_of_equally_near_pieces_the_fresher_is_shown() -> None:
    again = session("the parrot sings", "bravo", name="s2", start=START + 2 * DAY)
    memory = _with_past(_silent(k=1), PARROT)
    memory.apply([change for change in memory.end_session(again) if not isinstance(change, MarkUnit)])
    assert [hit.unit.session for hit in memory.recall(_later(3)).hits] == ["s2"]


def test_in_a_conversation_pieces_are_strengthened_as_they_are_recalled() -> None:
    llm = ScriptedLLM(lambda _: "Fine.")
    agent = Conversation(memory=make(llm=llm), llm=llm)
    agent.writer.read([PARROT])
    agent.chat("how is the parrot", START + DAY)
    assert agent.memory.bank.marks["s1/e0", "strength"] == 2.0


def test_an_empty_session_changes_nothing() -> None:
    assert make(llm=ScriptedLLM(lambda _: pytest.fail("nothing is to be asked"))).end_session(session()) == []


def test_a_note_added_by_hand_stays() -> None:
    memory = _silent()
    memory.apply([AddUnit(replace(unit("n1", "the parrot eats nuts"), kind="note"), START)])
    assert memory.end_session(_later(4000, "hello", "s2"))[1:] == []
    assert [hit.unit.id for hit in memory.recall(_later(4000)).hits] == ["n1"]


def test_a_log_that_is_read_strengthens_as_the_conversation_did() -> None:
    llm = ScriptedLLM(lambda _: "Fine.")
    talked, read = (Conversation(memory=make(llm=llm), llm=llm) for _ in range(2))
    talked.writer.read([PARROT])
    for day in (1, 3):
        talked.chat("how is the parrot", START + day * DAY)
        talked.end_session()
    read.writer.read([PARROT, *(_answered(day) for day in (1, 3))])
    strengths = [
        {unit: value for (unit, name), value in agent.memory.bank.marks.items() if name == "strength"}
        for agent in (talked, read)
    ]
    assert strengths[0]["s1/e0"] == strengths[1]["s1/e0"] == 3.0


def _answered(day: int) -> Session:
    return session("how is the parrot", "Fine.", name=f"d{day}", start=START + day * DAY)
