"""CareCall: what a session's end changes, for each operation and setting; what is recalled; the paper's examples."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from localmem.bank import Bank
from localmem.classification import OPERATIONS, Operation, OperationLabel
from localmem.config import system_options
from localmem.errors import BadInput, LLMUnavailable, PartialFailure
from localmem.factory import Parts
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.prompts import render
from localmem.retrieval.base import Match, Scope
from localmem.systems.carecall import (
    CareCall,
    CareCallOptions,
    GoldMemory,
    HistoryAccumulate,
    WithoutMemory,
    read_gold,
)
from localmem.types import AddUnit, Change, Completion, Prompt, RefuseText, RetireUnit, Session, Unit
from tests.fakes import START, WordRetriever, obedient, script, session, turns

OPTIONS = CareCallOptions.model_validate({**system_options("carecall", {}), "k": 5, "query_turns": 6})


def _carecall(
    llm: LLM, table: "Table | None" = None, bank: Bank | None = None, options: Mapping[str, object] | None = None
) -> CareCall:
    """With a table as the classifier; without one the LLM classifies."""
    parts = Parts(llm, WordRetriever, load_classifier=lambda _: table or Table())
    values = {"classifier": "table" if table else None, **(options or {})}
    return CareCall(parts, OPTIONS.model_copy(update=values), bank)


def make(bank: Bank | None = None, llm: LLM | None = None) -> Memory:
    llm = llm or ScriptedLLM(obedient)
    options = {"speakers": "both", "shortlist": 3, "capacity": 40, "fusion": True}
    return _carecall(llm, bank=bank, options=options)


class Table:
    """A classifier that looks pairs up; any other pair is an APPEND. Keeps what it was asked, batch by batch."""

    def __init__(self, labels: Mapping[tuple[str, str], Operation] | None = None) -> None:
        self.labels = labels or {}
        self.batches: list[list[tuple[str, str]]] = []

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        self.batches.append(list(pairs))
        operations = [self.labels.get(pair, "APPEND") for pair in pairs]
        return [OperationLabel(name, {other: float(other == name) for other in OPERATIONS}) for name in operations]


def _summaries(facts: Mapping[str, Sequence[str]]) -> Callable[[Prompt], str]:
    """Answers the summary's prompt with the facts whose key stands in it."""

    def script(prompt: Prompt) -> str:
        question = prompt.messages[-1].content
        return json.dumps(
            {"memories": [fact for key, sentences in facts.items() if key in question for fact in sentences]}
        )

    return script


def _memory(
    facts: Mapping[str, Sequence[str]],
    labels: Mapping[tuple[str, str], Operation] | None = None,
    *,
    table: Table | None = None,
    fuse: Callable[[Prompt], str] | None = None,
    **options: object,
) -> CareCall:
    summaries = _summaries(facts)

    def script(prompt: Prompt) -> str:
        return fuse(prompt) if fuse and prompt.name == "carecall/fuse" else summaries(prompt)

    return _carecall(ScriptedLLM(script), table or Table(labels), None, {"fusion": fuse is not None, **options})


def _past(key: str, number: int = 1) -> Session:
    return session(key, "I see.", name=f"s{number}", start=START + timedelta(days=number))


def _live(memory: Memory) -> list[str]:
    return [unit.text for unit in memory.bank.live()]


def _end(memory: Memory, past: Session) -> list[Change]:
    changes = memory.end_session(past)
    memory.apply(changes)
    return changes


# -- the paper's own examples, in our words ----------------------------------------------------------------------------

_EPISODE = {
    "first call": ["User fasts because the stomach hurts.", "User sleeps soundly."],
    "second call": ["User's stomach is well again.", "User sleeps soundly.", "User walks by the lake."],
    "third call": ["User has proper meals.", "User gets massages from a therapist for a stiff back."],
}
_EPISODE_LABELS: dict[tuple[str, str], Operation] = {
    ("User fasts because the stomach hurts.", "User's stomach is well again."): "DELETE",
}


