"""Hearing and recalling at once: while a turn is being made durable, what it brings to mind is looked up already.

Knows no store and no memory. Nothing is answered before the turn is durable: whoever hears says beforehand what it is
about to write, and what was looked up for anything else is dropped.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

Heard = TypeVar("Heard")
Ready = TypeVar("Ready")

_HANDS = ThreadPoolExecutor(128, "localmem-hear")  # each waits for a disk; none is started before it is needed


def heard_ahead(
    hear: Callable[[Callable[[Heard], None]], Heard], prepare: Callable[[Heard], Ready]
) -> tuple[Heard, Ready | None]:
    """What `hear` returns, and what `prepare` made of it meanwhile; None when `hear` had not announced it.

    `hear` runs on a thread of its own and calls its argument with what it is about to write. Raises what `hear` raised,
    else what `prepare` did, and neither before `hear` is over.
    """
    announced: SimpleQueue[Heard | None] = SimpleQueue()
    hearing = _HANDS.submit(hear, announced.put)
    hearing.add_done_callback(lambda _: announced.put(None))
    expected = announced.get()
    ready = None
    try:
        if expected is not None:
            ready = prepare(expected)
    finally:
        heard = hearing.result()
    return heard, ready if heard == expected else None
