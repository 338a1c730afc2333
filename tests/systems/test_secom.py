"""SeCom: segments as units, denoised keys, originals shown in time order under a budget."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.config import load_settings, system_options
from localmem.errors import BadReply, BadSettings
from localmem.factory import Parts
from localmem.llm.base import LLM
from localmem.llm.scripted import Script, ScriptedLLM
from localmem.memory import Memory
from localmem.segmentation import Segmenter
from localmem.segmentation.segmenters import EvenSegmenter, LLMSegmenter, WholeSegmenter
from localmem.store import Store
from localmem.systems.secom import STARTS, IncrementalSeCom, SeCom, SeComOptions
from localmem.text.compress import Compressor, RandomDrop
from localmem.types import AddUnit, Change, Prompt, Session, SetNote, Unit
from tests.fakes import START, MemoryJournal, WordRetriever, obedient, session, unit

OPTIONS = SeComOptions.model_validate(
    {**system_options("secom", {}), "compress": "llmlingua", "compressor": "random", "k": 3, "tokens": 1000}
)


def _parts(llm: LLM, segmenter: Segmenter | None = None, compressor: Compressor | None = None) -> Parts:
    return Parts(
        llm,
        WordRetriever,
        load_segmenter=lambda _: segmenter or EvenSegmenter(1),
        load_compressor=lambda _: compressor or RandomDrop(0),
    )


def make(bank: Bank | None = None, llm: LLM | None = None) -> Memory:
    return SeCom(_parts(llm or ScriptedLLM(obedient)), OPTIONS, bank)


def _secom(
    segmenter: Segmenter,
    *,
    llm: LLM | None = None,
    compressor: Compressor | None = None,
    **options: object,
) -> SeCom:
    values = {"segmenter": "injected", "compress": "llmlingua" if compressor else "none", "compressor": None, **options}
    llm = llm or ScriptedLLM(lambda _: "same")
    return SeCom(_parts(llm, segmenter, compressor), OPTIONS.model_copy(update=values))


def _units(changes: Sequence[Change]) -> list[Unit]:
    return [change.unit for change in changes if isinstance(change, AddUnit)]


TALK = session("My cat is ill.", "Poor thing.", "She eats nothing.", "Ask a vet.", "I bought a boat.", "How big?")


class Upper:
    """A compressor whose work is easy to see."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], float]] = []

    def compress(self, texts: Sequence[str], rate: float) -> list[str]:
        self.asked.append((list(texts), rate))
        return [text.upper() for text in texts]


def test_segments_become_units_with_the_original_text_and_a_compressed_key() -> None:
    answer = json.dumps({"ends": "1 2"})
    compressor = Upper()
    memory = _secom(LLMSegmenter(ScriptedLLM(lambda _: answer)), compressor=compressor)
    cat, boat = _units(memory.end_session(TALK))
    assert cat.text == "User: My cat is ill.\nAssistant: Poor thing.\nUser: She eats nothing.\nAssistant: Ask a vet."
    assert cat.key == cat.text.upper()
    assert (cat.id, boat.id) == ("s1/g0", "s1/g1")
    assert cat.sources == ("s1.0", "s1.1", "s1.2", "s1.3")
    assert boat.time == TALK.turns[4].time
    assert boat.learned == TALK.turns[-1].time
    assert compressor.asked == [([cat.text, boat.text], 0.75)]


def test_recall_shows_originals_in_time_order() -> None:
    memory = _secom(EvenSegmenter(1), compressor=Upper())
    memory.apply(memory.end_session(TALK))
    recall = memory.recall(session("BOAT? ILL. CAT BOUGHT", name="q", start=START + timedelta(days=1)))
    assert [hit.unit.id for hit in recall.hits] == ["s1/g0", "s1/g1", "s1/g2"]
    assert recall.text == (
        "2 March 2026\nUser: My cat is ill.\nAssistant: Poor thing.\n\n"
        "2 March 2026\nUser: She eats nothing.\nAssistant: Ask a vet.\n\n"
        "2 March 2026\nUser: I bought a boat.\nAssistant: How big?"
    )


def test_more_than_nine_segments_of_one_moment_stay_in_order() -> None:
    memory = _secom(EvenSegmenter(1), k=0, tokens=0)
    talk = session(*(f"word {n}" for n in range(24)))
    still = Session("s1", tuple(replace(turn, time=START) for turn in talk.turns))
    memory.apply(memory.end_session(still))
    recall = memory.recall(session("word", name="q"))
    assert [hit.unit.id for hit in recall.hits] == [f"s1/g{n}" for n in range(12)]


