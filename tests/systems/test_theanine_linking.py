"""Theanine at a session's end: units, labels, links, and the dialogues that labels are judged by."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.errors import LLMError, PartialFailure
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Meter, Wrapper
from localmem.systems.theanine.link import excerpt
from localmem.types import (
    AddUnit,
    Choice,
    Completion,
    Link,
    Prompt,
    Session,
    SetNote,
)
from tests.fakes import session
from tests.systems.theanine_script import BatchRecorder, TheanineScript, days, links_of, live, make, pair_of, text_of


def test_a_session_becomes_units_a_note_of_its_dialogue_and_links() -> None:
    memory = make(llm=ScriptedLLM(TheanineScript({"tea": ["User drinks tea.", "User has a cat."]})))
    past = session("I drink tea", "Fine", "and have a cat", "Sweet")
    changes = memory.end_session(past)
    assert [type(change) for change in changes] == [AddUnit, AddUnit, SetNote]
    first, second = (change.unit for change in changes if isinstance(change, AddUnit))
    assert (first.id, first.text, first.key, second.id) == ("s1/m0", "User drinks tea.", "User drinks tea.", "s1/m1")
    assert first.sources == tuple(turn.id for turn in past.turns)
    assert first.time == first.learned == past.turns[-1].time
    assert changes[-1] == SetNote(
        "dialogue/s1", "User: I drink tea\nAssistant: Fine\nUser: and have a cat\nAssistant: Sweet", past.turns[-1].time
    )
    assert memory.end_session(past) == changes


def test_units_of_one_session_are_not_linked_to_one_another() -> None:
    script = TheanineScript(
        {"tea": ["Ana drinks tea.", "Ana drinks green tea."]}, {("Ana drinks tea.", "Ana drinks green tea."): "Cause"}
    )
    changes = make(llm=ScriptedLLM(script)).end_session(session("tea"))
    assert links_of(changes) == []
    assert script.prompts_of("theanine/link") == []


def _three_and_one(linking: str) -> list[Link]:
    """Figure 3: two components, a -> b and c, all labelled, and a new unit."""
    events = {"p0": ["note a"], "p1": ["note b"], "p2": ["note c"], "p3": ["note d"]}
    labels = {("note a", "note b"): "Cause"} | {(f"note {old}", "note d"): "React" for old in "abc"}
    memory = make(llm=ScriptedLLM(TheanineScript(events, labels)), linking=linking)
    changes = live(memory, *(session(word, name=f"s{n}", start=days(n)) for n, word in enumerate(events)))
    return [link for link in links_of(changes) if link.target == "s3/m0"]


def test_a_new_unit_is_linked_to_the_most_recent_of_each_component() -> None:
    assert [(link.source, link.relation) for link in _three_and_one("recent")] == [
        ("s1/m0", "React"),
        ("s2/m0", "React"),
    ]


def test_or_to_all_that_are_labelled() -> None:
    assert [link.source for link in _three_and_one("all")] == ["s0/m0", "s1/m0", "s2/m0"]


def test_without_a_relation_there_is_no_link() -> None:
    script = TheanineScript({"p0": ["note a"], "p1": ["note b"]})
    memory = make(llm=ScriptedLLM(script))
    assert links_of(live(memory, session("p0", name="s0"), session("p1", name="s1", start=days(1)))) == []
    assert len(script.prompts_of("theanine/link")) == 2


class Doubtful(Wrapper):
    """Gives every option of a choice a log-probability of its own."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [self._doubt(*case) for case in zip(prompts, self.inner.generate(prompts), strict=True)]

    def _doubt(self, prompt: Prompt, completion: Completion) -> Completion:
        if not isinstance(prompt.format, Choice):
            return completion
        share = 0.2 / (len(prompt.format.options) - 1)
        return replace(
            completion,
            choices={name: math.log(0.8 if name == completion.text else share) for name in prompt.format.options},
        )


@pytest.mark.parametrize("relation, probability", [("Want", 0.8), ("SameTopic", 0.64)])
def test_a_link_has_the_probability_of_its_label(relation: str, probability: float) -> None:
    """SameTopic is the answer to two questions: that it is none of the six, and that it is the same topic."""
    script = TheanineScript({"p0": ["note a"], "p1": ["note b"]}, {("note a", "note b"): relation})
    memory = make(llm=Doubtful(ScriptedLLM(script)))
    (link,) = links_of(live(memory, session("p0", name="s0"), session("p1", name="s1", start=days(1))))
    assert link.probability == pytest.approx(probability)


