"""Summarizer: sessions to memory sentences by the backbone, as a list that the format guarantees.

Knows no system; several of them start a session's end with it. Sentences come back as the model wrote them, cleaned of
repeats.
"""

import json
from collections.abc import Sequence

from localmem.llm.base import LLM
from localmem.prompts import load, render
from localmem.text.dialogue import parts, transcript
from localmem.types import JsonSchema, Turn


class Summarizer:
    """Asks `prompt` (inputs dialogue, user, assistant) for at most `limit` sentences a part of the session.

    A session longer than the model's context is read in parts, all sent at once. The schema bounds number and length
    of the sentences, so that an answer cannot outgrow the prompt's `max_tokens`.
    """

    def __init__(
        self, llm: LLM, *, prompt: str = "memory_retrieval/summarize", limit: int = 12, longest: int = 160
    ) -> None:
        self._llm = llm
        self._prompt = prompt
        self._form = JsonSchema(_schema(limit, longest))

    def __call__(self, turns: Sequence[Turn]) -> list[str]:
        """The sentences worth remembering, in the order of the dialogue; none for no turns."""
        room = self._llm.context_length - load(self._prompt).max_tokens
        runs = parts(turns, room * 3 // 4, self._llm.count_tokens)  # a quarter is left for instructions and template
        prompts = [render(self._prompt, form=self._form, dialogue=transcript(run), **_names(turns)) for run in runs]
        sentences: list[str] = []
        for completion in self._llm.generate(prompts):
            sentences += json.loads(completion.text)["memories"]
        return list(dict.fromkeys(kept for sentence in sentences if (kept := " ".join(sentence.split()))))


def _names(turns: Sequence[Turn]) -> dict[str, str]:
    """The speakers' names as the dialogue shows them."""
    names = {turn.role: turn.speaker for turn in turns}
    return {"user": names.get("user", "the user"), "assistant": names.get("assistant", "the assistant")}


def _schema(limit: int, longest: int) -> dict[str, object]:
    sentence = {"type": "string", "minLength": 1, "maxLength": longest}
    memories = {"type": "array", "items": sentence, "maxItems": limit}
    return {
        "type": "object",
        "properties": {"memories": memories},
        "required": ["memories"],
        "additionalProperties": False,
    }
