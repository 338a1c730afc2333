"""Prompts of replies: past statements rendered as systems show them, and chats between strangers.

Uses the code that renders them when localmem runs, so that a student learns the very prompts it will be served. The
chats, from Synthetic-Persona-Chat, show with `localmem eval text` whether a student still talks as people do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path
from random import Random

from localmem.chat.responder import Responder, Speakers
from localmem.evaluation.datasets import persona_chat
from localmem.evaluation.episodes import Probe
from localmem.files import write_jsonl
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.baselines import NoMemory
from localmem.text.dialogue import dated_lines, day, transcript
from localmem.types import Message, Prompt, Recall, Session, Turn, Unit

# Share of each reply prompt among a hundred lessons; the prompt of most systems has the largest.
PROMPTS: Mapping[str, int] = {"agent/respond": 80, "theanine/respond": 7, "rsum/respond": 7, "creem/respond": 6}

ASSISTANT = "Assistant"
_UNDATED = datetime(2000, 1, 1, tzinfo=UTC)
_ANSWERING = "User 2"
_PLACES = (0, 2, 4)  # replies of user 2 that are taken from a chat: early ones and later ones
_LEARNED, _TODAY = datetime(2026, 4, 12, tzinfo=UTC), datetime(2026, 5, 4, 18, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Statement:
    """A past turn of the user with its reply, and its content as a sentence in the third person, "" for small talk.

    `about` is its topic and person: of two statements about the same, the later one holds.
    """

    text: str
    reply: str
    sentence: str
    about: tuple[str, str] = ("", "")
    time: datetime = _UNDATED


def render_memory(prompt: str, statements: Sequence[Statement], user: str, random: Random) -> str:
    """The text of a recall, oldest first, in a form used by systems with this reply prompt."""
    if prompt == "theanine/respond":
        return _timelines(statements)
    if prompt == "rsum/respond":
        return "\n".join(_current_sentences(statements))
    if prompt == "creem/respond":
        sentences = _current_sentences(statements)
        return "\n".join([f"About {user}:", *(f"- {text}" for text in sentences)]) if sentences else ""
    form = random.choices(("exchanges", "sentences", "utterances", "segments"), (65, 20, 8, 7))[0]
    if form == "sentences":
        return dated_lines(_unit(statement.sentence, statement.time) for statement in statements if statement.sentence)
    size, turns = 2 if form == "segments" else 1, 1 if form == "utterances" else 2
    return _render_turns(statements, user, size, turns)


def reply_prompt(name: str, memory: str, dialogue: Sequence[Message], user: str, today: datetime) -> Prompt:
    """The prompt of a reply as an agent of the starter model makes it."""
    turns = tuple(
        Turn(f"s.{n}", message.role, user if message.role == "user" else ASSISTANT, message.content, today)  # type: ignore[arg-type]  # no system message
        for n, message in enumerate(dialogue)
    )
    empty = NoMemory()
    empty.response_prompt = name
    llm, speakers = ScriptedLLM(lambda _: ""), Speakers(user, ASSISTANT)
    responder = Responder(memory=empty, llm=llm, speakers=speakers, memory_position="system")
    return responder.prepare(Session("s", turns), recall=Recall(memory)).prompt


def write_replies(path: Path, out: Path, count: int, seed: int = 0) -> None:
    """Write up to `count` predictions that equal their reference, from chats shuffled by seed. Raises BadInput."""
    write_jsonl(out, make_replies(path, count, seed))


def make_replies(path: Path, count: int, seed: int = 0) -> Iterator[dict[str, object]]:
    """The lines of such a file; every second prompt has the persona of user 1 as its memory."""
    episodes = list(persona_chat.read(path).episodes)
    Random(seed).shuffle(episodes)  # noqa: S311  # not used for security
    probes = ((episode, probe) for episode in episodes for probe in _select_probes(episode.probes))
    for number, (episode, probe) in enumerate(islice(probes, count)):
        facts = [unit.text for unit in episode.memories if unit.speaker != _ANSWERING] if number % 2 == 0 else []
        memory = "\n".join(f"{day(_LEARNED)}: {text}" for text in facts)
        dialogue = [*(Message(turn.role, turn.text) for turn in probe.dialogue), Message("user", probe.question)]
        prompt = reply_prompt("agent/respond", memory, dialogue, "User", _TODAY)
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        yield {"id": probe.id, "prediction": probe.answer, "reference": probe.answer, "prompt": messages}


def _select_probes(probes: Sequence[Probe]) -> list[Probe]:
    replies = [probe for probe in probes if probe.speaker == _ANSWERING and probe.answer]
    return [replies[place] for place in _PLACES if place < len(replies)]


def _render_turns(statements: Sequence[Statement], user: str, size: int, count: int) -> str:
    """The first `count` turns of each statement; `size` consecutive ones share the date of the first."""
    groups = [statements[start : start + size] for start in range(0, len(statements), size)]
    return dated_lines(
        _unit(transcript(turn for statement in group for turn in _turns(statement, user)[:count]), group[0].time)
        for group in groups
    )


def _timelines(statements: Sequence[Statement]) -> str:
    """A timeline for each person, with the relation that leads to each event."""
    events = sorted((statement for statement in statements if statement.sentence), key=lambda event: event.about[1])
    timelines = []
    for _, story in groupby(events, key=lambda event: event.about[1]):
        earlier: set[tuple[str, str]] = set()
        lines = []
        for event in sorted(story, key=lambda event: event.time):
            step = "" if not earlier else "- (Changed) " if event.about in earlier else "- (SameTopic) "
            earlier.add(event.about)
            lines.append(f"{step}{day(event.time)}: {event.sentence}")
        timelines.append("\n".join(lines))
    return "\n\n".join(timelines)


def _current_sentences(statements: Sequence[Statement]) -> list[str]:
    """The sentences that still hold."""
    return list({statement.about: statement.sentence for statement in statements if statement.sentence}.values())


def _turns(statement: Statement, user: str) -> list[Turn]:
    return [
        Turn("t.0", "user", user, statement.text, statement.time),
        Turn("t.1", "assistant", ASSISTANT, statement.reply, statement.time),
    ]


def _unit(text: str, time: datetime) -> Unit:
    return Unit("u", text, text, "statement", "", "s", (), time, time)
