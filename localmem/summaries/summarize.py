"""Summaries of dialogues by the backbone: lists of memory sentences, or running text.

A dialogue longer than the model's context is read in parts, all asked at once. Does not depend on any system.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from localmem.grounding.gate import Gate
from localmem.llm.base import LLM
from localmem.llm.structured_output import (
    answer_format,
    array,
    count_fallback,
    generate_usable,
    string,
)
from localmem.prompts import load, render
from localmem.text.dialogue import prompt_names, split_turns, transcript
from localmem.text.parse import complete_sentences
from localmem.types import Completion, Prompt, Turn


class Summarizer:
    """Asks `prompt` (inputs dialogue, user, assistant) for at most `limit` sentences for each part of the session.

    The schema bounds number and length of the sentences, so that an answer fits the prompt's `max_tokens`. An answer
    that does not gives no sentence, and `fallbacks` counts it by the prompt's name. Sentences pass a gate, by default
    one of the session alone.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        prompt: str = "memory_retrieval/summarize",
        limit: int = 12,
        longest: int = 160,
        fallbacks: Counter[str] | None = None,
    ) -> None:
        self._llm = llm
        self._prompt = prompt
        self._form = answer_format(memories=array(string(longest), limit))
        self.fallbacks: Counter[str] = Counter() if fallbacks is None else fallbacks

    def __call__(self, turns: Sequence[Turn], gate: Gate | None = None) -> list[str]:
        """The sentences worth remembering, in the order of the dialogue; none for no turns."""
        (sentences,) = self.each(turns, [{}], gate)
        return sentences

    def each(
        self, turns: Sequence[Turn], inputs: Sequence[Mapping[str, str]], gate: Gate | None = None
    ) -> list[list[str]]:
        """The sentences for each set of further prompt inputs (for example whom they are about), all asked at once."""
        runs = _split(self._llm, self._prompt, turns)
        names = prompt_names(turns)
        prompts = [
            render(self._prompt, form=self._form, dialogue=transcript(run), **names, **more)
            for more in inputs
            for run in runs
        ]
        answers = zip(prompts, generate_usable(self._llm, prompts, self.fallbacks), strict=True)
        gate = gate or Gate(turns, self.fallbacks)
        return [self._sentences(islice(answers, len(runs)), gate) for _ in inputs]

    def _sentences(self, answers: Iterable[tuple[Prompt, Completion | None]], gate: Gate) -> list[str]:
        """The sentences of some answers that the gate admits, without repeats."""
        sentences = (
            sentence
            for prompt, completion in answers
            for sentence in gate.admit(prompt, read_memories(prompt, completion, self.fallbacks))
        )
        return list(dict.fromkeys(sentences))


def read_memories(prompt: Prompt, completion: Completion | None, fallbacks: Counter[str]) -> list[str]:
    """The texts of an answer {"memories": [...]}, with single spaces; none for no answer or another form."""
    if completion is None:
        return []  # counted when it was asked
    match json.loads(completion.text):
        case {"memories": list(items)}:
            return [" ".join(item.split()) for item in items if isinstance(item, str)]
    count_fallback(prompt.name, f"its answer {completion.text!r:.80} holds no list of memories", fallbacks)
    return []


class SummaryRequest(NamedTuple):
    """A dialogue to be summarised by a prompt (inputs dialogue, user, assistant)."""

    prompt: str
    turns: Sequence[Turn]


def summarize_all(llm: LLM, requests: Sequence[SummaryRequest], gate: Gate) -> list[str]:
    """Running text for each dialogue, all asked at once; "" where nothing came back. Texts of parts are joined."""
    batches = [_prompts(llm, request) for request in requests]
    texts = iter(generate_prose(llm, [prompt for prompts in batches for prompt in prompts], gate))
    return [" ".join(text for text in islice(texts, len(prompts)) if text) for prompts in batches]


def generate_prose(llm: LLM, prompts: Sequence[Prompt], gate: Gate) -> list[str]:
    """The complete sentences of each answer that the gate admits, as one line; "" is logged and counted."""
    answers = generate_usable(llm, prompts, gate.fallbacks)
    return [_prose(prompt, answer, gate) for prompt, answer in zip(prompts, answers, strict=True)]


def _prompts(llm: LLM, request: SummaryRequest) -> list[Prompt]:
    names = prompt_names(request.turns)
    runs = _split(llm, request.prompt, request.turns)
    return [render(request.prompt, dialogue=transcript(run), **names) for run in runs]


def _split(llm: LLM, prompt: str, turns: Sequence[Turn]) -> list[tuple[Turn, ...]]:
    """The dialogue in parts that fit the prompt; a quarter of the context is reserved for its instructions."""
    room = (llm.context_length - load(prompt).max_tokens) * 3 // 4
    return split_turns(turns, room, llm.count_tokens)


def _prose(prompt: Prompt, answer: Completion | None, gate: Gate) -> str:
    if answer is None:
        return ""  # counted when it was asked
    return " ".join(gate.admit_sentences(prompt, complete_sentences(answer, at_least_one=True)))
