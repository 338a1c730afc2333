"""The judges' and TeaFarm's prompts as they are rendered."""

import pytest

from localmem.evaluation.judging.judges import JUDGES
from localmem.evaluation.judging.verdicts import judge_prompts
from localmem.prompts import render
from localmem.types import Prompt
from tests.snapshots import Snapshots

SNAPSHOTS = Snapshots(__file__)
ITEM = {
    "question": "Where does Ana live?",
    "gold": "In Porto.",
    "answer": "Ben: She lives in Porto.",
    "other": "Ben: Who knows?",
    "dialogue": "Ana: Guess where I am!",
    "past": "Ana moved to Porto in May.",
    "recalled": "1 May 2026: Ana moved to Porto.",
    "memory": "Ana lives in Porto.",
    "speaker": "Ana",
}
BARE = {**ITEM, "gold": "", "past": "", "dialogue": "", "answer": "", "recalled": "", "memory": ""}


def _render_all() -> dict[str, Prompt]:
    """By the file's name: the first order of each criterion, and once without what may be missing."""
    prompts: dict[str, Prompt] = {}
    for judge in JUDGES.values():
        folder, _, task = judge.prompt.partition("/")
        first = judge.with_samples(1)
        step = first.prompts // max(1, len(judge.criteria))
        for criterion, prompt in zip(judge.criteria or ("",), judge_prompts(first, ITEM)[::step], strict=True):
            prompts[f"{folder}/{task}_{criterion}" if criterion else f"{folder}/{task}"] = prompt
        prompts.setdefault(f"{folder}/{task}_bare", judge_prompts(first, BARE)[0])
        prompts.setdefault(f"{folder}/{task}", judge_prompts(first, ITEM)[0])
    prompts["teafarm/question"] = render(
        "teafarm/question", asker="Ana", other="Ben", summaries="Conversation 1:\n- Ben sold his boat."
    )
    prompts["teafarm/lead"] = render(
        "teafarm/lead", asker="Ana", other="Ben", dialogue="Ana: Hi.\nBen: Hello.", question="Is your boat dry?"
    )
    return prompts


PROMPTS = _render_all()


@pytest.mark.parametrize("name", PROMPTS)
def test_reads_as_the_snapshot(name: str) -> None:
    SNAPSHOTS.check(name, "".join(f"# {message.role}\n{message.content}\n" for message in PROMPTS[name].messages))


def test_every_snapshot_is_of_a_prompt() -> None:
    SNAPSHOTS.check_names(PROMPTS)


@pytest.mark.parametrize("name", [name for name in PROMPTS if name.startswith("judge/")])
def test_what_varies_comes_after_what_is_fixed(name: str) -> None:
    """The instructions of all items are one prefix; only the memory judge names the person in them."""
    system = PROMPTS[name].messages[0].content
    varying = [ITEM[key] for key in ("question", "gold", "answer", "other", "dialogue", "past", "recalled", "memory")]
    assert not any(text in system for text in varying)


def test_what_was_typed_is_no_template() -> None:
    typed = {**ITEM, "answer": "{{ gold }} {% if x %}"}
    assert "{{ gold }} {% if x %}" in judge_prompts(JUDGES["correct"], typed)[0].messages[1].content
