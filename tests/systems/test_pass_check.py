"""PASS labels that words contradict, and what CareCall makes of a backbone that passes everything."""

import json

import pytest

from localmem.llm.scripted import ScriptedLLM
from localmem.systems.carecall.pass_check import doubtful_passes
from localmem.types import Prompt
from tests.fakes import session
from tests.systems.test_carecall import make

REMEMBERED = ["Jo keeps a dog.", "Jo sails on Sundays.", "Jo is a baker."]


def test_a_pass_for_a_new_name_or_number_is_not_believed() -> None:
    pairs = [("Jo keeps a dog.", "Jo keeps a dog called Rex."), ("Jo is old.", "Jo is 81.")]
    assert doubtful_passes(pairs, ["PASS", "PASS"]) == [True, True]


def test_one_pass_in_other_words_is_believed() -> None:
    assert doubtful_passes([("Jo is not ill.", "Jo is in good health.")], ["PASS"]) == [False]


def test_of_passes_for_everything_only_those_stand_that_words_bear_out() -> None:
    pairs = [(old, "Jo sails.") for old in REMEMBERED]
    assert doubtful_passes(pairs, ["PASS"] * 3) == [True, False, True]
    mixed = [(old, new) for old in REMEMBERED[:2] for new in ("Jo has a son.", "Jo paints.")]
    assert doubtful_passes(mixed, ["PASS"] * 4) == [True] * 4


def test_other_operations_are_left_alone() -> None:
    pairs = [(old, "Jo paints.") for old in REMEMBERED]
    assert doubtful_passes(pairs, ["PASS", "APPEND", "PASS"]) == [False] * 3
    assert doubtful_passes(pairs, ["REPLACE"] * 3) == [False] * 3
    assert doubtful_passes([], []) == []


def test_a_backbone_that_passes_everything_does_not_freeze_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    facts = {
        "1": ["User keeps a dog.", "User sails.", "User bakes."],
        "2": ["User paints.", "User sails."],
        "3": ["User swims."],
    }

    def script(prompt: Prompt) -> str:
        question = prompt.messages[-1].content
        if prompt.name == "carecall/operation":
            return "PASS"
        about_user = question.endswith("Facts about User:")
        return json.dumps({"memories": facts[question.partition("day ")[2][0]] if about_user else []})

    memory = make(llm=ScriptedLLM(script))
    for day in facts:
        memory.apply(memory.end_session(session(f"day {day}", "b", name=day)))
    texts = [unit.text for unit in memory.bank.live()]
    assert texts == ["User keeps a dog.", "User sails.", "User bakes.", "User paints.", "User swims."]
    assert memory.fallbacks == {"carecall/operation": 2}
    assert "5 of 5 PASS are for sentences that say more" in caplog.text
