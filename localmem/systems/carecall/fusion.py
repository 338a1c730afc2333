"""FUSION: one sentence out of a new one and the remembered ones it replaces, where something would be lost.

Keep Me Updated, appendix C.2, names the case and leaves it out; here it is a setting.
"""

import json
from collections import Counter
from collections.abc import Sequence

from localmem.llm.base import LLM
from localmem.llm.structured_output import (
    answer_format,
    boolean,
    count_fallback,
    generate_usable,
    repeats_instructions,
    string,
)
from localmem.prompts import render
from localmem.types import Completion, Prompt

Replaced = tuple[Sequence[str], str]  # the remembered sentences, and the new one that takes their place

_PROMPT = "carecall/fuse"


class Fuser:
    """Asks the backbone, for all replacements of a session at once, whether they lose something that still holds.

    `longest` bounds the merged sentence in characters. `fallbacks` counts unusable answers by prompt.
    """

    def __init__(self, llm: LLM, *, longest: int = 240, fallbacks: Counter[str] | None = None) -> None:
        self._llm = llm
        self._form = answer_format(loses=boolean(), sentence=string(longest))
        self._fallbacks: Counter[str] = Counter() if fallbacks is None else fallbacks

    def __call__(self, replaced: Sequence[Replaced]) -> list[str]:
        """For each replacement the sentence to store: the merged one, or the new one where nothing is lost."""
        prompts = [render(_PROMPT, form=self._form, memories=list(old), sentence=new) for old, new in replaced]
        answers = generate_usable(self._llm, prompts, self._fallbacks)
        merged = [self._read(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        return [sentence or new for sentence, (_, new) in zip(merged, replaced, strict=True)]

    def _read(self, prompt: Prompt, answer: Completion | None) -> str:
        """The merged sentence, "" for none."""
        if answer is None:
            return ""  # counted when it was asked
        match json.loads(answer.text):
            case {"loses": False}:
                return ""
            case {"loses": True, "sentence": str(sentence)} if not repeats_instructions(
                prompt, merged := " ".join(sentence.split())
            ):
                return merged
        count_fallback(_PROMPT, f"its answer {answer.text!r:.80} holds no merged sentence", self._fallbacks)
        return ""
