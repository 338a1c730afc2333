"""Logging a turn and searching memory for it at the same time.

Both take a few milliseconds, one waiting for the disk and one for the processor. Nothing is answered before the turn is
durable: the writer announces what it is about to write, and a result prepared for anything else is dropped.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

Heard = TypeVar("Heard")
Prepared = TypeVar("Prepared")

_WRITERS = ThreadPoolExecutor(128, "localmem-hear")  # threads that wait for the disk; none starts before it is needed


def hear_and_prepare(
    hear: Callable[[Callable[[Heard], None]], Heard], prepare: Callable[[Heard], Prepared]
) -> tuple[Heard, Prepared | None]:
    """The result of `hear`, and what `prepare` made of it in the meantime; None when `hear` had not announced it.

    `hear` runs on a thread of its own and calls its argument with what it is about to write. Raises the error of
    `hear`, else that of `prepare`, and neither before `hear` has finished.
    """
    announced: SimpleQueue[Heard | None] = SimpleQueue()
    writing = _WRITERS.submit(hear, announced.put)
    writing.add_done_callback(lambda _: announced.put(None))
    expected = announced.get()
    prepared = None
    try:
        if expected is not None:
            prepared = prepare(expected)
    finally:
        written = writing.result()
    return written, prepared if written == expected else None
