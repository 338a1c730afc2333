"""The scripted life that a drill cuts short: two users at once, each step acknowledged when it is durable.

A step that was done before changes nothing when it is done again, so a life goes on with the first step that was not
acknowledged.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from localmem.store import Store, StoreJournal
from localmem.types import AddLink, AddUnit, Change, Link, MarkUnit, RetireUnit, SetNote, Turn, Unit

USERS = ("ann", "bob")
STEPS = 60

_START = datetime(2026, 1, 1, tzinfo=UTC)


def step(store: Store, journals: tuple[StoreJournal, StoreJournal], user: str, number: int) -> None:
    """One durable step; ten of them are a session, remembered by two systems."""
    day, place = divmod(number, 10)
    session = f"s{day}"
    first, second = journals
    does: list[Callable[[], object]] = [
        lambda: first.add_turns(session, [_turn(user, day, 0)]),
        lambda: first.add_turns(session, [_turn(user, day, 1)]),
        lambda: first.commit(f"{session}.1", _exchange_changes(user, day)),
        lambda: first.add_turns(session, [_turn(user, day, 2), _turn(user, day, 3)]),
        lambda: second.commit(f"{session}.3", _exchange_changes(user, day)),
        lambda: first.close(session),
        lambda: first.finish(session, _session_changes(user, day)),
        lambda: second.close(session),
        lambda: second.finish(session, _session_changes(user, day)),
        lambda: store.embeddings.put("encoder", {f"{user}{day}": bytes(1536)}),
    ]
    does[place]()


def journals(store: Store, user: str) -> tuple[StoreJournal, StoreJournal]:
    return store.journal(user, "first"), store.journal(user, "second")


def _turn(user: str, day: int, place: int) -> Turn:
    text = f"{user} says sentence {place} of day {day}. " * (1 + day % 7)
    return Turn(
        f"s{day}.{place}", "assistant" if place % 2 else "user", user, text, _START + timedelta(days=day, minutes=place)
    )


def _exchange_changes(user: str, day: int) -> list[Change]:
    time = _START + timedelta(days=day)
    return [_unit(user, f"n{day}", day), MarkUnit(f"n{day}", "recalled", float(day), time)]


def _session_changes(user: str, day: int) -> list[Change]:
    """Twenty changes: enough that half of them could be written."""
    time = _START + timedelta(days=day)
    changes: list[Change] = [_unit(user, f"u{day}.{number}", day) for number in range(12)]
    changes += [AddLink(Link(f"u{day}.0", f"u{day}.{number}", "next", 0.5), time) for number in range(1, 6)]
    changes.append(SetNote("summary", f"{user} up to day {day}. " * 20, time))
    if day:
        changes.append(RetireUnit(f"u{day - 1}.1", f"u{day}.1", "said anew", time))
        changes.append(MarkUnit(f"u{day - 1}.2", "recalled", float(day), time))
    return changes


def _unit(user: str, name: str, day: int) -> AddUnit:
    time = _START + timedelta(days=day)
    text = f"{name}: what {user} said on day {day}"
    return AddUnit(Unit(name, text, text, "sentence", user, f"s{day}", (f"s{day}.0",), time, time), time)


def lead_both(acknowledge: Callable[[str], object], place: str, *begin: str) -> None:
    """Lead both lives at once, each from the step to begin with; "user number" acknowledges a step."""

    def lead(user: str, number: int) -> None:
        user_journals = journals(store, user)
        for step_number in range(number, STEPS):
            step(store, user_journals, user, step_number)
            acknowledge(f"{user} {step_number}")

    with Store.open(place) as store, ThreadPoolExecutor(len(USERS)) as pool:
        list(pool.map(lead, USERS, map(int, begin)))
