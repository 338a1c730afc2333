"""Scenario measures: what is found, shown and answered, for memories that index exchanges, turns or nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.evaluation.datasets.scenarios import Person, read_people
from localmem.evaluation.scenario_measures import NewConversation, ScenarioOptions, ScenarioRow, measure_person
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.systems.baselines import FullHistory, NoMemory, exchange_retrieval, utterance_retrieval
from localmem.types import Recall, Session, Unit
from tests.evaluation.fixtures import write_scenarios
from tests.fakes import WordRetriever

UPDATE, PARAPHRASE, FACT, ABSTENTION, FORGOTTEN, ORDINARY = range(6)


def count_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return read_people(write_scenarios(tmp_path, a_1={}))[0]


def remembering(new_memory: Callable[[Bank], Memory], reply: str = "Well.") -> NewConversation:
    llm = ScriptedLLM(lambda _: reply, name="scripted")
    return lambda bank: Conversation(memory=new_memory(bank), llm=llm)


def exchanges(bank: Bank) -> Memory:
    return exchange_retrieval(WordRetriever(), k=1, bank=bank)


def turns(bank: Bank) -> Memory:
    return utterance_retrieval(WordRetriever(), k=1, bank=bank)


def measure(person: Person, new_memory: Callable[[Bank], Memory], asked_again: int = 0) -> list[ScenarioRow]:
    return measure_person(person, remembering(new_memory), ScenarioOptions(count_words, asked_again=asked_again))


def test_what_is_found_is_ranked_by_exchange_and_what_is_shown_is_apart(person: Person) -> None:
    rows = measure(person, exchanges)
    assert [(row.type, row.wording) for row in rows] == [
        ("knowledge-update", "question"),
        ("knowledge-update", "paraphrase"),
        ("single-fact", "question"),
        ("abstention", "question"),
        ("forgotten", "question"),
        ("ordinary", "question"),
    ]
    assert rows[UPDATE].ranking[0] == "a-1/1/e0"
    assert rows[UPDATE].measures["recall@5"] == rows[UPDATE].measures["shown"] == 1
    assert rows[PARAPHRASE].measures["recall@5"] == 1  # of so few exchanges all are found
    assert rows[PARAPHRASE].measures["shown"] == 0  # and another one is shown
    assert rows[UPDATE].measures["tokens"] == len(rows[UPDATE].recalled.split()) > 5
    assert rows[ABSTENTION].measures.keys() == {"tokens"}
    assert rows[FORGOTTEN].measures["came up"] == 1
    assert "recall@5" not in rows[FORGOTTEN].measures
    assert rows[ORDINARY].measures == {"ordinary shown": 1}


def test_turns_of_one_exchange_count_once(person: Person) -> None:
    ranking = measure(person, turns)[UPDATE].ranking
    assert ranking[0] == "a-1/1/e0"
    assert len(ranking) == len(set(ranking)) > 2


def test_a_system_without_an_index_has_no_ranking(person: Person) -> None:
    llm = ScriptedLLM(lambda _: "", name="scripted")
    row = measure(person, lambda bank: FullHistory(llm=llm, bank=bank))[UPDATE]
    assert row.ranking == ()
    assert row.measures.keys() == {"shown", "shown@600", "tokens"}
    assert row.measures["shown"] == 1
    nothing = measure(person, lambda bank: NoMemory(bank=bank))
    assert nothing[UPDATE].measures == {"shown": 0, "shown@600": 0, "tokens": 0}
    assert nothing[FORGOTTEN].measures["came up"] == nothing[ORDINARY].measures["ordinary shown"] == 0


def test_a_turn_that_is_shown_in_part_counts_in_part(person: Person) -> None:
    class Passage(NoMemory):
        def recall(self, session: Session) -> Recall:
            return Recall("1 March 2026: I painted\nthe bicycle red.")

    turn = person.sessions[1].turns[0]
    longer = replace(turn, text=f"{turn.text} {'x' * (3 * len(turn.text) - 1)}!")
    first, second = person.sessions
    longer_person = replace(person, sessions=(first, replace(second, turns=(longer, *second.turns[1:]))))
    assert measure(person, lambda bank: Passage(bank=bank))[UPDATE].measures["shown"] == 1
    assert measure(longer_person, lambda bank: Passage(bank=bank))[UPDATE].measures["shown"] == 0.25


def test_dates_that_a_memory_adds_hide_no_words(person: Person) -> None:
    class Dated(NoMemory):
        def recall(self, session: Session) -> Recall:
            return Recall(
                "1 March 2026: I painted (and on Friday (6 March 2026) dried) the bicycle (2 March 2026) red."
            )

    assert measure(person, lambda bank: Dated(bank=bank))[UPDATE].measures["shown"] == 1


def test_only_the_first_600_tokens_are_within_the_budget(tmp_path: Path) -> None:
    session = {"started_at": "2026-03-01T09:00", "turns": [{"role": "user", "content": f"{'word ' * 650}end"}]}
    probe = {"type": "single-fact", "question": "word", "evidence": [[0, 0]]}
    (long,) = read_people(write_scenarios(tmp_path, a_1={"sessions": [session], "probes": [probe]}))
    measures = measure(long, exchanges)[0].measures
    assert (measures["shown"], measures["shown@600"]) == (1, 0)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("It is red.", {"right": 1, "false denial": 0}),
        ("It was green and is red.", {"right": 0, "false denial": 0}),  # recounts the outdated value
        ("I don't know.", {"right": 0, "false denial": 1}),
        ("You never told me, I fear.", {"right": 0, "false denial": 1}),
        ("I am not sure, but RED.", {"right": 1, "false denial": 0}),
    ],
)
def test_a_reply_is_right_or_a_false_denial(person: Person, reply: str, expected: dict[str, float]) -> None:
    row = measure_person(person, remembering(exchanges, reply), ScenarioOptions(count_words, answers=True))[UPDATE]
    assert row.reply == reply
    assert {name: row.measures[name] for name in expected} == expected


def test_the_right_denial_of_what_was_never_told_or_forgotten(person: Person) -> None:
    def answered(reply: str) -> list[float]:
        options = ScenarioOptions(count_words, answers=True)
        rows = measure_person(person, remembering(exchanges, reply), options)
        return [
            rows[ABSTENTION].measures["right denial"],
            rows[FORGOTTEN].measures["right denial"],
            rows[ORDINARY].measures["ordinary refused"],
        ]

    assert answered("You never told me that.") == [1, 1, 1]
    assert answered("I have no record of that.") == [0, 1, 1]  # the first question lists what it accepts
    assert answered("I don't know, 7316 perhaps.") == [0, 0, 1]
    assert answered("84.") == [0, 0, 0]


def test_asking_and_denying_may_push_a_fact_from_its_place(person: Person) -> None:
    row = measure(person, exchanges, asked_again=1)[FACT]
    assert row.ranking[0] == "a-1/0/e0"
    assert (row.measures["still first"], row.measures["still shown"]) == (0, 0)

    class Unchanging(WordRetriever):
        def add(self, units: Sequence[Unit]) -> None:
            super().add([unit for unit in units if "don't know" not in unit.text])

    steady = measure(person, lambda bank: exchange_retrieval(Unchanging(), k=1, bank=bank), asked_again=5)[FACT]
    assert (steady.measures["still first"], steady.measures["still shown"]) == (1, 1)


def test_what_is_worked_out_from_the_evidence_and_from_what_was_recalled(tmp_path: Path) -> None:
    opening = {"role": "user", "content": "The boiler man cannot come before tomorrow week."}
    session = {"started_at": "2025-03-05T10:00", "turns": [opening, {"role": "assistant", "content": "Noted."}]}
    probe = {
        "question": "What date was the boiler man meant to come?", "paraphrase": "", "answer": "13 March 2025",
        "reply": "On 13 March.", "must_contain": ["March 13"], "must_not_contain": [], "type": "temporal",
        "evidence": [[0, 0]],
    }  # fmt: skip
    folder = write_scenarios(tmp_path, a_1={"sessions": [session], "probes": [probe], "ordinary": []})
    person = read_people(folder)[0]
    (row,) = measure(person, exchanges)
    names = ("worked out", "worked out from evidence", "right lines from evidence")
    assert [row.measures[name] for name in names] == [0, 1, 1]
    assert "right lines" not in row.measures
