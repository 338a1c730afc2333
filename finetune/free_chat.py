"""Replies of free chat, from Synthetic-Persona-Chat: they show whether a student still talks as people do.

The prompts are those of replies when localmem runs; `localmem eval text` measures the perplexity. Uses no model.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random

from localmem.chat.responder import Responder, Speakers
from localmem.evaluation.datasets import persona_chat
from localmem.evaluation.episodes import Probe
from localmem.files import write_jsonl
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.baselines import NoMemory
from localmem.text.dialogue import day
from localmem.types import Message, Prompt, Recall, Session, Turn

_SPEAKERS = Speakers()
_ANSWERING = "User 2"
_PLACES = (0, 2, 4)  # replies of user 2 that are taken from a chat: early ones and later ones
_LEARNED, _TODAY = datetime(2026, 4, 12, tzinfo=UTC), datetime(2026, 5, 4, 18, tzinfo=UTC)


def write_replies(path: Path, out: Path, count: int) -> None:
    """Write up to `count` predictions that equal their reference, from shuffled chats. Raises BadInput."""
    write_jsonl(out, make_replies(path, count))


def make_replies(path: Path, count: int) -> Iterator[dict[str, object]]:
    """The lines of such a file; every second prompt has the persona of user 1 as its memory."""
    episodes = list(persona_chat.read(path).episodes)
    Random(0).shuffle(episodes)  # noqa: S311  # not used for security
    probes = ((episode, probe) for episode in episodes for probe in _select_probes(episode.probes))
    for number, (episode, probe) in enumerate(islice(probes, count)):
        facts = [unit.text for unit in episode.memories if unit.speaker != _ANSWERING] if number % 2 == 0 else []
        memory = "\n".join(f"{day(_LEARNED)}: {text}" for text in facts)
        dialogue = [*(Message(turn.role, turn.text) for turn in probe.dialogue), Message("user", probe.question)]
        prompt = _prompt(memory, dialogue)
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        yield {"id": probe.id, "prediction": probe.answer, "reference": probe.answer, "prompt": messages}


def _select_probes(probes: Sequence[Probe]) -> list[Probe]:
    replies = [probe for probe in probes if probe.speaker == _ANSWERING and probe.answer]
    return [replies[place] for place in _PLACES if place < len(replies)]


def _prompt(memory: str, dialogue: Sequence[Message]) -> Prompt:
    """The prompt of a reply as an agent of the starter model makes it."""
    names = _SPEAKERS._asdict()
    turns = tuple(
        Turn(f"s.{n}", message.role, names[message.role], message.content, _TODAY)  # type: ignore[arg-type]  # no system message
        for n, message in enumerate(dialogue)
    )
    memoryless, llm = NoMemory(), ScriptedLLM(lambda _: "")
    memoryless.response_prompt = "agent/respond"
    responder = Responder(memory=memoryless, llm=llm, speakers=_SPEAKERS, memory_position="system")
    return responder.prepare(Session("s", turns), recall=Recall(memory)).prompt
