"""Replies of chats between strangers as `localmem eval text` reads them: does a student still talk as people do?

They stand after the prompt that a reply gets when localmem runs, every second one with what user 1 is like as its
memory. Knows no model. `python -m finetune.free_chat FILE OUT [COUNT]` reads Synthetic-Persona-Chat.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random

import click

from finetune.program import FILE, PLACE, run_program
from finetune.reply_lessons.rendering import served
from localmem.evaluation.datasets import persona_chat
from localmem.evaluation.episodes import Episode, Probe
from localmem.text.dialogue import day
from localmem.types import Message

_ANSWERING = "User 2"
_PLACES = (0, 2, 4)  # which of a chat's replies by user 2 are taken
_TOLD, _TODAY = datetime(2026, 4, 12, tzinfo=UTC), datetime(2026, 5, 4, 18, tzinfo=UTC)
COUNT = 120


def replies(path: Path, count: int = COUNT, seed: int = 0) -> Iterator[dict[str, object]]:
    """Up to `count` predictions that are the reference itself, of chats that are drawn by seed. Raises BadInput."""
    episodes = list(persona_chat.read(path).episodes)
    Random(seed).shuffle(episodes)  # noqa: S311  # no secret
    taken = ((episode, probe) for episode in episodes for probe in _taken(episode))
    for number, (episode, probe) in enumerate(islice(taken, count)):
        prompt = served("agent/respond", _memory(episode) if number % 2 == 0 else "", _dialogue(probe), "User", _TODAY)
        shown = [{"role": one.role, "content": one.content} for one in prompt.messages]
        yield {"id": probe.id, "prediction": probe.answer, "reference": probe.answer, "prompt": shown}


def _taken(episode: Episode) -> list[Probe]:
    """Early ones and later ones."""
    replied = [probe for probe in episode.probes if probe.speaker == _ANSWERING and probe.answer]
    return [replied[place] for place in _PLACES if place < len(replied)]


def _dialogue(probe: Probe) -> list[Message]:
    said = [Message(turn.role, turn.text) for turn in probe.dialogue]
    return [*said, Message("user", probe.question)]


def _memory(episode: Episode) -> str:
    known = [unit.text for unit in episode.memories if unit.speaker != _ANSWERING]
    return "\n".join(f"{day(_TOLD)}: {text}" for text in known)


def main(path: Path, out: Path, count: int = COUNT) -> None:
    """Writes a line for each."""
    lines = [json.dumps(one, ensure_ascii=False) for one in replies(path, count)]
    out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    run_program(
        main,
        click.Argument(["path"], type=FILE, metavar="FILE"),
        click.Argument(["out"], type=PLACE),
        click.Argument(["count"], type=click.IntRange(1), default=COUNT),
    )
