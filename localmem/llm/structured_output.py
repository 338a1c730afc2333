"""Answers that a step can work with: one outside its format becomes None, so that a system can take its fallback.

Knows no system. Any other failure of the backbone goes on up, and the step is done again as a whole.
"""

import logging
from collections import Counter
from collections.abc import Sequence

from localmem.errors import BadReply, PartialFailure
from localmem.llm.base import LLM
from localmem.types import Completion, Prompt

log = logging.getLogger(__name__)


def usable(llm: LLM, prompts: Sequence[Prompt], fallbacks: Counter[str]) -> list[Completion | None]:
    """The answers to `prompts`, sent out together, in their order; None for each that came outside its format.

    A format is enforced while decoding, so that happens when the tokens ran out in the middle of one. Asking again
    would end the same way at temperature 0. Each None is logged, and counted in `fallbacks` by the prompt's name.
    """
    answers = _generate(llm, prompts) if prompts else []
    for prompt, answer in zip(prompts, answers, strict=True):
        if answer is None:
            unusable(prompt.name, "its answer came outside the format", fallbacks)
    return answers


def unusable(name: str, what: str, fallbacks: Counter[str]) -> None:
    """Logs and counts one fallback of the prompt called `name`."""
    log.warning("%s: %s; its fallback is taken", name, what)
    fallbacks[name] += 1


def repeats(prompt: Prompt, sentence: str) -> bool:
    """Whether a sentence stands in the prompt's instructions: an example that a weak model gave back, and no fact.

    A sentence of fewer than four words may stand there by chance.
    """
    told = (message.content for message in prompt.messages if message.role == "system")
    return len(sentence.split()) > 3 and any(sentence in text for text in told)


def says(sentence: str, prompt: Prompt) -> bool:
    """Whether a sentence holds a word or number and is none of the instructions'."""
    return any(character.isalnum() for character in sentence) and not repeats(prompt, " ".join(sentence.split()))


def _generate(llm: LLM, prompts: Sequence[Prompt]) -> list[Completion | None]:
    try:
        return list(llm.generate(prompts))
    except BadReply:
        return [None] * len(prompts)
    except PartialFailure as failure:
        answers = [result for result in failure.results if isinstance(result, Completion | BadReply)]
        if len(answers) < len(prompts):
            raise
        return [answer if isinstance(answer, Completion) else None for answer in answers]
