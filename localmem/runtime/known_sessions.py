"""Compares the sessions of a file with the log: which are new, which have grown or were edited.

What is new of such a session is a session of its own, named after the first with the number of turns before it:
"c1+12", and "c1+12~2" where an earlier import has that name. An erasure leaves gaps in the log; what was erased of a
session that is still there is not imported again, nor is a session that was erased whole, unless that is asked for.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import NamedTuple

from localmem.store import SessionInfo, Store
from localmem.types import CUT, Session, Turn

_PART = re.compile(r"(.+)\+(\d+)(?:~\d+)?", re.DOTALL)
_Words = tuple[str, str]  # a turn's role and text


@dataclass(slots=True)
class Selection:
    """The `new` sessions, the number of `unchanged` ones, and a line for each that is not imported or not in full.

    `erased` is the number of those that were erased whole, or their continuation was, and are left out.
    """

    new: list[Session] = field(default_factory=list)
    unchanged: int = 0
    erased: int = 0
    skipped: list[str] = field(default_factory=list)


class _Part(NamedTuple):
    """A logged session that has the turns of a file's session from the number `start` on."""

    start: int
    info: SessionInfo


class _Logged(NamedTuple):
    """What the log has of a session: its `turns` with their numbers, part by part, and the parts to be remembered.

    The numbers of several parts are the same where the session was edited; `erased` are those of erased turns. Before
    the number `erased_end` a turn that the log does not have may be an erased one.
    """

    turns: list[tuple[int, _Words]]
    erased: set[int]
    erased_end: int
    unread: list[Session]


def select_new(
    sessions: Iterable[Session], store: Store, user: str, system: str, *, with_erased: bool = False
) -> Selection:
    """The sessions, and the new turns of grown and edited ones, that the system has not remembered, by time."""
    infos = store.sessions(user)
    parts, ids = _parts_by_session(infos), {info.id for info in infos}
    selection = Selection()
    for session in sessions:
        if session.id in parts:
            _compare(session, _load(session.id, parts[session.id], store, user, system), ids, selection)
        else:
            selection.new.append(session)
    absent = {session.id for session in selection.new if not with_erased} - ids
    erased = store.unlogged.erased_sessions(user, absent)
    new = [session for session in selection.new if session.id not in erased]
    selection.new, selection.erased = sorted(new, key=lambda session: session.turns[0].time), len(erased)
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
        if match := _PART.fullmatch(info.id):
            parts[match[1]].append(_Part(int(match[2]), info))
    return parts


def _load(session_id: str, parts: Iterable[_Part], store: Store, user: str, system: str) -> _Logged:
    turns, erased, unread, end = list[tuple[int, _Words]](), set[int](), list[Session](), 0
    has_lost_part = False  # which may have been longer than the gap that it left, where the session was edited
    for start, info in sorted(parts, key=lambda part: part.start):
        session = store.session(user, info.id)
        numbers = [_number(turn, start + place, start, session_id) for place, turn in enumerate(session.turns)]
        turns += zip(numbers, map(_words, session.turns), strict=True)
        part_end = max(start + info.logged, *(number + 1 for number in numbers), 0)
        erased |= set(range(min(start, end), part_end)).difference(numbers)
        has_lost_part |= start > end
        end = max(end, part_end)
        if session.turns and info.jobs.get(system) != "done":
            unread.append(session)
    return _Logged(turns, erased, end if has_lost_part else max(erased, default=-1) + 1, unread)


def _number(turn: Turn, place: int, start: int, session_id: str) -> int:
    """The number of a logged turn in the file's session; a server counts the turns of each part from 0."""
    name, _, number = turn.id.removesuffix(CUT).rpartition(".")
    if not number.isdecimal():
        return place
    return int(number) if name == session_id else start + int(number)


def _compare(session: Session, logged: _Logged, ids: Set[str], selection: Selection) -> None:
    """Add to the selection what is new of a session whose id is in the log; `ids` are all that the log has."""
    start, erased = _count_known(session, logged)
    contained = _count_contained(session, logged)
    if contained > start:
        start, erased = contained, 0
    new, continuation = list(logged.unread), session.turns[start:]
    if continuation and start < logged.erased_end:
        line = f"session {session.id!r} is not imported from its turn {start + 1} on"
        selection.skipped.append(f"{line}: it was edited, and turns were erased; give it another id")
    elif continuation:
        new.append(_name_part(session.id, start, continuation, ids))
    if erased:
        line = f"session {session.id!r}: {erased} turns were erased and are not imported again"
        selection.skipped.append(f"{line}; give it another id to import them")
    selection.new += new
    selection.unchanged += not (new or continuation)


def _count_known(session: Session, logged: _Logged) -> tuple[int, int]:
    """How many of the first turns the log has, or had, under the same numbers, and how many of these were erased."""
    logged_turns, erased = set(logged.turns), 0
    for number, turn in enumerate(session.turns):
        if (number, _words(turn)) not in logged_turns:
            if number not in logged.erased:
                return number, erased
            erased += 1
    return len(session.turns), erased


def _count_contained(session: Session, logged: _Logged) -> int:
    """How many of the first turns the log has in order: an export leaves out what was hidden."""
    remaining = (words for _, words in logged.turns)
    return next(
        (number for number, turn in enumerate(session.turns) if _words(turn) not in remaining), len(session.turns)
    )


def _name_part(session_id: str, start: int, turns: Iterable[Turn], ids: Set[str]) -> Session:
    name = f"{session_id}+{start}"
    name = next(each for each in chain([name], (f"{name}~{number}" for number in count(2))) if each not in ids)
    return Session(name, tuple(replace(turn, id=f"{name}.{number}") for number, turn in enumerate(turns)))


def _words(turn: Turn) -> _Words:
    return turn.role, turn.text
