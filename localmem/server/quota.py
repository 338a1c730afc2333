"""What one user may store, checked before anything is written: units, turns in a day, megabytes.

The store counts, so all servers over it agree. What is stored already is remembered whatever the quota: it bounds what
comes in. Erasing, reading and chats that store nothing are always possible.
"""

from datetime import datetime, timedelta
from math import ceil

from localmem.runtime import Runtime
from localmem.server.errors import ApiError

_DAY = timedelta(days=1)
_MB = 1 << 20


def check_quota(runtime: Runtime, user: str, now: datetime, *, adding: int = 0) -> None:
    """Raises ApiError 403 or 429 where the user may store nothing more, or not so many bytes."""
    quota, lookups = runtime.settings.server.quota, runtime.store.lookups
    if quota.units is not None:
        count = sum(1 for _ in runtime.agent(user).memory.bank.live())
        if count >= quota.units:
            raise _refusal("units", f"the memory holds {count} units, and {quota.units} are the most")
    if quota.megabytes is not None:
        size = lookups.text_size(user) + adding
        if size >= quota.megabytes * _MB:
            raise _refusal("megabytes", f"the texts take {size / _MB:.1f} MB, and {quota.megabytes:g} are the most")
    if quota.turns_per_day is not None:
        times = lookups.turn_times(user, now - _DAY)
        if len(times) >= quota.turns_per_day:
            seconds = max(1, ceil((times[-quota.turns_per_day] + _DAY - now).total_seconds()))
            raise ApiError(
                429,
                f"{len(times)} turns within 24 hours, and {quota.turns_per_day} are the most of a user; wait "
                f"{seconds} s, or raise server.quota.turns_per_day",
                code="quota_turns",
                headers={"Retry-After": str(seconds)},
            )


def _refusal(name: str, reason: str) -> ApiError:
    cure = f"erase some, send X-Localmem: read to chat without storing, or raise server.quota.{name}"
    return ApiError(403, f"{reason} of a user; {cure}", code=f"quota_{name}")