class Silent(Wrapper):
    """A backend that does not tell probabilities."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [replace(completion, choices=None) for completion in self.inner.generate(prompts)]


@pytest.mark.parametrize("relation", ["Want", "SameTopic"])
def test_or_none_where_the_backend_does_not_tell(relation: str) -> None:
    script = TheanineScript({"p0": ["note a"], "p1": ["note b"]}, {("note a", "note b"): relation})
    memory = make(llm=Silent(ScriptedLLM(script)))
    (link,) = links_of(live(memory, session("p0", name="s0"), session("p1", name="s1", start=days(1))))
    assert link == Link("s0/m0", "s1/m0", relation, None)


def test_with_reasoning_an_explanation_comes_before_each_label() -> None:
    script = TheanineScript({"p0": ["note a"], "p1": ["note b"]}, {("note a", "note b"): "React"})
    memory = make(llm=ScriptedLLM(script), reasoning=True)
    (link,) = links_of(live(memory, session("p0", name="s0"), session("p1", name="s1", start=days(1))))
    assert link.relation == "React"
    assert [prompt.name for prompt in script.prompts[-2:]] == ["theanine/explain", "theanine/link"]
    explain, label = script.prompts[-2:]
    assert "Explanation: They go together: note b" in text_of(label)
    assert explain.messages[0] == label.messages[0]
    assert "note b\n\n" in _common(explain.messages[-1].content, label.messages[-1].content)


def test_the_two_linking_questions_differ_in_their_last_lines_only() -> None:
    script = TheanineScript({"p0": ["note a"], "p1": ["note b"]}, {("note a", "note b"): "SameTopic"})
    live(make(llm=ScriptedLLM(script)), session("p0", name="s0"), session("p1", name="s1", start=days(1)))
    first, second = script.prompts_of("theanine/link")
    assert first.messages[0] == second.messages[0]
    assert _common(first.messages[-1].content, second.messages[-1].content).endswith("note b\n\n")


def _common(first: str, second: str) -> str:
    length = next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    return first[:length]


def test_what_is_said_again_is_remembered_again() -> None:
    """That Ana lives in Paris after Lyon is news, though it was known before."""
    events = {"p0": ["Ana lives in Paris."], "p1": ["Ana lives in Lyon."], "p2": ["Ana lives in Paris."]}
    changed = {
        ("Ana lives in Paris.", "Ana lives in Lyon."): "Changed",
        ("Ana lives in Lyon.", "Ana lives in Paris."): "Changed",
    }
    memory = make(llm=ScriptedLLM(TheanineScript(events, changed)), refine=False)
    live(
        memory, *(session(word, *texts, name=f"s{n}", start=days(n)) for n, (word, texts) in enumerate(events.items()))
    )
    recall = memory.recall(session("where does Ana live", name="q", start=days(9)))
    assert [line.split(": ")[1] for line in recall.text.split("\n")] == [events[word][0] for word in events]


def test_a_session_remembered_late_is_linked_by_its_time() -> None:
    script = TheanineScript({"p0": ["note a"], "p1": ["note b"]}, {("note b", "note a"): "Cause"})
    memory = make(llm=ScriptedLLM(script), refine=False)
    changes = live(memory, session("p0", name="s0", start=days(5)), session("p1", name="s1"))
    assert [(link.source, link.target) for link in links_of(changes)] == [("s1/m0", "s0/m0")]
    assert pair_of(script.prompts_of("theanine/link")[0]) == ("note b", "note a")
    assert memory.recall(session("note a", name="q", start=days(9))).text.index("note b") == len("2 March 2026: ")


def _long_session(word: str, start: datetime) -> Session:
    texts = (f"{word} {n}: " + " ".join(f"{word}{n}-{m}" for m in range(24)) for n in range(14))
    return session(*texts, name=word, start=start)


def test_six_new_units_and_eighteen_pairs_are_asked_about_together_and_share_their_beginnings() -> None:
    events = {f"day{n} 0": [f"note {n} of topic {m}" for m in range(2)] for n in range(5)}
    events["last 0"] = [f"new note {m}" for m in range(6)]
    llm = BatchRecorder(ScriptedLLM(TheanineScript(events)))
    memory = make(llm=llm)
    live(memory, *(_long_session(f"day{n}", days(n)) for n in range(5)))
    llm.batches.clear()
    memory.end_session(_long_session("last", days(9)))
    summarize, first, second = llm.batches
    assert [len(summarize), len(first), len(second)] == [1, 18, 18]
    assert _hit_rate(first) >= 0.5
    assert _hit_rate(first + second) >= 0.5


def _hit_rate(prompts: Sequence[Prompt], block: int = 32) -> float:
    """The part of all words that a cache of whole blocks would hold from the prompts before."""
    groups: set[tuple[str, ...]] = set()
    hits = total = 0
    for prompt in prompts:
        words = text_of(prompt).split()
        total += len(words)
        beginnings = [tuple(words[:end]) for end in range(block, len(words) + 1, block)]
        hits += block * sum(beginning in groups for beginning in beginnings)
        groups.update(beginnings)
    return hits / total


@pytest.mark.parametrize("context", [pytest.param(1024, marks=pytest.mark.slow), 2048, 8192])
def test_linking_prompts_fit_the_model(context: int) -> None:
    events = {f"day{n} 0": [f"note {n}"] for n in range(3)}
    meter = Meter(ScriptedLLM(TheanineScript(events), context_length=context))
    memory = make(llm=meter)
    live(memory, *(session(f"day{n} 0", *["well " * 60] * 500, name=f"day{n}", start=days(n)) for n in range(3)))
    spent = meter.usage()["theanine/link"]
    assert spent.calls > 0
    assert spent.trimmed == 0


def test_a_label_that_cannot_be_used_makes_no_link_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    script = TheanineScript({"p0": ["note a"], "p1": ["note b"]})

    def answer(prompt: Prompt) -> str:
        return "Perhaps" if prompt.name == "theanine/link" else script(prompt)

    memory = make(llm=ScriptedLLM(answer))
    assert links_of(live(memory, session("p0", name="s0"), session("p1", name="s1", start=days(1)))) == []
    assert memory.fallbacks == {"theanine/link": 1}
    assert "theanine/link" in caplog.text


@pytest.mark.parametrize("name", ["theanine/summarize", "theanine/link"])
def test_a_backbone_that_fails_is_told_to_the_caller(name: str) -> None:
    script = TheanineScript({"p0": ["note a"], "p1": ["note b", "note c"]})
    memory = make(llm=ScriptedLLM(script))
    live(memory, session("p0", name="s0"))
    bank = memory.bank

    def answer(prompt: Prompt) -> str:
        if prompt.name == name:
            raise LLMError("gone")
        return script(prompt)

    broken = make(bank, llm=ScriptedLLM(answer))
    with pytest.raises((LLMError, PartialFailure)):
        broken.end_session(session("p1", name="s1", start=days(1)))
    assert broken.bank is bank


def _words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


LINES = st.lists(st.text("ab c\u00e9\ud55c\U0001f600", max_size=30), max_size=12)


@given(LINES, st.lists(st.text("ab c", max_size=9), max_size=3), st.integers(0, 60))
def test_an_excerpt_keeps_to_its_budget_and_order(lines: list[str], events: list[str], budget: int) -> None:
    dialogue = "\n".join(lines)
    text = excerpt(dialogue, events, budget, _words)
    assert sum(_words([text])) <= budget
    if text != dialogue:
        remaining = iter(dialogue.split("\n"))
        selected = [line for line in text.split("\n") if line != "[...]"]
        assert all(any(line == original or original.startswith(line) for original in remaining) for line in selected)


def test_an_excerpt_keeps_the_lines_that_speak_of_the_events() -> None:
    lines = [
        *(f"User: filler number {n} of many" for n in range(30)),
        "User: my Dog Bruno is ill",
        "Assistant: poor dog",
    ]
    lines.insert(7, "User: Bruno eats well")
    text = excerpt("\n".join(lines), ["Bruno the dog is ill."], 28, _words)
    assert text == "[...]\nUser: Bruno eats well\n[...]\nUser: my Dog Bruno is ill\nAssistant: poor dog"


def test_a_dialogue_that_fits_is_whole() -> None:
    assert excerpt("one\ntwo", ["x"], 4, _words) == "one\ntwo"
    assert excerpt("", ["x"], 1, _words) == ""
