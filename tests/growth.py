"""How work grows with its input, as a ratio: a limit of seconds would fail on a busy machine and pass on a fast one."""

from collections.abc import Callable
from time import thread_time


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Four times the size takes no more than eight times as long: what is quadratic would take sixteen times."""
    assert least_seconds(work, 4 * size) < 8 * least_seconds(work, size)


def least_seconds(work: Callable[[int], object], size: int) -> float:
    """The least of this thread's processor times at sizes near this one: they differ, so that no cache answers."""

    def measure(count: int) -> float:
        start = thread_time()
        work(count)
        return thread_time() - start

    return min(measure(count) for count in range(size, size + 5))
