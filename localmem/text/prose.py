"""Dialogues to running text: summaries that are shown as they were written and never taken apart.

Knows no system. Whole sentences only: where the tokens ran out, the sentence that was cut is left out.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from localmem.llm.base import LLM
from localmem.llm.structured_output import repeats, unusable, usable
from localmem.prompts import load, render
from localmem.text.dialogue import parts, transcript
from localmem.text.parse import sentences
from localmem.types import Completion, Prompt, Turn


class Ask(NamedTuple):
    """A dialogue to be summarised by a prompt (inputs dialogue, user, assistant)."""

    prompt: str
    turns: Sequence[Turn]


def summaries(llm: LLM, asks: Sequence[Ask], fallbacks: Counter[str]) -> list[str]:
    """The text for each dialogue, all asked at once; "" where nothing came back.

    A dialogue longer than the model's context is read in parts, whose texts are joined.
    """
    asked = [_prompts(llm, ask) for ask in asks]
    written = iter(prose(llm, [prompt for prompts in asked for prompt in prompts], fallbacks))
    return [" ".join(text for text in [next(written) for _ in prompts] if text) for prompts in asked]


def prose(llm: LLM, prompts: Sequence[Prompt], fallbacks: Counter[str]) -> list[str]:
    """The answers' whole sentences as one line each; an empty one is logged and counted by its prompt's name."""
    answers = usable(llm, prompts, fallbacks)
    return [_whole(prompt, answer, fallbacks) for prompt, answer in zip(prompts, answers, strict=True)]


def names(turns: Sequence[Turn]) -> tuple[str, str]:
    """The user's name and the assistant's, as the dialogue shows them."""
    found = {turn.role: turn.speaker for turn in turns}
    return found.get("user", "the user"), found.get("assistant", "the assistant")


def _prompts(llm: LLM, ask: Ask) -> list[Prompt]:
    room = (llm.context_length - load(ask.prompt).max_tokens) * 3 // 4  # a quarter is left for the instructions
    user, assistant = names(ask.turns)
    return [
        render(ask.prompt, dialogue=transcript(run), user=user, assistant=assistant)
        for run in parts(ask.turns, room, llm.count_tokens)
    ]


def _whole(prompt: Prompt, answer: Completion | None, fallbacks: Counter[str]) -> str:
    if answer is None:
        return ""  # counted where it was asked
    found = sentences(answer.text)
    if answer.finish == "length":
        found = found[:-1] or found
    found = [sentence for sentence in found if not repeats(prompt, sentence)]
    if not found:
        unusable(prompt.name, "its answer came back empty", fallbacks)
    return " ".join(found)
