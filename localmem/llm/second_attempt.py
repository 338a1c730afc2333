"""SecondAttempt: lets a model answer again that takes a plain request to be beyond it ("I'm sorry, but as an AI ...").

The smallest models refuse three in a hundred ordinary requests like that, recipes and greetings among them. An apology
is held back until it shows what it leads to, so nobody sees a reply that is thrown away. The second reply begins with
words of its own, after which a model goes on with an answer, and is passed on as it is. Does not depend on any backend.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import cast

from localmem.batching import results_or_raise
from localmem.errors import LocalmemError, PartialFailure
from localmem.llm.base import LLM, required_abilities
from localmem.llm.wrappers import Wrapper
from localmem.types import Completion, FreeText, Prompt

_APOLOGIES = ("i'm sorry", "i am sorry", "i apologize", "i apologise", "sorry")
_AS_AN_AI = re.compile(r"\bas an? (?:[\w-]+ ){0,3}(?:ai|chatbot|language model)\b")
_SENTENCE_END = re.compile(r"[.!?]\s|\n")
_LONGEST = 200  # characters of an apology's first sentence


class SecondAttempt(Wrapper):
    """Answers again, beginning with `beginning`, where the first sentence refuses as an AI.

    Of free text alone, without a beginning of its own, and only with a backend that continues an answer.
    """

    def __init__(self, inner: LLM, beginning: str) -> None:
        super().__init__(inner)
        self._beginning = beginning

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        try:
            results: list[object] = list(self.inner.generate(prompts))
        except PartialFailure as failure:
            results = list(failure.results)
        refused = [
            place
            for place, (prompt, result) in enumerate(zip(prompts, results, strict=True))
            if isinstance(result, Completion) and _refuses(result.text) and self._may_answer_again(prompt)
        ]
        again = self._answer_again([prompts[place] for place in refused]) if refused else []
        for place, completion in zip(refused, again, strict=False):
            results[place] = completion
        return results_or_raise(cast("list[Completion | Exception]", results))

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        if not self._may_answer_again(prompt):
            return (yield from self.inner.stream(prompt))
        text = ""
        with closing(self.inner.stream(prompt)) as pieces:
            while _may_refuse(text):
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    yield text
                    return cast("Completion", end.value)
                if not piece:
                    yield piece
                text += piece
            if not _refuses(text):
                yield text
                return (yield from pieces)
        yield self._beginning
        return self._join((yield from self.inner.stream(replace(prompt, prefill=self._beginning))))

    def _may_answer_again(self, prompt: Prompt) -> bool:
        is_plain = isinstance(prompt.format, FreeText) and not required_abilities(prompt)
        return is_plain and "prefill" in self.inner.abilities

    def _answer_again(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """The second answers; none if they fail, for the first are answers as well."""
        try:
            completions = self.inner.generate([replace(prompt, prefill=self._beginning) for prompt in prompts])
        except LocalmemError:
            return []
        return [self._join(completion) for completion in completions]

    def _join(self, completion: Completion) -> Completion:
        return replace(completion, text=self._beginning + completion.text)


def _may_refuse(text: str) -> bool:
    """Whether a text is the beginning of an apology that may still refuse."""
    start = _plain(text)
    is_apology = any(apology.startswith(start[: len(apology)]) for apology in _APOLOGIES)
    return is_apology and len(start) < _LONGEST and not _SENTENCE_END.search(start) and not _AS_AN_AI.search(start)


def _refuses(text: str) -> bool:
    start = _SENTENCE_END.split(_plain(text), maxsplit=1)[0][:_LONGEST]
    return start.startswith(_APOLOGIES) and _AS_AN_AI.search(start) is not None


def _plain(text: str) -> str:
    return text.lstrip().lower().replace("’", "'")
