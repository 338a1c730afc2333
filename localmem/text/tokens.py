"""Token budgets: how much of a list of texts fits. Knows no tokenizer; the caller counts."""

from collections.abc import Callable, Sequence


def within(texts: Sequence[str], budget: int, count: Callable[[Sequence[str]], list[int]]) -> int:
    """How many of `texts`, from the first on, hold at most `budget` tokens together; `count` gives those of each."""
    used = 0
    for fitting, tokens in enumerate(count(texts)):
        used += tokens
        if used > budget:
            return fitting
    return len(texts)
