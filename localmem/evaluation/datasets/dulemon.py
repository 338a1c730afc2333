"""DuLeMon (Xu et al., Findings of ACL 2022): Chinese chats in which a bot knows personas of both sides beforehand.

Source: PaddlePaddle/Research, NLP/ACL2022-DuLeMon (DuLeMon.zip), one JSON record per line. Licence: none is stated for
the data. Words are separated by spaces as published, which measures over words need.

A record is an episode of one session: `bot_persona` and `user_said_persona` are given memories; `user_no_said_persona`
is what the user has not yet told, so it is only in the gold memory of the session. Each of the bot's turns is a probe
before the session is read; a persona that it rests on (the mark after a tab, as in "U1") is its evidence.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import Reading, Record
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, half_of
from localmem.types import Unit

_BOT, _USER = "Bot", "Usr"
_UTTERANCE = re.compile(r"(Bot|Usr)\s*[:：]\s*(.*)", re.DOTALL)
_PERSONA = re.compile(r"([BU]\d+)\s*[:：]\s*(.*)", re.DOTALL)


class _Chat(Record):
    bot_persona: list[str] = Field(default_factory=list)
    user_said_persona: list[str] = Field(default_factory=list)
    user_no_said_persona: list[str] = Field(default_factory=list)
    conversation: list[str] = Field(min_length=1)


def read(path: Path) -> Dataset:
    """One episode per record. Raises BadInput with file and line."""
    return readers.read_episodes("dulemon", path, _Chat, _episode)


def _episode(place: str, record: _Chat, reading: Reading) -> Episode:
    name = f"c{reading.records}"
    memories = tuple(_units(place, name, [*record.bot_persona, *record.user_said_persona]))
    later = tuple(_units(place, name, record.user_no_said_persona))
    ids = {unit.id for unit in memories}
    lines = [_split_line(place, line) for line in record.conversation]
    utterances = ((speaker, text) for speaker, text, _ in lines)
    session = readers.build_session(f"{name}/1", utterances, _USER, readers.UNDATED)
    evidence: dict[str, tuple[str, ...]] = {}
    for turn, (_, _, personas) in zip(session.turns, lines, strict=True):
        marks = [f"{name}/{key}" for key in personas]
        evidence[turn.id] = tuple(key for key in marks if key in ids)
        reading.oddities["marks of personas that are not given, dropped"] += len(marks) - len(evidence[turn.id])
    probes = readers.next_turn_probes(
        session.id, session.turns, kind="session 1", after=BEFORE_ALL, repliers=(_BOT,), evidence=evidence
    )
    return Episode(name, half_of(name), (session,), probes, memories, golds={session.id: memories + later})


def _split_line(place: str, line: str) -> tuple[str, str, list[str]]:
    """The speaker, the text, and the personas that it rests on."""
    text, *marks = line.split("\t")
    match = _UTTERANCE.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"{place}: conversation: {line!r:.60} does not begin with Usr: or Bot:; use DuLeMon's own file")
    return match[1], match[2], re.findall(r"[BU]\d+", " ".join(marks))


def _units(place: str, name: str, lines: Sequence[str]) -> Iterator[Unit]:
    for line in lines:
        match = _PERSONA.fullmatch(line.strip())
        if match is None:
            raise BadInput(f"{place}: the persona {line!r:.60} does not have the form 'U1: ...'; use DuLeMon's file")
        speaker = _BOT if match[1].startswith("B") else _USER
        yield readers.memory_unit(f"{name}/{match[1]}", match[2], speaker, f"{name}/0", readers.UNDATED)
