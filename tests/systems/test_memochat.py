"""MemoChat: sessions become topics with a summary and their dialogue; the model picks those that help."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.bank import Bank
from localmem.errors import BadSettings
from localmem.factory import Parts
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.memochat import MemoChat, MemoChatOptions
from localmem.types import AddUnit, JsonSchema, Prompt, Session, Unit
from tests.fakes import START, BatchRecorder, WordRetriever, obedient, session


def make(bank: Bank | None = None, llm: LLM | None = None, entries: int = 10, kept: int = 2) -> MemoChat:
    options = MemoChatOptions(entries=entries, words=1024, kept=kept, topics=4, picks=3, longest=240)
    return MemoChat(Parts(llm or ScriptedLLM(obedient), WordRetriever), options, bank)


def _memo(*topics: tuple[str, int, int]) -> str:
    memos = [{"topic": name, "summary": f"About {name}.", "first": low, "last": high} for name, low, high in topics]
    return json.dumps({"memos": memos})


def _units(memory: MemoChat, past: Session) -> list[Unit]:
    return [change.unit for change in memory.end_session(past) if isinstance(change, AddUnit)]


def _query(text: str = "how is the cat?") -> Session:
    return session(text, name="now", start=START + timedelta(days=9))


class Script:
    """Answers of both prompts; what was asked is kept."""

    def __init__(self, memo: str, picks: str = '{"topics": []}') -> None:
        self.memo = memo
        self.picks = picks
        self.prompts: list[Prompt] = []

    def __call__(self, prompt: Prompt) -> str:
        self.prompts.append(prompt)
        return self.memo if prompt.name == "memochat/write" else self.picks

    def prompts_of(self, name: str) -> list[str]:
        texts = [prompt.messages[-1].content for prompt in self.prompts if prompt.name == name]
        return [text.removeprefix("Conversation:\n").removesuffix("\n\nMemo:") for text in texts]


def test_a_topic_has_its_summary_and_its_lines() -> None:
    script = Script(_memo(("the cat", 1, 2), ("work", 3, 4)))
    cat, work = _units(make(llm=ScriptedLLM(script)), session("my cat is ill", "oh", "I work late", "why?"))
    assert cat.text == "the cat: About the cat.\nUser: my cat is ill\nAssistant: oh"
    assert (cat.key, cat.sources) == ("the cat: About the cat.", ("s1.0", "s1.1"))
    assert (work.sources, work.time) == (("s1.2", "s1.3"), START + timedelta(minutes=2))
    assert script.prompts_of("memochat/write") == [
        "1. User: my cat is ill\n2. Assistant: oh\n3. User: I work late\n4. Assistant: why?"
    ]


def test_the_memo_is_written_at_ten_entries_and_the_last_two_go_on() -> None:
    script = Script(_memo(("all", 1, 10)))
    _units(make(llm=ScriptedLLM(script)), session(*(f"line-{n}" for n in range(20))))
    pieces = [
        [line.rpartition("line-")[2] for line in text.splitlines()] for text in script.prompts_of("memochat/write")
    ]
    assert pieces == [
        [str(n) for n in range(10)],
        [str(n) for n in range(8, 18)],
        ["16", "17", "18", "19"],
    ]


def test_the_memo_is_written_at_1024_words() -> None:
    script = Script(_memo(("all", 1, 2)))
    _units(make(llm=ScriptedLLM(script)), session("w " * 600, "w " * 424, "bye"))
    assert [len(text.splitlines()) for text in script.prompts_of("memochat/write")] == [2, 3]


def test_a_session_that_ends_as_the_memo_is_written_is_not_written_twice() -> None:
    script = Script(_memo(("all", 1, 10)))
    _units(make(llm=ScriptedLLM(script)), session(*(f"line-{n}" for n in range(10))))
    assert len(script.prompts_of("memochat/write")) == 1


@given(st.lists(st.integers(1, 700), min_size=1, max_size=60), st.integers(1, 12), st.integers(0, 3))
def test_pieces_lose_no_turn_and_end_when_full(lengths: list[int], entries: int, kept: int) -> None:
    if kept >= entries:
        with pytest.raises(BadSettings):
            make(entries=entries, kept=kept)
        return
    script = Script(_memo(("all", 1, 1)))
    past = session(*(f"#{n}# " + "w " * length for n, length in enumerate(lengths)))
    make(llm=ScriptedLLM(script, context_length=10**6), entries=entries, kept=kept).end_session(past)
    prompts_of = script.prompts_of("memochat/write")
    assert all(any(f"#{n}# " in text for text in prompts_of) for n in range(len(lengths)))
    assert all(len(text.splitlines()) <= entries for text in prompts_of)
    assert len(prompts_of) <= len(lengths)


def test_the_pieces_of_a_session_are_asked_about_together() -> None:
    llm = BatchRecorder(Script(_memo(("all", 1, 2))))
    make(llm=llm).end_session(session(*"abcdefghijklmnopqrst"))
    assert llm.sizes == [3]


def test_picked_topics_are_shown_with_their_dialogue() -> None:
    script = Script(_memo(("the cat", 1, 2), ("work", 3, 4)), '{"topics": [1]}')
    memory = make(llm=ScriptedLLM(script))
    memory.apply(memory.end_session(session("my cat is ill", "oh", "I work late", "why?")))
    recall = memory.recall(_query())
    assert recall.text == "2 March 2026: the cat: About the cat.\nUser: my cat is ill\nAssistant: oh"
    (prompts_of,) = script.prompts_of("memochat/select")
    assert "1. the cat: About the cat.\n2. work: About work.\n3. None of these." in prompts_of
    form = script.prompts[-1].format
    assert isinstance(form, JsonSchema)
    assert form.schema["properties"] == {
        "topics": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 3}, "maxItems": 3}
    }


@pytest.mark.parametrize("picks", ['{"topics": [3]}', '{"topics": []}'])
def test_none_of_the_topics_is_a_pick_too(picks: str) -> None:
    memory = make(llm=ScriptedLLM(Script(_memo(("the cat", 1, 2), ("work", 3, 4)), picks)))
    memory.apply(memory.end_session(session("a", "b", "c", "d")))
    assert memory.recall(_query()).hits == ()
    assert memory.fallbacks == {}


@pytest.mark.parametrize("memo", ['{"memos": []}', '{"memo', _memo(("beyond", 9, 10)), '{"other": 1}'])
def test_a_memo_that_cannot_be_used_keeps_the_dialogue_under_its_date(memo: str) -> None:
    memory = make(llm=ScriptedLLM(Script(memo)))
    (unit,) = _units(memory, session("my cat is ill", "oh"))
    assert unit.key == "2 March 2026: my cat is ill"
    assert unit.sources == ("s1.0", "s1.1")
    assert memory.fallbacks == {"memochat/write": 1}


def test_lines_given_the_wrong_way_round_are_read_the_right_way() -> None:
    (unit,) = _units(make(llm=ScriptedLLM(Script(_memo(("cat", 2, 1))))), session("my cat", "oh"))
    assert unit.sources == ("s1.0", "s1.1")


def test_picks_that_cannot_be_used_show_nothing_and_are_counted() -> None:
    memory = make(llm=ScriptedLLM(Script(_memo(("cat", 1, 2)), '{"topics": ["cat"')))
    memory.apply(memory.end_session(session("a", "b")))
    assert memory.recall(_query()).text == ""
    assert memory.fallbacks == {"memochat/select": 1}


def test_of_a_memo_too_long_for_the_model_the_newest_topics_are_offered() -> None:
    script = Script(_memo(("the cat and all her many kittens by name and colour", 1, 2)), '{"topics": [1]}')
    memory = make(llm=ScriptedLLM(script, context_length=1200))
    for n in range(80):
        memory.apply(memory.end_session(session("a", "b", name=f"s{n}")))
    (hit,) = memory.recall(_query()).hits
    assert hit.unit.session not in {"s0", "s79"}, "the first of those offered"
    assert memory.fallbacks == {"memochat/select": 1}


def test_nothing_is_asked_about_an_empty_memo_or_session() -> None:
    memory = make(llm=ScriptedLLM(lambda _: pytest.fail("nothing is to be asked")))
    assert memory.end_session(session()) == []
    assert memory.recall(_query()).text == ""