def test_the_episode_of_figure_4() -> None:
    """A passing illness leaves with its recovery, what is said again is stored once, the rest adds up."""
    memory = _memory(_EPISODE, _EPISODE_LABELS)
    _end(memory, _past("first call", 1))
    assert _live(memory) == ["User fasts because the stomach hurts.", "User sleeps soundly."]
    _end(memory, _past("second call", 2))
    assert _live(memory) == ["User sleeps soundly.", "User walks by the lake."]
    assert [unit.session for unit in memory.bank.live()] == ["s1", "s2"], "of two alike the old one stays"
    _end(memory, _past("third call", 3))
    assert _live(memory) == [
        "User sleeps soundly.",
        "User walks by the lake.",
        "User has proper meals.",
        "User gets massages from a therapist for a stiff back.",
    ]
    assert memory.recall(_past("my back", 4)).text.count("\n") == 3


_TABLE_7: list[tuple[str, str, Operation]] = [
    ("Jo has no appetite and hardly eats.", "Jo has no appetite.", "PASS"),
    ("Jo is not ill.", "Jo has no trouble with her health.", "PASS"),
    ("Jo climbs a hill every Sunday.", "Jo climbs hills.", "PASS"),
    ("Jo has no trouble with her health.", "Jo's spine was operated on.", "REPLACE"),
    ("Jo sleeps badly.", "Jo sleeps well since she takes pills for it.", "REPLACE"),
    ("Jo lives by herself.", "Jo's daughter stays with her this month.", "REPLACE"),
    ("Jo's grandson goes to primary school.", "Jo's grandson starts secondary school.", "REPLACE"),
    ("Jo lifts weights.", "Jo's muscles ache from training.", "APPEND"),
    ("Jo has proper meals.", "Jo sees a physiotherapist.", "APPEND"),
    ("Jo keeps a dog.", "Jo's dog is fond of apples.", "APPEND"),
    ("Jo was given sleeping pills.", "Jo has a son.", "APPEND"),
    ("Jo likes to work in the garden.", "Jo's garden is full of tulips.", "APPEND"),
    ("Jo's throat was sore.", "Jo's throat is well.", "DELETE"),
    ("Jo takes tablets against headaches.", "Jo has no headaches any more.", "DELETE"),
]


@pytest.mark.parametrize(("old", "new", "operation"), _TABLE_7)
def test_the_pairs_of_table_7(old: str, new: str, operation: Operation) -> None:
    memory = _memory({"before": [old], "after": [new]}, {(old, new): operation})
    _end(memory, _past("before", 1))
    changes = _end(memory, _past("after", 2))
    expected: dict[Operation, list[str]] = {"PASS": [old], "REPLACE": [new], "APPEND": [old, new], "DELETE": []}
    assert _live(memory) == expected[operation]
    assert len(memory.bank.units) == 1 + (operation in ("REPLACE", "APPEND")), "what is dropped never enters the bank"
    retired = [change for change in changes if isinstance(change, RetireUnit)]
    reasons: dict[Operation, list[tuple[str, str]]] = {
        "REPLACE": [("s2/user0", "REPLACE")],
        "DELETE": [("carecall/operation", f"DELETE: {new}")],
    }
    assert [(change.by, change.reason) for change in retired] == reasons.get(operation, [])


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_all_pairs_of_a_session_are_one_batch() -> None:
    table = Table()
    memory = _memory({"first": ["A1.", "A2."], "second": ["B1.", "A2.", "B2."]}, table=table)
    _end(memory, _past("first", 1))
    assert table.batches == [], "there is nothing to compare with yet"
    _end(memory, _past("second", 2))
    (batch,) = table.batches
    assert len(batch) == 5, "2 x 3 pairs, but for the one of equal texts"
    assert ("A2.", "A2.") not in batch


