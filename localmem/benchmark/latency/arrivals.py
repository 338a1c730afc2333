"""When the requests of an open loop arrive: a Poisson process, bursts, or the times of a trace.

Does not depend on what a request is.
"""

from collections.abc import Iterator
from itertools import cycle, pairwise
from pathlib import Path
from random import Random

from pydantic import BaseModel, TypeAdapter

from localmem.benchmark.recipes import Load
from localmem.errors import BadInput
from localmem.files import read_log


class _Arrival(BaseModel):
    """A request of a trace; what else its line holds is not read."""

    timestamp: float  # milliseconds since the trace began


_ARRIVAL = TypeAdapter(_Arrival)


def arrival_gaps(load: Load, seed: str) -> Iterator[float]:
    """Seconds between arrivals, without end: gamma distributed, or those of a trace again and again.

    Raises BadInput for a trace that cannot be read.
    """
    if load.trace:
        yield from cycle(_trace_gaps(load.trace))
    random, rate = Random(seed), load.rate or 1.0  # noqa: S311  # arrival times, not a secret
    while True:
        yield random.gammavariate(load.burstiness, 1 / (rate * load.burstiness))


def _trace_gaps(file: Path) -> list[float]:
    times = [row.timestamp / 1000 for row in read_log(file, _ARRIVAL)]
    if len(times) < 2 or times != sorted(times):
        raise BadInput(f"{file} holds {len(times)} arrivals; give two or more in ascending order")
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return [sum(gaps) / len(gaps), *gaps]
