"""Progress bars on the terminal; nothing is shown in a pipe."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm


@contextmanager
def step_progress() -> "Iterator[Callable[[str, int, int], None]]":
    """A callback for long work that receives a step, how much of it is done, and its total: one bar for each step."""
    bars: dict[str, tqdm[Any]] = {}

    def show(step: str, completed: int, total: int) -> None:
        from tqdm import tqdm

        if step not in bars:
            bars[step] = tqdm(total=total, desc=step, disable=None)
        bars[step].update(completed - bars[step].n)

    try:
        yield show
    finally:
        for bar in bars.values():
            bar.close()
