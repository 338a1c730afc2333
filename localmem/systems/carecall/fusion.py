"""FUSION: one sentence out of a new one and the remembered ones it replaces, where something would be lost.

Keep Me Updated, appendix C.2, names the case and leaves it out; here it is a setting. Knows no bank.
"""

import json
from collections import Counter
from collections.abc import Sequence

from localmem.llm.base import LLM
from localmem.prompts import render
from localmem.text.answers import unusable, usable
from localmem.types import Completion, JsonSchema

Replaced = tuple[Sequence[str], str]  # the remembered sentences, and the new one that takes their place

_PROMPT = "carecall/fuse"


class Fuser:
    """Asks the backbone, for all replacements of a session at once, whether they lose what still holds.

    `longest` bounds the merged sentence in characters. `fallbacks` counts answers that could not be used, by prompt.
    """

    def __init__(self, llm: LLM, *, longest: int = 240) -> None:
        self._llm = llm
        self._form = JsonSchema(_schema(longest))
        self.fallbacks: Counter[str] = Counter()

    def __call__(self, replaced: Sequence[Replaced]) -> list[str]:
        """For each replacement the sentence to store: the merged one, or the new one where nothing is lost."""
        prompts = [render(_PROMPT, form=self._form, memories=list(old), sentence=new) for old, new in replaced]
        answers = usable(self._llm, prompts, self.fallbacks)
        return [self._read(answer) or new for answer, (_, new) in zip(answers, replaced, strict=True)]

    def _read(self, answer: Completion | None) -> str:
        """The merged sentence, "" for none."""
        if answer is None:
            return ""
        match json.loads(answer.text):
            case {"loses": bool(loses), "sentence": str(sentence)}:
                return " ".join(sentence.split()) if loses else ""
        unusable(_PROMPT, f"its answer {answer.text!r:.80} lacks a field", self.fallbacks)
        return ""


def _schema(longest: int) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {"loses": {"type": "boolean"}, "sentence": {"type": "string", "maxLength": longest}},
        "required": ["loses", "sentence"],
        "additionalProperties": False,
    }