def _thousand(memory: CareCall) -> None:
    """1,000 memories, the n-th of which holds the words "topic" and n."""
    facts = [
        Unit(f"s0/user{n}", f"topic {n}", f"topic {n}", "user_fact", "User", "s0", ("s0.0",), START, START)
        for n in range(1000)
    ]
    memory.apply([AddUnit(fact, START) for fact in facts])


_TEN = {"today": [f"news of topic {n}" for n in range(8)], "": ["news of weather", "news of Bo"]}


@pytest.mark.parametrize(("shortlist", "most"), [(0, 10_000), (1, 10), (7, 70)])
def test_a_thousand_memories_and_ten_sentences_are_one_classification(shortlist: int, most: int) -> None:
    table = Table()
    memory = _memory(_TEN, table=table, shortlist=shortlist)
    _thousand(memory)
    _end(memory, _past("today", 1))
    (batch,) = table.batches
    assert len(batch) == most
    assert {(f"topic {n}", f"news of topic {n}") for n in range(8)} <= set(batch)


def test_what_the_shortlist_leaves_out_is_appended_and_equal_texts_pass_even_so() -> None:
    labels: dict[tuple[str, str], Operation] = {("red tea", "green tea"): "REPLACE", ("blue", "green tea"): "REPLACE"}
    memory = _memory({"one": ["red tea", "blue", "a cat"], "two": ["green tea", "a cat"]}, labels, shortlist=1)
    _end(memory, _past("one", 1))
    _end(memory, _past("two", 2))
    assert _live(memory) == ["blue", "a cat", "green tea"]


# -- both speakers -----------------------------------------------------------------------------------------------------


class Watching(ScriptedLLM):
    """Keeps the batches it was asked."""

    def __init__(self, script: Callable[[Prompt], str]) -> None:
        super().__init__(script)
        self.batches: list[list[Prompt]] = []

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.batches.append(list(prompts))
        return super().generate(prompts)


def _about(prompt: Prompt) -> str:
    return prompt.messages[-1].content.splitlines()[-1].removeprefix("Facts about ").removesuffix(":")


def test_each_speaker_has_a_memory_of_their_own() -> None:
    table = Table({("User has a dog.", "Assistant has a cat."): "REPLACE"})
    llm = Watching(lambda prompt: json.dumps({"memories": [f"{_about(prompt)} has a {_animal(prompt)}."]}))
    memory = _carecall(llm, table, options={"speakers": "both", "shortlist": 1})
    _end(memory, _past("dog", 1))
    _end(memory, _past("cat", 2))
    assert [len(batch) for batch in llm.batches] == [2, 2], "both speakers are asked about in one call"
    assert {prompt.messages[0] for batch in llm.batches for prompt in batch} == {llm.batches[0][0].messages[0]}
    first, second = (prompt.messages[-1].content for prompt in llm.batches[0])
    assert first.rpartition(" about ")[0] == second.rpartition(" about ")[0], "what varies stands last"
    assert table.batches == [[("User has a dog.", "User has a cat."), ("Assistant has a dog.", "Assistant has a cat.")]]
    assert {(unit.speaker, unit.kind) for unit in memory.bank.live()} == {
        ("User", "user_fact"),
        ("Assistant", "assistant_fact"),
    }


def _animal(prompt: Prompt) -> str:
    return "dog" if "User: dog" in prompt.messages[-1].content else "cat"


def test_the_shortlist_of_one_speaker_is_not_filled_by_the_other() -> None:
    table = Table()
    facts = {"Facts about User:": ["red tea"], "Facts about Assistant:": ["red tea hot", "red tea cold", "red tea"]}
    memory = _memory({**facts, "two": ["new red tea"]}, table=table, speakers="both", shortlist=2)
    _end(memory, _past("one", 1))
    _end(memory, _past("two", 2))
    batch = table.batches[-1]
    assert ("red tea", "new red tea") in batch
    assert sum(new == "new red tea" for _, new in batch) == 3, "the user's one memory, two of the assistant's three"