@pytest.mark.parametrize(
    ("k", "tokens", "count"), [(2, 0, 2), (0, 15, 1), (0, 16, 2), (0, 24, 3), (0, 1, 1), (2, 24, 2)]
)
def test_the_budget_is_units_or_tokens_and_the_best_is_always_shown(k: int, tokens: int, count: int) -> None:
    memory = _secom(EvenSegmenter(1), k=k, tokens=tokens)
    memory.apply(memory.end_session(TALK))
    assert [len(hit.unit.text.split()) for hit in memory.search("boat", 9)] == [8, 8, 8]
    assert len(memory.recall(session("User: boat bought", name="q")).hits) == count


def test_a_budget_in_tokens_alone_looks_as_far_as_it_reaches() -> None:
    memory = _secom(EvenSegmenter(1), k=0, tokens=10_000)
    memory.apply(memory.end_session(session(*(f"remark {n}" for n in range(200)))))
    assert len(memory.recall(session("remark", name="q")).hits) == 100


def test_turn_and_session_level_are_other_segmenters() -> None:
    turn = _units(_secom(EvenSegmenter(1), granularity="turn").end_session(TALK))
    session_units = _units(_secom(WholeSegmenter(), granularity="session").end_session(TALK))
    assert [u.kind for u in turn] == ["turn"] * 3
    assert [u.kind for u in session_units] == ["session"]
    assert session_units[0].sources == tuple(turn.id for turn in TALK.turns)


def test_a_unit_added_by_hand_is_shown_among_the_others() -> None:
    memory = _secom(EvenSegmenter(1))
    memory.apply([*memory.end_session(TALK), AddUnit(unit("note-1", "the boat is blue"), START)])
    assert "the boat is blue" in memory.recall(session("the boat is", name="q")).text


def test_a_bad_answer_at_a_sessions_end_is_counted() -> None:
    def script(prompt: Prompt) -> str:
        raise BadReply(f"{prompt.name} was cut")

    memory = SeCom(_parts(ScriptedLLM(script)), OPTIONS)
    assert len(_units(memory.end_session(session(*"abcdefgh")))) == 2
    assert memory.fallbacks == {"secom/segment": 1}


# -- incremental ---------------------------------------------------------------------------------------------------


def _incremental(script: Script, bank: Bank | None = None) -> IncrementalSeCom:
    options = OPTIONS.model_copy(update={"incremental": True, "compress": "none", "compressor": None})
    return IncrementalSeCom(_parts(ScriptedLLM(script)), options, bank)


def _decides(prompts: list[str]) -> Script:
    def script(prompt: Prompt) -> str:
        if prompt.name == "secom/continue":
            text = prompt.messages[-1].content
            prompts.append(text)
            return "new" if "boat" in text.partition("The next exchange:")[2] else "same"
        if prompt.name == "secom/segment":
            pytest.fail("the whole session was asked about")
        return "I see."

    return script


def test_each_exchange_goes_on_or_begins_a_segment_while_the_session_goes_on() -> None:
    prompts: list[str] = []
    journal = MemoryJournal()
    script = _decides(prompts)
    agent = Conversation(memory=_incremental(script), llm=ScriptedLLM(script), journal=journal)
    texts = ["My cat is ill.", "She eats nothing.", "I bought a boat.", "It is red."]
    for minute, text in enumerate(texts):
        agent.chat(text, START + timedelta(minutes=minute))
    assert len(prompts) == 3  # the first exchange begins a segment anyway
    assert "My cat is ill." in prompts[1]
    assert "My cat is ill." not in prompts[2]  # the open segment began with the boat
    agent.end_session()
    cat, boat = _units(journal.commits[-1][1])
    assert cat.text.startswith("User: My cat is ill.")
    assert boat.text.startswith("User: I bought a boat.")
    assert set(agent.memory.bank.notes.values()) == {""}


def test_sessions_side_by_side_keep_their_own_segments() -> None:
    prompts: list[str] = []
    script = _decides(prompts)
    agent = Conversation(memory=_incremental(script), llm=ScriptedLLM(script))
    for minute, (name, text) in enumerate([("a", "A cat."), ("b", "A dog."), ("a", "A boat."), ("b", "It barks.")]):
        agent.log_turns(text, START + timedelta(minutes=minute), name)
        for _ in agent.reply(name):
            pass
    agent.end_session("a")
    assert agent.memory.bank.notes == {f"{STARTS}/a": "", f"{STARTS}/b": "[]"}
    agent.end_session("b")
    assert [u.text.partition("\n")[0] for u in agent.memory.bank.live()] == [
        "User: A cat.",
        "User: A boat.",
        "User: A dog.",
    ]


