"""DuLeMon (Xu et al., Findings of ACL 2022): Chinese chats in which a bot knows personas of both sides beforehand.

Source: PaddlePaddle/Research, NLP/ACL2022-DuLeMon (DuLeMon.zip), one JSON record a line. Licence: none is stated for
the data. Words are parted by spaces as published, which is what measures over words need.

A record is an episode of one session: `bot_persona` and `user_said_persona` are given memories, `user_no_said_persona`
is what the user has not told yet, so it is only in the gold memory of the session. Each of the bot's turns is asked for
before the session is read; a persona that it rests on (the mark after a tab, as in "U1") is its evidence.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.dialogues import UNDATED, memory, next_probes, session
from localmem.evaluation.datasets.files import Record, file_sha256, read_records
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, counted, half_of
from localmem.types import Unit

_BOT, _USER = "Bot", "Usr"
_SAID = re.compile(r"(Bot|Usr)\s*[:：]\s*(.*)", re.DOTALL)
_PERSONA = re.compile(r"([BU]\d+)\s*[:：]\s*(.*)", re.DOTALL)


class _Chat(Record):
    bot_persona: list[str] = Field(default_factory=list)
    user_said_persona: list[str] = Field(default_factory=list)
    user_no_said_persona: list[str] = Field(default_factory=list)
    conversation: list[str] = Field(min_length=1)


class _Said(NamedTuple):
    speaker: str
    text: str
    rests_on: tuple[str, ...]


def read(path: Path) -> Dataset:
    """Every record as an episode. Raises BadInput with file and line."""
    oddities: Counter[str] = Counter()
    episodes = tuple(
        _episode(place, f"c{number}", item, oddities)
        for number, (place, item) in enumerate(read_records(path, _Chat), start=1)
    )
    return Dataset("dulemon", file_sha256(path), episodes, counted(oddities))


def _episode(place: str, name: str, item: _Chat, oddities: Counter[str]) -> Episode:
    known = tuple(_units(place, name, [*item.bot_persona, *item.user_said_persona]))
    untold = tuple(_units(place, name, item.user_no_said_persona))
    ids = {unit.id for unit in known}
    said = [_said(place, line) for line in item.conversation]
    held = session(f"{name}/1", ((one.speaker, one.text) for one in said), _USER, UNDATED)
    evidence: dict[str, tuple[str, ...]] = {}
    for turn, one in zip(held.turns, said, strict=True):
        named = [f"{name}/{key}" for key in one.rests_on]
        evidence[turn.id] = tuple(key for key in named if key in ids)
        oddities["marks of personas that are not given, dropped"] += len(named) - len(evidence[turn.id])
    return Episode(
        id=name,
        half=half_of(name),
        sessions=(held,),
        probes=next_probes(
            held.id, held.turns, kind="session 1", after=BEFORE_ALL, repliers=(_BOT,), evidence=evidence
        ),
        memories=known,
        golds={held.id: known + untold},
    )


def _said(place: str, line: str) -> _Said:
    text, *marks = line.split("\t")
    match = _SAID.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"{place}: conversation: {line!r:.60} does not begin with Usr: or Bot:; give DuLeMon's own file")
    return _Said(match[1], match[2], tuple(key for mark in marks for key in re.findall(r"[BU]\d+", mark)))


def _units(place: str, name: str, lines: Sequence[str]) -> Iterator[Unit]:
    for line in lines:
        match = _PERSONA.fullmatch(line.strip())
        if match is None:
            raise BadInput(f"{place}: the persona {line!r:.60} is not written like 'U1: ...'; give DuLeMon's own file")
        speaker = _BOT if match[1].startswith("B") else _USER
        yield memory(f"{name}/{match[1]}", match[2], speaker, f"{name}/0", UNDATED)
