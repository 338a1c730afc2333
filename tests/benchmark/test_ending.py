"""The benchmark of a session's end: the same calls in every way, and only their company differs."""

import json
from collections.abc import Sequence

import pytest

from localmem.benchmark.ending import WAYS, Ending, ending
from localmem.config import system_options
from localmem.errors import BadInput
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.theanine.options import Options
from localmem.types import Choice, Completion, Prompt
from tests.fakes import WordRetriever, session

TALKS = [session(*(f"note {n} of day {day}" for n in range(8)), name=f"s{day}") for day in range(3)]


class Watching(ScriptedLLM):
    """Remembers how the calls came."""

    def __init__(self) -> None:
        super().__init__(self._said, context_length=8_000)
        self.batches: list[list[Prompt]] = []

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.batches.append(list(prompts))
        return super().generate(prompts)

    def _said(self, prompt: Prompt) -> str:
        return prompt.format.options[0] if isinstance(prompt.format, Choice) else json.dumps({"memories": []})


def ended(way: str, llm: LLM) -> Ending:
    options = Options.of(system_options("theanine", {}))
    return ending(llm, WordRetriever, options, TALKS, memories=3, way=way, run=1)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_makes_the_same_calls(way: str) -> None:
    llm = Watching()
    found = ended(way, llm)
    assert (found.calls, found.links) == (10, 9), "a summary, nine pairs of which every one is linked"
    sizes = [len(batch) for batch in llm.batches]
    assert sizes == ([1, 9] if way == "together" else [1] * 10)
    salts = [prompt.extra.get("cache_salt") for batch in llm.batches for prompt in batch]
    assert len(set(salts)) == (10 if way == "alone" else 1)


def test_a_conversation_too_short_is_refused() -> None:
    options = Options.of(system_options("theanine", {}))
    with pytest.raises(BadInput, match="4 user turns; give a conversation with 9 or more"):
        ending(Watching(), WordRetriever, options, TALKS, memories=9, way="together", run=0)
