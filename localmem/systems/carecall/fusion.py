"""FUSION: one sentence out of a new one and the remembered ones it replaces, where something would be lost.

Keep Me Updated, appendix C.2, names the case and leaves it out; here it is a setting. Knows no bank.
"""

import json
from collections import Counter
from collections.abc import Sequence

from localmem.llm.base import LLM
from localmem.llm.schemas import answer, boolean, text
from localmem.llm.structured_output import repeats, unusable, usable
from localmem.prompts import render
from localmem.types import Completion, Prompt

Replaced = tuple[Sequence[str], str]  # the remembered sentences, and the new one that takes their place

_PROMPT = "carecall/fuse"


class Fuser:
    """Asks the backbone, for all replacements of a session at once, whether they lose what still holds.

    `longest` bounds the merged sentence in characters. `fallbacks` counts answers that could not be used, by prompt.
    """

    def __init__(self, llm: LLM, *, longest: int = 240) -> None:
        self._llm = llm
        self._form = answer(loses=boolean(), sentence=text(longest))
        self.fallbacks: Counter[str] = Counter()

    def __call__(self, replaced: Sequence[Replaced]) -> list[str]:
        """For each replacement the sentence to store: the merged one, or the new one where nothing is lost."""
        prompts = [render(_PROMPT, form=self._form, memories=list(old), sentence=new) for old, new in replaced]
        answers = usable(self._llm, prompts, self.fallbacks)
        read = [self._read(prompt, said) for prompt, said in zip(prompts, answers, strict=True)]
        return [merged or new for merged, (_, new) in zip(read, replaced, strict=True)]

    def _read(self, prompt: Prompt, said: Completion | None) -> str:
        """The merged sentence, "" for none."""
        if said is None:
            return ""  # counted where it was asked
        match json.loads(said.text):
            case {"loses": False}:
                return ""
            case {"loses": True, "sentence": str(sentence)} if not repeats(
                prompt, merged := " ".join(sentence.split())
            ):
                return merged
        unusable(_PROMPT, f"its answer {said.text!r:.80} holds no merged sentence", self.fallbacks)
        return ""
