"""SeCom against section 2 of its paper: segments p_k to q_k, denoised keys, and the original text under a budget."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from localmem.config import system_options
from localmem.factory import Parts
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.secom import SeCom, SeComOptions
from localmem.types import Prompt, Session
from tests.fakes import WordRetriever, session
from tests.systems.fidelity.lives import SEEDS, WORDS, life, shared_words

K, TOKENS = 3, 30


class Denoiser:
    """Drops every third word."""

    def compress(self, texts: Sequence[str], rate: float) -> list[str]:
        return [_denoise(text) for text in texts]


def _denoise(text: str) -> str:
    return " ".join(word for number, word in enumerate(text.split()) if number % 3 != 1)


def _ends(count: int) -> list[int]:
    """The last exchange of each segment: q_k."""
    return sorted({*Random(count).sample(range(count), count // 2), count - 1})


def _script(prompt: Prompt) -> str:
    return f'{{"ends": "{" ".join(map(str, _ends(int(prompt.inputs["last"]) + 1)))}"}}'


def _segments(past: Session) -> list[str]:
    """Equation 1: p_1 = 0, p_{k+1} = q_k + 1, every exchange in one segment."""
    texts = ["\n".join(f"{turn.speaker}: {turn.text}" for turn in each.turns()) for each in past.exchanges()]
    starts = [0, *(end + 1 for end in _ends(len(texts)))]
    return ["\n".join(texts[start:end]) for start, end in pairwise(starts)]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_shown_are_the_nearest_segments_as_they_were_said_in_time_order(seed: int) -> None:
    random, llm = Random(seed), ScriptedLLM(_script)
    values = {"compress": "llmlingua", "compressor": "here", "k": K, "tokens": TOKENS}
    options = SeComOptions.model_validate(system_options("secom", values))
    system = SeCom(Parts(llm, WordRetriever, load_compressor=lambda _: Denoiser()), options)
    bank: list[str] = []
    for past in life(random):
        system.apply(system.end_session(past))
        bank += _segments(past)
    for number in range(20):
        query = " ".join(random.sample(WORDS, 2))
        order = sorted(range(len(bank)), key=lambda n: -shared_words(query, _denoise(bank[n])))[:K]  # equation 2
        shown, used = order[:1], llm.count_tokens([bank[order[0]]])[0]
        for place in order[1:]:
            used += llm.count_tokens([bank[place]])[0]
            if used > TOKENS:
                break
            shown.append(place)
        recall = system.recall(session(query, name=f"q{number}"))
        assert [hit.unit.text for hit in recall.hits] == [bank[place] for place in sorted(shown)]
        assert all(hit.unit.text in recall.text for hit in recall.hits)
