"""Theanine in recall: timelines, their refinement, the ablations and the options."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.bank import Bank
from localmem.config import load_settings, system_names, system_options
from localmem.errors import BadSettings, LLMError
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Meter
from localmem.memory import Memory
from localmem.retrieval.base import Match, Scope
from localmem.systems import read_options
from localmem.systems.theanine import Theanine, TheanineOptions
from localmem.systems.theanine.graph import Timeline
from localmem.types import AddLink, AddUnit, Hit, Link, Prompt, RetireUnit, Session
from tests.fakes import START, WordRetriever, obedient, session, unit
from tests.systems.theanine_script import BatchRecorder, TheanineScript, days, links_of, live, make


def _diamond(llm: LLM | None = None, **options: object) -> Memory:
    """Unit a forks into b and c, which join in d; all speak of a word of their own and of "note"."""
    units = [unit(name, f"note {name}", time=days(n)) for n, name in enumerate("abcd")]
    links = [Link(older, newer, "Cause") for older, newer in ("ab", "ac", "bd", "cd")]
    bank = Bank().apply([*(AddUnit(u, u.time) for u in units), *(AddLink(link, START) for link in links)])
    return make(bank, llm, **options)


def _options(values: dict[str, object]) -> TheanineOptions:
    return read_options(TheanineOptions, system_options("theanine", values))


def _recalled_ids(memory: Memory, query: Session) -> list[str]:
    return [hit.unit.id for hit in memory.recall(query).hits]


def test_the_same_turn_draws_the_same_timeline_and_another_may_not() -> None:
    memory = _diamond(k=1, refine=False)
    queries = [session("a", name=f"q{n}", start=days(9)) for n in range(20)]
    drawn = [_recalled_ids(memory, query) for query in queries]
    assert drawn == [_recalled_ids(_diamond(k=1, refine=False), query) for query in queries]
    assert {tuple(path) for path in drawn} == {("a", "b", "d"), ("a", "c", "d")}


def test_another_seed_draws_others() -> None:
    queries = [session("a", name=f"q{n}", start=days(9)) for n in range(20)]
    first, second = _diamond(k=1, refine=False), _diamond(k=1, refine=False, seed=1)
    assert [_recalled_ids(first, query) for query in queries] != [_recalled_ids(second, query) for query in queries]


def test_several_timelines_a_hit_are_drawn_when_asked_for() -> None:
    memory = _diamond(k=1, n=20, refine=False)
    text = memory.recall(session("a", name="q", start=days(9))).text
    assert len(text.split("\n\n")) == 2  # of twenty draws, the two that differ
    assert set(_recalled_ids(memory, session("a", name="q", start=days(9)))) == set("abcd")


def test_all_timelines_are_refined_together_after_the_same_dialogue() -> None:
    units = [unit(name, f"note {name}") for name in "abc"]
    llm = BatchRecorder(ScriptedLLM(TheanineScript(refined="Something short.")))
    memory = make(Bank().apply([AddUnit(u, u.time) for u in units]), llm=llm)
    recall = memory.recall(session("hello", "yes?", "a note", name="q", start=days(1)))
    (prompts,) = llm.batches
    assert [prompt.name for prompt in prompts] == ["theanine/refine"] * 3
    assert len({prompt.messages[-1].content.split("Timeline:")[0] for prompt in prompts}) == 1
    assert recall.text == "Something short.\n\nSomething short.\n\nSomething short."


def test_a_long_dialogue_leaves_room_for_the_timeline() -> None:
    meter = Meter(ScriptedLLM(TheanineScript(refined="Short."), context_length=1000))
    memory = make(Bank().apply([AddUnit(unit("a", "note a"), START)]), llm=meter)
    memory.recall(session(*["word " * 50] * 99, name="q", start=days(1)))
    assert meter.usage()["theanine/refine"].trimmed == 0
    assert meter.usage()["theanine/refine"].input_tokens > 600


@pytest.mark.parametrize("empty", ["", "  \n", "...", "Half a sentence that goes on and on " * 60])
def test_a_refinement_without_a_whole_sentence_leaves_the_timeline_as_it_was(
    empty: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = make(Bank().apply([AddUnit(unit("a", "note a"), START)]), llm=ScriptedLLM(TheanineScript(refined=empty)))
    assert memory.recall(session("a", name="q", start=days(1))).text == "2 March 2026: note a"
    assert memory.fallbacks == {"theanine/refine": 1}
    assert "theanine/refine" in caplog.text


def test_a_refinement_that_is_cut_loses_its_last_sentence() -> None:
    refined = "Ana moved. " + "She " + "then " * 300
    memory = make(Bank().apply([AddUnit(unit("a", "note a"), START)]), llm=ScriptedLLM(TheanineScript(refined=refined)))
    assert memory.recall(session("a", name="q", start=days(1))).text == "Ana moved."


def test_the_query_is_the_last_turns_newest_first() -> None:
    searched: list[str] = []

    class Spy(WordRetriever):
        def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
            searched.extend(queries)
            return [[] for _ in queries]

    llm = ScriptedLLM(obedient)
    options = _options({"query_turns": 3})
    memory = Theanine(llm=llm, retriever=Spy(), summarize=lambda _turns, _gate: [], options=options)
    assert memory.recall(session("one", "two", "three", "four")).text == ""
    assert searched == ["Assistant: four\nUser: three\nAssistant: two"]


def test_what_a_user_retired_is_neither_found_nor_passed_through() -> None:
    memory = _diamond(refine=False)
    memory.apply([RetireUnit("b", "user", "wrong", START), RetireUnit("c", "user", "wrong", START)])
    recall = memory.recall(session("a", name="q", start=days(9)))
    assert recall.text.split("\n\n") == ["2 March 2026: note a", "23 March 2026: note d"]


def test_another_process_changed_the_bank() -> None:
    memory = _diamond(refine=False, k=1)
    other = memory.bank.apply(
        [AddUnit(unit("e", "note e", time=days(5)), START), AddLink(Link("d", "e", "Want"), START)]
    )
    memory.catch_up(other)
    assert _recalled_ids(memory, session("d", name="q", start=days(9)))[-2:] == ["d", "e"]


def _chain(size: int, hit: int) -> Timeline:
    units = tuple(unit(str(n)) for n in range(size))
    return Timeline(Hit(units[hit], 1.0), units, tuple(f"r{n}" for n in range(size - 1)))


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_a_long_timeline_keeps_its_hit_its_end_and_its_beginning(size: int, longest: int, data: st.DataObject) -> None:
    hit = data.draw(st.integers(0, size - 1))
    short = _chain(size, hit).shorten_to(longest)
    names = [int(unit.id) for unit in short.units]
    assert len(names) == min(size, longest)
    assert names == sorted(names)
    assert hit in names
    assert longest < 2 or size - 1 in names
    assert longest < 3 or 0 in names
    for step, older, newer in zip(short.steps, names[:-1], names[1:], strict=True):
        assert step == (f"r{older}" if newer == older + 1 else None)


def test_what_is_left_out_of_a_timeline_is_marked() -> None:
    units = [unit(str(n), f"note {n}", time=days(n)) for n in range(30)]
    links = [Link(str(n), str(n + 1), "Cause") for n in range(29)]
    bank = Bank().apply([*(AddUnit(u, u.time) for u in units), *(AddLink(link, START) for link in links)])
    recall = make(bank, refine=False, k=1, longest=4).recall(session("15", name="q", start=days(99)))
    lines = recall.text.split("\n")
    assert [re.search(r"note (\d+)$", line).group(1) for line in lines] == ["0", "14", "15", "29"]  # type: ignore[union-attr]
    assert [line[:9] for line in lines[1:]] == ["- [...] 8", "- (Cause)", "- [...] 2"]


def test_without_relations_the_nearest_are_linked_and_nothing_is_asked() -> None:
    script = TheanineScript({"p0": ["note a"], "p1": ["note b"], "p2": ["note c"]})
    memory = make(llm=ScriptedLLM(script), relations=False, refine=False)
    changes = live(memory, *(session(f"p{n}", name=f"s{n}", start=days(n)) for n in range(3)))
    assert [(link.source, link.target, link.relation) for link in links_of(changes)] == [
        ("s0/m0", "s1/m0", "Similar"),
        ("s1/m0", "s2/m0", "Similar"),
    ]
    assert {prompt.name for prompt in script.prompts} == {"theanine/summarize"}
    assert memory.bank.notes == {}
    assert "- (Similar) 9 March 2026: note b" in memory.recall(session("note", name="q", start=days(9))).text


def test_shuffled_shows_the_units_of_the_timelines_in_random_order() -> None:
    script = TheanineScript()
    memory = _diamond(llm=ScriptedLLM(script), k=4, n=9, show="shuffled")
    orders = {tuple(_recalled_ids(memory, session("a", name=f"q{n}", start=days(9)))) for n in range(20)}
    assert {frozenset(order) for order in orders} == {frozenset("abcd")}
    assert len(orders) > 5
    text = memory.recall(session("a", name="q0", start=days(9))).text
    assert sorted(line.split(": ")[1] for line in text.split("\n")) == ["note a", "note b", "note c", "note d"]
    assert script.prompts == []


def test_nearest_shows_as_many_units_as_the_timelines_hold() -> None:
    bank = _diamond().bank.apply([AddUnit(unit(f"x{n}", f"a note of x{n}"), START) for n in range(3)])
    query = session("a note", name="q", start=days(9))
    timelines = _recalled_ids(make(bank, k=1, refine=False), query)
    nearest = make(bank, k=1, show="nearest").recall(query)
    assert len(nearest.hits) == len(timelines)
    assert [hit.unit.id for hit in nearest.hits] == [
        hit.unit.id for hit in make(bank).search("User: a note", len(timelines))
    ]
    assert len(nearest.text.split("\n")) == len(timelines)


VARIANTS = [name for name in system_names(variants=True) if name.startswith("theanine/")]


@pytest.mark.parametrize("name", VARIANTS)
def test_each_shipped_variant_changes_existing_options(name: str) -> None:
    settings = load_settings(flags={"system": name})
    assert settings.system == "theanine"
    assert _options(dict(settings.options)) != _options({})


def test_the_papers_numbers_are_the_shipped_ones() -> None:
    options = _options({})
    assert (options.j, options.k, options.n) == (3, 3, 1)
    assert (options.relations, options.refine, options.show, options.linking) == (True, True, "timelines", "recent")


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"show": "sorted"}, "option 'show' cannot be 'sorted'"),
        ({"k": 0}, "option 'k' cannot be 0"),
        ({"j": True}, "option 'j' cannot be True"),
        ({"refine": "yes"}, "option 'refine' cannot be 'yes'"),
    ],
)
def test_a_wrong_option_is_told(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(BadSettings) as error:
        _options(wrong)
    assert says in str(error.value)


def test_a_backbone_that_fails_is_told_to_the_caller() -> None:
    def fail(_prompt: Prompt) -> str:
        raise LLMError("gone")

    with pytest.raises(LLMError):
        _diamond(llm=ScriptedLLM(fail), k=1).recall(session("a", name="q", start=days(9)))
