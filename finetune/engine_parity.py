"""Whether two engines give the same greedy answers: word for word, or parting where two tokens are as good as equal.

Rounding differs between engines, so where the two likeliest tokens are within a margin of each other either is right.
The margin is measured by one engine, the reference: the difference of the two tokens' log-probabilities at the place
where the answers part. Knows completions and, for the margins of texts, a way to weigh tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from localmem.types import Choice, Completion, Prompt

if TYPE_CHECKING:
    import torch

    from localmem.llm.tokenizer import ChatTokenizer

MARGIN = 0.02  # nats; `apart` says how far two engines really are from each other

Margin = Callable[[Prompt, str, str], float]  # of two answers to a prompt, in nats


@dataclass(frozen=True, slots=True)
class Sameness:
    """Of so many prompts, how many answers are the same, and how many of the others part at a tie."""

    name: str
    prompts: int
    equal: int
    ties: int
    widest: float

    @property
    def share(self) -> float:
        """Equal or a tie."""
        return (self.equal + self.ties) / self.prompts

    def row(self) -> dict[str, object]:
        """For a table."""
        return {
            "model": self.name,
            "prompts": self.prompts,
            "equal": self.equal,
            "ties": self.ties,
            "share equal": self.equal / self.prompts,
            "share with ties": self.share,
            "widest margin": self.widest,
        }


def sameness(
    name: str,
    prompts: Sequence[Prompt],
    reference: Sequence[Completion],
    other: Sequence[Completion],
    margin_of: Margin,
    margin: float = MARGIN,
) -> Sameness:
    """How far the other engine's answers are the reference's. `widest` is the widest margin at which any two part."""
    margins = [
        margin_in(prompt, one, two, margin_of)
        for prompt, one, two in zip(prompts, reference, other, strict=True)
        if one.text != two.text
    ]
    ties = sum(found <= margin for found in margins)
    return Sameness(name, len(prompts), len(prompts) - len(margins), ties, max(margins, default=0.0))


def apart(reference: Sequence[Completion], other: Sequence[Completion]) -> float | None:
    """The most that both give another log-probability to the option that the reference chose; None without choices."""
    found = [
        abs(one.choices[one.text] - two.choices[one.text])
        for one, two in zip(reference, other, strict=True)
        if one.choices and two.choices and one.text in one.choices and one.text in two.choices
    ]
    return max(found, default=None)


def margin_in(prompt: Prompt, reference: Completion, other: Completion, margin_of: Margin) -> float:
    """How much likelier the reference's answer was than the other's, where they part."""
    if isinstance(prompt.format, Choice) and reference.choices:
        chances = [reference.choices.get(answer.text, -inf) for answer in (reference, other)]
        return chances[0] - chances[1]
    return margin_of(prompt, reference.text, other.text)


class Weighed:
    """Margins by a causal model on its own: a forward pass of transformers, or of peft around it."""

    def __init__(self, model: "torch.nn.Module", chat: "ChatTokenizer") -> None:
        self._model, self._chat = model, chat

    def __call__(self, prompt: Prompt, reference: str, other: str) -> float:
        import torch

        one, two = (self._ids(text) for text in (reference, other))
        shared = next(place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
        asked = [*self._chat.encode(prompt.messages, {}), *one[:shared]]
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([asked])).logits[0, -1].float()
        chances = logits.log_softmax(-1)
        return float(chances[one[shared]] - chances[two[shared]])

    def _ids(self, text: str) -> list[int]:
        """With the token that ends an answer, so that one answer may be the beginning of the other."""
        ids: list[int] = self._chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [*ids, int(self._chat.tokenizer.eos_token_id)]
