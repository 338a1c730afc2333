"""Summarizer: sessions to memory sentences by the backbone, as a list that the format guarantees.

Knows no system; several of them start a session's end with it. Sentences come back as the model wrote them, cleaned of
repeats.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from localmem.llm.base import LLM
from localmem.llm.schemas import answer, many, text
from localmem.llm.structured_output import says, unusable, usable
from localmem.prompts import load, render
from localmem.text.dialogue import parts, transcript
from localmem.types import Completion, Prompt, Turn


class Summarizer:
    """Asks `prompt` (inputs dialogue, user, assistant) for at most `limit` sentences a part of the session.

    A session longer than the model's context is read in parts, all sent at once. The schema bounds number and length
    of the sentences, so that an answer cannot outgrow the prompt's `max_tokens`; where one did all the same, its part
    gives no sentence, and `fallbacks` counts it by the prompt's name. Words of the instructions are no memory.
    """

    def __init__(
        self, llm: LLM, *, prompt: str = "memory_retrieval/summarize", limit: int = 12, longest: int = 160
    ) -> None:
        self._llm = llm
        self._prompt = prompt
        self._form = answer(memories=many(text(longest), limit))
        self.fallbacks: Counter[str] = Counter()

    def __call__(self, turns: Sequence[Turn]) -> list[str]:
        """The sentences worth remembering, in the order of the dialogue; none for no turns."""
        (sentences,) = self.each(turns, [{}])
        return sentences

    def each(self, turns: Sequence[Turn], inputs: Sequence[Mapping[str, str]]) -> list[list[str]]:
        """The sentences for each set of further inputs of the prompt (say, whom they are about), all asked at once."""
        room = self._llm.context_length - load(self._prompt).max_tokens
        runs = parts(turns, room * 3 // 4, self._llm.count_tokens)  # a quarter is left for instructions and template
        known = _names(turns)
        prompts = [
            render(self._prompt, form=self._form, dialogue=transcript(run), **known, **more)
            for more in inputs
            for run in runs
        ]
        answered = zip(prompts, usable(self._llm, prompts, self.fallbacks), strict=True)
        return [self._sentences(islice(answered, len(runs))) for _ in inputs]

    def _sentences(self, answered: Iterable[tuple[Prompt, Completion | None]]) -> list[str]:
        """The sentences of some answers, white space made single, repeats and what says nothing dropped."""
        clean = (
            (prompt, " ".join(sentence.split()))
            for prompt, completion in answered
            if completion is not None
            for sentence in self._read(completion.text)
        )
        return list(dict.fromkeys(sentence for prompt, sentence in clean if says(sentence, prompt)))

    def _read(self, text: str) -> list[str]:
        match json.loads(text):
            case {"memories": list(items)}:
                return [item for item in items if isinstance(item, str)]
        unusable(self._prompt, f"its answer {text!r:.80} holds no list of memories", self.fallbacks)
        return []


def _names(turns: Sequence[Turn]) -> dict[str, str]:
    """The speakers' names as the dialogue shows them."""
    names = {turn.role: turn.speaker for turn in turns}
    return {"user": names.get("user", "the user"), "assistant": names.get("assistant", "the assistant")}
