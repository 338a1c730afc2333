"""Replies from chats between strangers, for `localmem eval text`: does a student still talk as people do?

Each reply follows the prompt that localmem would use; every second prompt has the persona of user 1 as its memory.
Reads Synthetic-Persona-Chat. Does not use any model.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random

from finetune.reply_lessons.rendering import reply_prompt
from localmem.evaluation.datasets import persona_chat
from localmem.evaluation.episodes import Episode, Probe
from localmem.files import write_jsonl
from localmem.text.dialogue import day
from localmem.types import Message

_ANSWERING = "User 2"
_PLACES = (0, 2, 4)  # replies of user 2 that are taken from a chat: early ones and later ones
_LEARNED, _TODAY = datetime(2026, 4, 12, tzinfo=UTC), datetime(2026, 5, 4, 18, tzinfo=UTC)


def write_replies(path: Path, out: Path, count: int, seed: int = 0) -> None:
    """Write up to `count` predictions that equal their reference, from chats shuffled by seed. Raises BadInput."""
    write_jsonl(out, make_replies(path, count, seed))


def make_replies(path: Path, count: int, seed: int = 0) -> Iterator[dict[str, object]]:
    """The lines of such a file."""
    episodes = list(persona_chat.read(path).episodes)
    Random(seed).shuffle(episodes)  # noqa: S311  # not used for security
    probes = ((episode, probe) for episode in episodes for probe in _select_probes(episode))
    for number, (episode, probe) in enumerate(islice(probes, count)):
        memory = _memory(episode) if number % 2 == 0 else ""
        prompt = reply_prompt("agent/respond", memory, _dialogue(probe), "User", _TODAY)
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        yield {"id": probe.id, "prediction": probe.answer, "reference": probe.answer, "prompt": messages}


def _select_probes(episode: Episode) -> list[Probe]:
    replies = [probe for probe in episode.probes if probe.speaker == _ANSWERING and probe.answer]
    return [replies[place] for place in _PLACES if place < len(replies)]


def _dialogue(probe: Probe) -> list[Message]:
    return [*(Message(turn.role, turn.text) for turn in probe.dialogue), Message("user", probe.question)]


def _memory(episode: Episode) -> str:
    facts = [unit.text for unit in episode.memories if unit.speaker != _ANSWERING]
    return "\n".join(f"{day(_LEARNED)}: {text}" for text in facts)
