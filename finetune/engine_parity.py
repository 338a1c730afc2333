"""Comparison of two engines' greedy answers: equal, diverging where two tokens are equally likely, or really different.

Rounding differs between engines, so if the two most likely tokens are within a margin of each other, either is right.
One engine, the reference, measures the margin: the difference of the two tokens' log-probabilities at the point where
the answers diverge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from localmem.types import Choice, Completion, Prompt

if TYPE_CHECKING:
    import torch

    from localmem.llm.tokenizer import ChatTokenizer

MARGIN = 0.02  # nats; `largest_choice_difference` measures how far two engines differ

Margin = Callable[[Prompt, str, str], float]  # between two answers to a prompt, in nats


@dataclass(frozen=True, slots=True)
class Parity:
    """How many answers to `prompts` prompts are equal, how many diverge at a tie, and the widest divergence."""

    name: str
    prompts: int
    equal: int
    ties: int
    widest: float

    @property
    def share(self) -> float:
        """Share of answers that are equal or diverge at a tie."""
        return (self.equal + self.ties) / self.prompts

    def row(self) -> dict[str, object]:
        """The figures by column of a table."""
        return {
            "model": self.name,
            "prompts": self.prompts,
            "equal": self.equal,
            "ties": self.ties,
            "share equal": self.equal / self.prompts,
            "share with ties": self.share,
            "widest margin": self.widest,
        }


def compare_engines(
    name: str,
    prompts: Sequence[Prompt],
    reference: Sequence[Completion],
    other: Sequence[Completion],
    margin_of: Margin,
    margin: float = MARGIN,
) -> Parity:
    """Compare another engine's answers with the reference's. `widest` is the widest margin of a divergence."""
    margins = [
        margin_between(prompt, first, second, margin_of)
        for prompt, first, second in zip(prompts, reference, other, strict=True)
        if first.text != second.text
    ]
    ties = sum(value <= margin for value in margins)
    return Parity(name, len(prompts), len(prompts) - len(margins), ties, max(margins, default=0.0))


def largest_choice_difference(reference: Sequence[Completion], other: Sequence[Completion]) -> float | None:
    """The largest difference of the log-probabilities of the option that the reference chose; None without choices."""
    differences = [
        abs(first.choices[first.text] - second.choices[first.text])
        for first, second in zip(reference, other, strict=True)
        if first.choices and second.choices and first.text in first.choices and first.text in second.choices
    ]
    return max(differences, default=None)


def margin_between(prompt: Prompt, reference: Completion, other: Completion, margin_of: Margin) -> float:
    """How much more likely the reference's answer was than the other's, at the point of divergence."""
    if isinstance(prompt.format, Choice) and reference.choices:
        first, second = (reference.choices.get(answer.text, -inf) for answer in (reference, other))
        return first - second
    return margin_of(prompt, reference.text, other.text)


class ModelMargin:
    """Margins by a causal language model: a forward pass of transformers, or of peft around it."""

    def __init__(self, model: "torch.nn.Module", chat: "ChatTokenizer") -> None:
        self._model, self._chat = model, chat

    def __call__(self, prompt: Prompt, reference: str, other: str) -> float:
        import torch

        first, second = (self._token_ids(text) for text in (reference, other))
        common = next(place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        ids = [*self._chat.encode(prompt.messages, {}), *first[:common]]
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([ids])).logits[0, -1].float()
        scores = logits.log_softmax(-1)
        return float(scores[first[common]] - scores[second[common]])

    def _token_ids(self, text: str) -> list[int]:
        """With the token that ends an answer, because one answer may be a prefix of the other."""
        ids: list[int] = self._chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [*ids, int(self._chat.tokenizer.eos_token_id)]
