"""Rendering of past statements as systems show them to a reply: exchanges, sentences, timelines, a summary.

Uses the code that renders them when localmem runs, so that a student learns the very prompts it will be served.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from random import Random

from localmem.chat.responder import Responder, Speakers
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.none import NoMemory
from localmem.text.dialogue import dated_lines, day, transcript
from localmem.types import Message, Prompt, Recall, Session, Turn, Unit

# Share of each reply prompt among a hundred lessons; the prompt of most systems has the largest.
PROMPTS: Mapping[str, int] = {"agent/respond": 80, "theanine/respond": 7, "rsum/respond": 7, "creem/respond": 6}

ASSISTANT = "Assistant"
_UNDATED = datetime(2000, 1, 1, tzinfo=UTC)


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
    form = random.choices((_exchanges, _sentences, _utterances, _segments), (65, 20, 8, 7))[0]
    return form(statements, user)


def reply_prompt(name: str, memory: str, dialogue: Sequence[Message], user: str, today: datetime) -> Prompt:
    """The prompt of a reply as an agent of the starter model makes it."""
    turns = tuple(
        Turn(f"s.{n}", message.role, user if message.role == "user" else ASSISTANT, message.content, today)  # type: ignore[arg-type]  # no system message
        for n, message in enumerate(dialogue)
    )
    responder = Responder(
        memory=_EmptyMemory(name),
        llm=ScriptedLLM(lambda _: ""),
        speakers=Speakers(user, ASSISTANT),
        memory_position="system",
    )
    return responder.prepare(Session("s", turns), recall=Recall(memory)).prompt


class _EmptyMemory(NoMemory):
    """An empty memory with the reply prompt of some system."""

    def __init__(self, prompt: str) -> None:
        super().__init__()
        self.response_prompt = prompt


def _exchanges(statements: Sequence[Statement], user: str) -> str:
    return dated_lines(_unit(transcript(_turns(statement, user)), statement.time) for statement in statements)


def _utterances(statements: Sequence[Statement], user: str) -> str:
    return dated_lines(_unit(transcript(_turns(statement, user)[:1]), statement.time) for statement in statements)


def _segments(statements: Sequence[Statement], user: str) -> str:
    """Two consecutive exchanges form a segment with the date of the first."""
    pairs = [statements[start : start + 2] for start in range(0, len(statements), 2)]
    return dated_lines(
        _unit(transcript(turn for statement in pair for turn in _turns(statement, user)), pair[0].time)
        for pair in pairs
    )


def _sentences(statements: Sequence[Statement], _user: str) -> str:
    return dated_lines(_unit(statement.sentence, statement.time) for statement in statements if statement.sentence)


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
    latest = {statement.about: statement.sentence for statement in statements if statement.sentence}
    return list(latest.values())


def _turns(statement: Statement, user: str) -> list[Turn]:
    return [
        Turn("t.0", "user", user, statement.text, statement.time),
        Turn("t.1", "assistant", ASSISTANT, statement.reply, statement.time),
    ]


def _unit(text: str, time: datetime) -> Unit:
    return Unit("u", text, text, "statement", "", "s", (), time, time)
