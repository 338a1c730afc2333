"""Compares the sessions of a file with the log: which are new, which have grown, and which only share an id.

A session that has grown is continued by another, named after the first with the number of turns before it: "c1+12". An
erasure leaves gaps in the log; what was erased is not imported again.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from localmem.store import SessionInfo, Store
from localmem.types import CUT, Session, Turn


@dataclass(slots=True)
class Selection:
    """The `new` sessions, the number of `unchanged` ones, and a line for each that is not imported or not in full."""

    new: list[Session] = field(default_factory=list)
    unchanged: int = 0
    skipped: list[str] = field(default_factory=list)


class _Part(NamedTuple):
    """A logged session that has the turns of a file's session from the number `start` on."""

    start: int
    info: SessionInfo


class _Logged(NamedTuple):
    """What the log has of a session: `turns` by number up to `end`, and the parts that wait to be remembered."""

    turns: Mapping[int, Turn]
    end: int
    unread: list[Session]


def select_new(sessions: Iterable[Session], store: Store, user: str, system: str) -> Selection:
    """The sessions, and the new turns of grown ones, that the system has not remembered."""
    parts = _parts_by_session(store.sessions(user))
    selection = Selection()
    for session in sessions:
        if session.id in parts:
            _compare(session, _load(session.id, parts[session.id], store, user, system), selection)
        else:
            selection.new.append(session)
    return selection


def is_logged(session: Session, logged: Session, count: int) -> bool:
    """Whether the log has a whole session, but for turns that were erased; `count` of its turns were logged."""
    turns = {_number(turn, place, 0, logged.id): turn for place, turn in enumerate(logged.turns)}
    return len(session.turns) == count and all(
        number < count and _words(turn) == _words(session.turns[number]) for number, turn in turns.items()
    )


def _parts_by_session(infos: Iterable[SessionInfo]) -> Mapping[str, list[_Part]]:
    parts = defaultdict[str, list[_Part]](list)
    for info in infos:
        parts[info.id].append(_Part(0, info))
        origin, _, start = info.id.rpartition("+")
        if start.isdecimal():
            parts[origin].append(_Part(int(start), info))
    return parts


def _load(session_id: str, parts: Iterable[_Part], store: Store, user: str, system: str) -> _Logged:
    turns, end, unread = dict[int, Turn](), 0, list[Session]()
    for start, info in sorted(parts, key=lambda part: part.start):
        session = store.session(user, info.id)
        turns |= {_number(turn, start + index, start, session_id): turn for index, turn in enumerate(session.turns)}
        end = max(end, start + info.logged, *(number + 1 for number in turns))
        if session.turns and info.jobs.get(system) != "done":
            unread.append(session)
    return _Logged(turns, end, unread)


def _number(turn: Turn, place: int, start: int, session_id: str) -> int:
    """The number of a logged turn in the file's session; a server counts the turns of each part from 0."""
    name, _, number = turn.id.removesuffix(CUT).rpartition(".")
    if not number.isdecimal():
        return place
    return int(number) if name == session_id else start + int(number)


def _compare(session: Session, logged: _Logged, selection: Selection) -> None:
    """Add to the selection what is new of a session whose id is in the log."""
    shared, continuation = session.turns[: logged.end], session.turns[logged.end :]
    erased = [number for number in range(len(shared)) if number not in logged.turns]
    if not all(_words(logged.turns[n]) == _words(turn) for n, turn in enumerate(shared) if n in logged.turns):
        # An export leaves out what was hidden, so that the turns after it have other numbers.
        if not _is_contained(session, logged.turns.values()):
            line = f"session {session.id!r} is not imported: one with this id has other turns; give it another id"
            selection.skipped.append(line)
            return
        continuation = ()
    elif erased:
        line = f"session {session.id!r}: {len(erased)} turns were erased and are not imported again"
        selection.skipped.append(f"{line}; give it another id to import them")
    new = list(logged.unread)
    if continuation:
        new.append(replace(session, id=f"{session.id}+{logged.end}", turns=continuation))
    selection.new += new
    selection.unchanged += not new


def _is_contained(session: Session, turns: Iterable[Turn]) -> bool:
    """Whether the log has all turns of the session, in order."""
    remaining = map(_words, turns)
    return all(_words(turn) in remaining for turn in session.turns)


def _words(turn: Turn) -> tuple[str, str]:
    return turn.role, turn.text