def test_two_speakers_with_one_name_are_told_apart() -> None:
    past = Session("s1", tuple(replace(turn, speaker="Kim") for turn in turns("I sing", "I paint")))
    llm = Watching(lambda prompt: json.dumps({"memories": [f"{_about(prompt)} is here."]}))
    memory = _carecall(llm, Table(), options={"speakers": "both"})
    _end(memory, past)
    assert [_about(prompt) for prompt in llm.batches[0]] == ["Kim (user)", "Kim (assistant)"]
    assert "Kim (user): I sing\nKim (assistant): I paint" in llm.batches[0][0].messages[-1].content
    assert [unit.kind for unit in memory.bank.live()] == ["user_fact", "assistant_fact"]


def test_a_speaker_who_said_nothing_is_not_asked_about() -> None:
    monologue = Session("s1", tuple(turn for turn in turns("a", "I like tea", "b", "and cake") if turn.role != "user"))
    llm = ScriptedLLM(lambda _: pytest.fail("nothing is to be asked"))
    memory = _carecall(llm, Table())
    assert memory.end_session(monologue) == []
    assert memory.end_session(Session("s2")) == []


# -- conflicts, capacity, fusion ---------------------------------------------------------------------------------------


def test_the_history_of_a_unit_says_what_took_its_place() -> None:
    labels: dict[tuple[str, str], Operation] = {("old", "new"): "REPLACE", ("other", "new"): "PASS"}
    memory = _memory({"one": ["old", "other"], "two": ["new"]}, labels)
    _end(memory, _past("one", 1))
    changes = _end(memory, _past("two", 2))
    assert _live(memory) == ["other"]
    time = _past("two", 2).turns[-1].time
    assert changes == [
        RetireUnit("s1/user0", "s1/user1", "REPLACE: new", time),
        RefuseText("new", "PASS", "carecall/operation", ("s2.0", "s2.1"), time, "other"),
    ]


def test_the_oldest_go_when_a_speakers_memory_is_full() -> None:
    facts = {f"day {n}": [f"fact {n}a", f"fact {n}b"] for n in range(1, 4)}
    memory = _memory(facts, capacity=3)
    for n in range(1, 4):
        _end(memory, _past(f"day {n}", n))
    assert _live(memory) == ["fact 2b", "fact 3a", "fact 3b"]
    assert {change.by for change in memory.bank.retired.values()} == {"carecall/capacity"}
    assert {match.id for match in memory.index.search(["fact"], 9)[0]} == {"s2/user1", "s3/user0", "s3/user1"}


def test_more_new_sentences_than_the_memory_holds() -> None:
    memory = _memory({"day": ["one", "two", "three"]}, capacity=2)
    _end(memory, _past("day"))
    assert _live(memory) == ["two", "three"]


def _fusing(loses: bool, merged: str, prompts: list[Prompt] | None = None) -> Callable[[Prompt], str]:
    def script(prompt: Prompt) -> str:
        if prompts is not None:
            prompts.append(prompt)
        return json.dumps({"loses": loses, "sentence": merged})

    return script


_SORE = "User's back is sore and no doctor has seen it."
_CARE = "User sees a physiotherapist."
_FUSED = "User sees a physiotherapist for the sore back."


def test_fusion_stores_one_sentence_where_a_replacement_would_lose_something() -> None:
    prompts: list[Prompt] = []
    facts = {"one": [_SORE, "User gardens."], "two": [_CARE, "User reads."]}
    memory = _memory(facts, {(_SORE, _CARE): "REPLACE"}, fuse=_fusing(True, f" {_FUSED} ", prompts))
    _end(memory, _past("one", 1))
    assert prompts == [], "nothing was replaced yet"
    changes = _end(memory, _past("two", 2))
    assert _live(memory) == ["User gardens.", _FUSED, "User reads."]
    assert len(prompts) == 1
    assert _SORE in prompts[0].messages[-1].content
    (fused,) = (unit for unit in memory.bank.live() if unit.text == _FUSED)
    assert fused.key == _FUSED
    assert fused.sources == ("s1.0", "s1.1", "s2.0", "s2.1"), "it comes from what was said then and now"
    assert [change.reason for change in changes if isinstance(change, RetireUnit)] == ["FUSION"]