def test_taking_back_one_session_leaves_the_segments_of_the_others(tmp_path: Path) -> None:
    script = _decides([])
    with Store.open(tmp_path / "memory.db") as store:
        journal = store.journal("ann", "secom")
        agent = Conversation(memory=_incremental(script), llm=ScriptedLLM(script), journal=journal)
        for number in range(3):
            start = START + timedelta(days=number)
            agent.writer.read([session("A cat.", "Ok.", "A boat.", "Ok.", name=f"s{number}", start=start)])
        assert store.undo("ann", "secom", "s0") == []
        assert {unit.session for unit in store.bank("ann", "secom").units.values()} == {"s1", "s2"}


def test_a_session_that_nobody_replied_in_is_segmented_at_its_end() -> None:
    memory = _incremental(obedient)
    talk = Session("s1", tuple(turn for turn in session(*"abcdef").turns if turn.role == "user"))
    agent = Conversation(memory=memory, llm=ScriptedLLM(obedient))
    agent.writer.read([talk])
    assert not memory.bank.notes
    assert list(memory.bank.live())


def test_an_answer_that_cannot_be_used_lets_the_segment_go_on() -> None:
    def script(prompt: Prompt) -> str:
        if prompt.name == "secom/continue":
            raise BadReply("cut")
        return "I see."

    memory = _incremental(script)
    agent = Conversation(memory=memory, llm=ScriptedLLM(script))
    agent.writer.read([TALK])
    assert len(list(memory.bank.live())) == 1
    assert memory.fallbacks == {"secom/continue": 2}


def test_a_turn_that_is_answered_twice_is_decided_once() -> None:
    memory = _incremental(lambda _: "new")
    first, second, _ = TALK.exchanges()
    for exchange, length in ((first, 1), (second, 3), (second, 3)):
        recall = memory.recall(Session("s1", TALK.turns[:length]))
        memory.apply(memory.observe(replace(exchange, recall=recall)))
    assert memory.bank.notes == {f"{STARTS}/s1": '["s1.2"]'}
    assert isinstance(memory.recall(TALK).proposed[0], SetNote)


# -- options that contradict one another -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"compress": "none", "compressor": "mine"}, "option 'compressor' is 'mine', but nothing is compressed"),
        (
            {"segmenter": "mine", "rubric": "r.yaml"},
            "option 'rubric' guides the backbone, but .* segmenter 'mine' does",
        ),
        ({"granularity": "turn", "rubric": "r.yaml"}, "option 'rubric' guides the backbone, but granularity 'turn'"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(options: dict[str, object], error: str) -> None:
    plain = OPTIONS.model_copy(update={"compressor": None})
    with pytest.raises(BadSettings, match=error):
        SeCom(_parts(ScriptedLLM(obedient)), plain.model_copy(update=options))


def _name(name: str | None) -> str | None:
    return name


def test_keys_are_denoised_where_a_compressor_is_installed() -> None:
    loaded: list[str] = []

    def load(name: str) -> Compressor:
        loaded.append(name)
        return Upper()

    parts = _parts(ScriptedLLM(obedient), EvenSegmenter(1))
    auto = OPTIONS.model_copy(update={"segmenter": "injected", "compress": "auto", "compressor": None})
    for options, installed, expected in [
        (auto, "mine", ["mine"]),
        (auto, None, []),
        (auto.model_copy(update={"compressor": "own"}), "mine", ["own"]),
        (auto.model_copy(update={"compress": "none"}), "mine", []),
        (auto.model_copy(update={"compress": "required"}), "mine", ["mine"]),
        (auto.model_copy(update={"compress": "llmlingua"}), None, ["llmlingua-2-xlm-roberta-large"]),
    ]:
        own = replace(parts, load_compressor=load, find_compressor=partial(_name, installed))
        memory = SeCom(own, options)
        assert loaded == expected
        assert all(each.key.isupper() == bool(expected) for each in _units(memory.end_session(TALK)))
        loaded.clear()


def test_a_variant_with_denoised_keys_needs_a_compressor_or_says_so() -> None:
    parts = replace(_parts(ScriptedLLM(obedient)), find_compressor=partial(_name, None))
    with pytest.raises(BadSettings, match="there is no compressor"):
        SeCom(parts, OPTIONS.model_copy(update={"compress": "required", "compressor": None}))


def test_denoised_variants_drop_words_from_the_keys_of_turns_and_sessions() -> None:
    for variant, count in [("secom/turn_denoised", 3), ("secom/session_denoised", 1)]:
        values = system_options("secom", load_settings(flags={"system": variant}).options)
        parts = replace(_parts(ScriptedLLM(obedient)), find_compressor=partial(_name, "mine"))
        units = _units(SeCom(parts, SeComOptions.model_validate(values)).end_session(TALK))
        assert len(units) == count
        assert all(len(each.key.split()) < len(each.text.split()) for each in units)
