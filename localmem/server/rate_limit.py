"""How often each user may ask: a token bucket for each, in memory. Does not know what a request is."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from localmem.server.errors import ApiError

_MOST = 10_000  # users whose buckets are kept; the one that asked longest ago is dropped, and by then mostly full


class RateLimit:
    """At most `per_minute` requests a minute of each user, and as many at once after a quiet minute; None: no limit."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # user -> tokens, when
        self._lock = threading.Lock()

    def admit(self, user: str) -> None:
        """Count a request of the user. Raises ApiError with status 429 and Retry-After beyond the limit."""
        if self._size is None:
            return
        now, rate = self._clock(), self._size / 60
        with self._lock:
            tokens, since = self._buckets.pop(user, (float(self._size), now))
            tokens = min(self._size, tokens + (now - since) * rate)
            self._buckets[user] = (tokens - 1 if tokens >= 1 else tokens, now)
            if len(self._buckets) > _MOST:
                self._buckets.popitem(last=False)
        if tokens < 1:
            seconds = math.ceil((1 - tokens) / rate)
            raise ApiError(
                429,
                f"more than {self._size} requests a minute; wait {seconds} s, or raise server.requests_per_minute",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(seconds)},
            )
