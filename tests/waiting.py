"""Waiting for what other threads and processes do."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

Result = TypeVar("Result")


def wait_until(read: Callable[[], Result]) -> Result:
    """The first true result of `read`. Fails after two minutes: a busy machine takes long."""
    end = monotonic() + 120
    while not (result := read()):
        assert monotonic() < end, "it never happened"
        sleep(0.02)
    return result