def test_fusion_leaves_a_plain_replacement_alone() -> None:
    facts = {"one": [_SORE], "two": [_CARE]}
    for merged in (_CARE, "something else", ""):
        memory = _memory(facts, {(_SORE, _CARE): "REPLACE"}, fuse=_fusing(False, merged))
        _end(memory, _past("one", 1))
        _end(memory, _past("two", 2))
        assert _live(memory) == [_CARE]


def test_fusion_sees_all_that_one_sentence_replaces_and_only_what_is_stored() -> None:
    labels: dict[tuple[str, str], Operation] = {
        ("a", "x"): "REPLACE",
        ("b", "x"): "REPLACE",
        ("c", "y"): "DELETE",
        ("d", "z"): "REPLACE",
        ("e", "z"): "PASS",
    }
    prompts: list[Prompt] = []
    memory = _memory(
        {"one": ["a", "b", "c", "d", "e"], "two": ["x", "y", "z"]}, labels, fuse=_fusing(True, "ab", prompts)
    )
    _end(memory, _past("one", 1))
    _end(memory, _past("two", 2))
    assert [prompt.messages[-1].content for prompt in prompts] == ["Older: a\nOlder: b\nNew: x\nAnswer:"]
    assert _live(memory) == ["e", "ab"]


def test_what_people_added_by_hand_is_kept_up_to_date_too() -> None:
    memory = _memory({"moved": ["User lives in Lyon."]}, {("User lives in Paris.", "User lives in Lyon."): "REPLACE"})
    note = Unit("n1", "User lives in Paris.", "User lives in Paris.", "note", "", "", (), START, START)
    memory.apply([AddUnit(note, START)])
    assert "Paris" in memory.recall(_past("hello")).text
    _end(memory, _past("I moved to Lyon"))
    assert _live(memory) == ["User lives in Lyon."]


# -- variants ----------------------------------------------------------------------------------------------------------


def test_memory_accumulate_appends_everything_but_repeats() -> None:
    memory = _carecall(ScriptedLLM(_summaries(_EPISODE)), options={"variant": "accumulate"})
    for n, key in enumerate(_EPISODE):
        _end(memory, _past(key, n))
    assert _live(memory) == list(dict.fromkeys(fact for facts in _EPISODE.values() for fact in facts))


def test_without_memory_nothing_is_kept() -> None:
    memory = WithoutMemory()
    assert _end(memory, _past("hello")) == []
    assert memory.recall(_past("hello", 2)).text == ""


def test_history_accumulate_shows_the_newest_past_that_fits() -> None:
    llm = ScriptedLLM(lambda _: pytest.fail("nothing is to be asked"), context_length=4000)
    long = HistoryAccumulate(llm=llm, tokens=2048)
    short = HistoryAccumulate(llm=llm, tokens=10)
    for memory in (long, short):
        _end(memory, _past("first words", 1))
        _end(memory, _past("more words", 2))
    assert long.recall(_past("now", 3)).text == (
        "3 March 2026\nUser: first words\nAssistant: I see.\n\n4 March 2026\nUser: more words\nAssistant: I see."
    )
    assert short.recall(_past("now", 3)).text.startswith("3 March 2026\nAssistant: I see.\n\n4 March 2026\nUser: more")
    full = session("word " * 6000, name="s9")
    assert long.recall(full).text == "", "the dialogue alone fills the context"


