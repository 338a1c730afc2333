"""Quarantine: text that tries to instruct a model is withheld from every memory system and kept for review.

It stands between the log and the systems: they are shown each session without it, whatever they make of sessions. What
is withheld becomes a hidden unit of the bank, so it is listed, released and erased like any other, and its history is
kept. Judged are texts that the user showed, replies, and what programs wrote, never the user's own words
(`text.provenance`).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, lru_cache
from itertools import islice
from typing import NamedTuple

from localmem.bank import Bank
from localmem.grounding.injections import crosses, find_signs, is_injected
from localmem.retrieval.views import SIDE_MARK
from localmem.text.provenance import DOCUMENT, FOREIGN, origin_of, split_message
from localmem.types import AddUnit, Change, Hide, Origin, Restore, Session, Turn, Unit

WITHHELD = "[…]"  # stands where a text was withheld
_BY = "quarantine:"  # before the sign, in place of who hid a unit
_RELEASED = "release:"  # before the unit, in what says that a person released it: a rebuild asks again
_EARLIER = 8  # texts of other sessions that a new one is read together with
_ECHO = 6  # words in a row that a reply repeats of what was withheld
_MOST = 400  # characters of a text that may be one half of an instruction


class Injection(NamedTuple):
    """A part of a turn that is withheld, whose words it is and the sign by which it was told."""

    text: str
    origin: Origin
    sign: str


def screen_session(session: Session, bank: Bank) -> tuple[Session, list[Change]]:
    """The session as memory systems may read it, and the changes that put aside what is withheld and new."""
    turns, changes = list[Turn](), list[Change]()
    injections: Sequence[Injection] = ()
    for turn in session.turns:
        parts = _find_injections(turn, bank, injections)
        if turn.role == "user":
            injections = parts
        text = turn.text
        for number, part in enumerate(parts):
            text = text.replace(part.text, WITHHELD)
            unit = _unit_of(session.id, turn, number, part)
            changes += put_aside(unit, part.sign, turn.time, bank) if unit.id not in bank.units else []
        turns.append(turn if text is turn.text else replace(turn, text=text))
    return (replace(session, turns=tuple(turns)), changes) if changes or turns != list(session.turns) else (session, [])


def put_aside(unit: Unit, sign: str, time: datetime, bank: Bank) -> list[Change]:
    """The changes that add a unit and hide it, unless a person has released it before."""
    hide = [] if f"{_RELEASED}{unit.id}" in bank.hidden else [Hide(unit.id, f"{_BY}{sign}", time)]
    return [AddUnit(unit, time), *hide]


def release(unit_id: str, time: datetime) -> list[Change]:
    """The changes by which a person lets a unit into memory, after a rebuild too."""
    return [Restore(unit_id, time), Hide(f"{_RELEASED}{unit_id}", "release", time)]


def withheld_signs(bank: Bank) -> dict[str, str]:
    """The sign by which each unit is withheld, by unit id, the last one first."""
    hides = [hide for hide in bank.hidden.values() if hide.by.startswith(_BY) and hide.item in bank.units]
    return {hide.item: hide.by.removeprefix(_BY) for hide in reversed(hides)}


def sign_of(text: str, origin: Origin) -> str:
    """The first sign by which a text of this origin is to be withheld, "" for none and for the user's own words."""
    if origin == "user" or not is_injected(text, by_assistant=origin == "assistant"):
        return ""
    return find_signs(text)[0]


def sign_beside(bank: Bank, text: str, origin: Origin) -> str:
    """The sign by which a text is to be withheld, by itself or read together with earlier texts."""
    return _sign_among(text, origin, lambda: _earlier_texts(bank, ""))


def _sign_among(text: str, origin: Origin, find_earlier: Callable[[], Sequence[str]]) -> str:
    if (sign := sign_of(text, origin)) or origin not in FOREIGN or len(text) > _MOST:
        return sign
    earlier = find_earlier()
    return "assembly" if any(crosses(each, text) for each in (*earlier, " ".join(earlier))) else ""


def without_injections(turn: Turn) -> Turn:
    """A turn as later prompts may quote it."""
    for part in _judge(turn.role, turn.text):
        turn = replace(turn, text=turn.text.replace(part.text, WITHHELD))
    return turn


def _find_injections(turn: Turn, bank: Bank, injections: Sequence[Injection]) -> Sequence[Injection]:
    parts = _judge(turn.role, turn.text)
    if parts or turn.role == "user":
        return parts or _joined_parts(turn, bank)
    if any(_echoes(turn.text, part.text) for part in injections):
        return [Injection(turn.text, "assistant", "echo")]
    return ()


@lru_cache(maxsize=4096)
def _judge(role: str, text: str) -> tuple[Injection, ...]:
    """What is withheld of a message: of the texts in it the paragraphs with a sign, or all where none has it alone."""
    if role == "assistant":
        sign = sign_of(text, "assistant")
        return (Injection(text, "assistant", sign),) if sign else ()
    parts = list[Injection]()
    for piece in split_message(text):
        if sign := sign_of(piece.text, piece.origin):
            paragraphs = [each.strip() for each in re.split(r"\n\s*\n", piece.text) if sign_of(each, piece.origin)]
            parts += [Injection(each, piece.origin, sign) for each in paragraphs or [piece.text]]
    return tuple(parts)


def _joined_parts(turn: Turn, bank: Bank) -> list[Injection]:
    """The texts in a turn that make an instruction together with one of an earlier turn."""
    pieces = [piece for piece in split_message(turn.text) if piece.origin != "user"]
    if not pieces:
        return []
    find_earlier = cache(lambda: _earlier_texts(bank, turn.id))  # once, however many pieces a paste has
    signs = [(piece, _sign_among(piece.text, piece.origin, find_earlier)) for piece in pieces]
    return [Injection(piece.text, piece.origin, sign) for piece, sign in signs if sign]


def _earlier_texts(bank: Bank, turn: str) -> list[str]:
    units = (unit for unit in reversed(bank.units.values()) if origin_of(unit) in FOREIGN)  # type: ignore[call-overload]
    recent = (unit.text for unit in units if turn not in unit.sources and len(unit.text) <= _MOST)
    return list(islice(recent, _EARLIER))[::-1]


def _unit_of(session: str, turn: Turn, number: int, part: Injection) -> Unit:
    name = f"{turn.id}{SIDE_MARK}{turn.role[0]}q{number}"
    kind = "answer" if turn.role == "assistant" else DOCUMENT
    time, speaker = turn.time, turn.speaker
    return Unit(name, part.text, part.text, kind, speaker, session, (turn.id,), time, time, origin=part.origin)


def _echoes(reply: str, text: str) -> bool:
    """Whether a reply repeats a run of words of a text."""
    return not set(_runs(reply)).isdisjoint(_runs(text))


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return zip(*(words[start:] for start in range(_ECHO)), strict=False)
