"""Picks the next token of one answer from logits: the likeliest, or sampled with the answer's own generator.

With its own generator the result of a seed does not depend on the other answers of a batch. Does not depend on the
model.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from localmem.errors import BadInput
from localmem.types import Prompt

_GREEDY_BELOW = 1e-5
_SHAPERS: Mapping[str, Callable[[float], LogitsProcessor]] = {
    "min_p": lambda value: MinPLogitsWarper(float(value)),
    "top_k": lambda value: TopKLogitsWarper(int(value)),
    "top_p": lambda value: TopPLogitsWarper(float(value)),
}
# The values that mean "off".
_OFF: Mapping[str, tuple[float, ...]] = {
    "min_p": (0,),
    "top_k": (0, -1),
    "top_p": (1,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
KNOWN_FIELDS = frozenset({*_OFF, "chat_template_kwargs", "cache_salt"})


class Sampler:
    """Picks the tokens of one answer.

    Of `Prompt.extra` it uses top_p, top_k, min_p and the repetition, presence and frequency penalties, with vLLM's
    meanings and order.
    """

    def __init__(self, prompt: Prompt, prompt_ids: Sequence[int], device: torch.device) -> None:
        settings = _numbers(prompt)
        self._penalties = {name: value for name, value in settings.items() if name not in _SHAPERS}
        self._prompt_ids = prompt_ids
        random = prompt.temperature >= _GREEDY_BELOW
        self._shapers = _shapers(prompt, settings) if random else []
        self._generator = _generator(prompt, device) if random else None

    def pick(self, logits: torch.Tensor, output: Sequence[int]) -> int:
        """The next token, given float32 logits (1 x vocabulary) and the answer's tokens so far."""
        scores = self._penalise(logits, output) if self._penalties else logits
        if self._generator is None:
            return int(scores.argmax())
        no_ids = torch.empty((1, 0), dtype=torch.long, device=scores.device)
        for shaper in self._shapers:
            scores = shaper(no_ids, scores)
        return _sample(scores, self._generator)

    def _penalise(self, logits: torch.Tensor, output: Sequence[int]) -> torch.Tensor:
        repetition = self._penalties.get("repetition_penalty")
        if repetition is not None:
            tokens = torch.tensor([[*self._prompt_ids, *output]], device=logits.device)
            logits = RepetitionPenaltyLogitsProcessor(repetition)(tokens, logits)
        counts = torch.bincount(torch.tensor(output, dtype=torch.long), minlength=logits.shape[1]).to(logits)
        frequency, presence = (self._penalties.get(f"{kind}_penalty", 0.0) for kind in ("frequency", "presence"))
        return logits - frequency * counts - presence * (counts > 0)


def _sample(scores: torch.Tensor, generator: torch.Generator) -> int:
    """A token sampled with one random number; torch.multinomial uses one for each token of the vocabulary."""
    heights = scores[0].double().softmax(-1).cumsum(-1)
    if not torch.isfinite(heights[-1]):
        raise RuntimeError("the model returned no probabilities because its numbers overflowed; try dtype float32")
    point = torch.rand(1, generator=generator, device=scores.device, dtype=torch.float64) * heights[-1]
    return min(int(torch.searchsorted(heights, point, right=True)), len(heights) - 1)


def _numbers(prompt: Prompt) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, off in _OFF.items():
        value = prompt.extra.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(f"prompt {prompt.name!r} has {name}={value!r}; give a number")
        if value not in off:
            numbers[name] = value
    return numbers


def _shapers(prompt: Prompt, settings: Mapping[str, float]) -> list[LogitsProcessor]:
    try:
        shapers = [_SHAPERS[name](settings[name]) for name in sorted(_SHAPERS) if name in settings]
        return [TemperatureLogitsWarper(float(prompt.temperature)), *shapers]
    except ValueError as error:
        raise BadInput(f"prompt {prompt.name!r} cannot be sampled: {error}") from error


def _generator(prompt: Prompt, device: torch.device) -> torch.Generator:
    generator = torch.Generator(device=device)
    if prompt.seed is None:
        generator.seed()
    else:
        generator.manual_seed(prompt.seed)
    return generator