def test_gold_memory_is_what_was_given() -> None:
    memory = GoldMemory(retriever=WordRetriever(), gold={"s1": ["a", "b"], "s2": ["b", "c", "c"]}, k=5, query_turns=6)
    _end(memory, _past("x", 1))
    assert _live(memory) == ["a", "b"]
    _end(memory, _past("x", 2))
    assert _live(memory) == ["b", "c"]
    assert memory.recall(_past("c", 3)).text == "3 March 2026: b\n4 March 2026: c"
    with pytest.raises(BadInput, match="s3"):
        memory.end_session(_past("x", 3))


def test_gold_memory_is_read_from_a_file_or_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "gold.json"
    file.write_text('{"s1": ["a"], "s2": []}', encoding="utf-8")
    assert read_gold(file) == {"s1": ["a"], "s2": []}
    for broken in ("[1]", '{"s1": "a"}', '{"s1": [1]}', "{"):
        file.write_text(broken, encoding="utf-8")
        with pytest.raises(BadInput, match=r"gold\.json"):
            read_gold(file)
    with pytest.raises(BadInput, match="cannot read"):
        read_gold(tmp_path / "none.json")


# -- recall ------------------------------------------------------------------------------------------------------------


def test_the_nearest_are_recalled_in_time_order_for_the_last_turns() -> None:
    facts = {"one": ["User drinks tea", "User has a dog"], "two": ["User drinks coffee"]}
    memory = _memory(facts, k=2)
    _end(memory, _past("one", 1))
    _end(memory, _past("two", 2))
    query = session("what shall we talk about", "tea or coffee maybe", "which one is it", name="s3")
    recall = memory.recall(query)
    assert recall.text == "3 March 2026: User drinks tea\n4 March 2026: User drinks coffee"
    assert memory.recall(query) == recall
    assert recall.proposed == ()


def test_the_query_is_no_longer_than_the_setting_and_begins_with_what_was_said_last() -> None:
    searched: list[str] = []

    class Asking(WordRetriever):
        def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
            searched.extend(queries)
            return super().search(queries, k, scope)

    memory = GoldMemory(retriever=Asking(), gold={}, k=5, query_turns=2)
    memory.recall(session("one", "two", "three"))
    assert searched == ["User: three\nAssistant: two"]


# -- when things go wrong ----------------------------------------------------------------------------------------------


def test_the_same_session_gives_the_same_changes_and_nothing_is_changed_by_asking() -> None:
    memory = make()
    _end(memory, _past("one", 1))
    before = memory.bank
    assert memory.end_session(_past("two", 2)) == memory.end_session(_past("two", 2))
    assert memory.bank is before


def test_a_bank_rebuilt_from_its_changes_recalls_the_same() -> None:
    memory = make()
    for n in range(1, 6):
        _end(memory, _past(f"day {n} 안녕 🎉", n))
    again = make(bank=memory.bank)
    assert memory.recall(_past("fact", 9)).text
    assert again.recall(_past("fact", 9)) == memory.recall(_past("fact", 9))


def test_a_summary_that_cannot_be_used_gives_no_sentence_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    for broken in ('{"memories": ["cut', "[]", '{"memories": 3}'):
        llm = ScriptedLLM(script({"carecall/summarize": broken}))
        memory = _carecall(llm, Table())
        assert memory.end_session(_past("hello")) == []
        assert memory.fallbacks == {"carecall/summarize": 1}
        assert "carecall/summarize" in caplog.text
        caplog.clear()


def test_a_fusion_that_cannot_be_used_is_a_plain_replacement_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    for broken in ('{"loses": tr', "{}", '{"loses": "yes", "sentence": 3}'):
        fuse = script({"carecall/fuse": broken})
        memory = _memory({"one": [_SORE], "two": [_CARE]}, {(_SORE, _CARE): "REPLACE"}, fuse=fuse)
        _end(memory, _past("one", 1))
        _end(memory, _past("two", 2))
        assert _live(memory) == [_CARE]
        assert memory.fallbacks == {"carecall/fuse": 1}
        assert "carecall/fuse" in caplog.text
        caplog.clear()


def test_a_backbone_that_fails_half_way_leaves_nothing() -> None:
    def script(prompt: Prompt) -> str:
        if prompt.name == "carecall/operation" and "three" in prompt.messages[-1].content:
            raise LLMUnavailable("no server answers")
        facts = ["one", "two", "three"]
        return json.dumps({"memories": facts}) if prompt.name == "carecall/summarize" else "PASS"

    llm = ScriptedLLM(script)
    memory = make(llm=llm)
    _end(memory, _past("x", 1))
    with pytest.raises(PartialFailure):
        memory.end_session(_past("x", 2))
    assert _live(memory) == ["one", "two", "three"] * 2
    assert len(memory.bank.units) == 6


def test_a_session_of_500_turns_is_summarised_in_parts_and_classified_once() -> None:
    llm = Watching(lambda _: json.dumps({"memories": ["User talks a lot."]}))
    table = Table()
    memory = _carecall(llm, table)
    _end(memory, _past("x", 1))
    long = session(*(f"turn {n}. " + "word " * 60 for n in range(500)), name="s2")
    _end(memory, long)
    parts = llm.batches[-1]
    assert len(llm.batches) == 2
    assert 1 < len(parts) < 20
    assert all(sum(f"turn {n}. " in prompt.messages[-1].content for prompt in parts) == 1 for n in range(500))
    assert _live(memory) == ["User talks a lot."]


# -- prompts -----------------------------------------------------------------------------------------------------------


def test_prompts_as_they_are_sent() -> None:
    summarize = render("carecall/summarize", dialogue="Jo: hi", user="Jo", assistant="Bot", about="Jo")
    assert summarize.messages[-1].content == ("Dialogue between Jo and Bot:\n\nJo: hi\n\nFacts about Jo:")
    operation = render("carecall/operation", memory="old {{ x }}", sentence="new")
    assert operation.messages[-1].content == "Remembered: old {{ x }}\nNew: new\nOperation:"
    assert all(f"{name}:" in operation.messages[0].content for name in OPERATIONS)
    fuse = render("carecall/fuse", memories=["a", "b"], sentence="c")
    assert fuse.messages[-1].content == "Older: a\nOlder: b\nNew: c\nAnswer:"
    assert {prompt.temperature for prompt in (summarize, operation, fuse)} == {0.0}


def test_examples_and_instructions_never_become_memories() -> None:
    """A backbone that gives back whatever it is shown brings none of the instructions into the bank."""
    texts: set[str] = set()

    def parrot(prompt: Prompt) -> str:
        instructions, lines = (message.content.splitlines() for message in prompt.messages)
        texts.update(line for line in instructions if len(line.split()) > 3)
        if prompt.name == "carecall/summarize":
            return json.dumps({"memories": [*instructions, *lines]})
        if prompt.name == "carecall/fuse":
            return json.dumps({"loses": True, "sentence": "Ana does exercises with a therapist twice a week"})
        return "REPLACE"

    memory = make(llm=ScriptedLLM(parrot))
    for n in (1, 2):
        _end(memory, _past(f"visit {n}", n))
    assert any(text.endswith("visit 2") for text in _live(memory))
    assert any("Ana" in line for line in texts)
    assert texts & set(_live(memory)) == set()
    assert not any("Ana" in text for text in _live(memory))
    assert memory.fallbacks["carecall/fuse"] > 0


def test_every_sentence_that_a_pass_or_delete_drops_is_on_record() -> None:
    memory = _memory(_EPISODE, _EPISODE_LABELS)
    for number, key in enumerate(_EPISODE):
        _end(memory, _past(key, number))
    stomach, sound = _EPISODE["first call"]
    assert [(refused.reason, refused.prompt, refused.text, refused.detail) for refused in memory.bank.refused] == [
        ("DELETE", "carecall/operation", "User's stomach is well again.", stomach),
        ("PASS", "carecall/operation", sound, sound),
    ]
    assert {refused.sources for refused in memory.bank.refused} == {("s1.0", "s1.1")}
