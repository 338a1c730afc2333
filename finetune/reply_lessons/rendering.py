"""What was told, in the forms in which systems show it to a reply: exchanges, sentences, timelines, a summary.

Written by the code that writes it when localmem runs, so that a student learns the very prompt it will be served.
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

# The prompts of replies, by how many lessons of a hundred each has. What most systems answer with has most.
PROMPTS: Mapping[str, int] = {"agent/respond": 80, "theanine/respond": 7, "rsum/respond": 7, "creem/respond": 6}

ASSISTANT = "Assistant"
_START = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Told:
    """A turn of the past and its reply, and the same as a sentence in the third person; "" where it tells nothing.

    `about` is its topic and person: of two about the same, the later holds.
    """

    text: str
    reply: str
    sentence: str
    about: tuple[str, str] = ("", "")
    time: datetime = _START


def recalled(prompt: str, told: Sequence[Told], user: str, random: Random) -> str:
    """The text of a recall, oldest first, in a form that systems with this reply prompt give it."""
    if prompt == "theanine/respond":
        return _timelines(told)
    if prompt == "rsum/respond":
        return "\n".join(_current(told))
    if prompt == "creem/respond":
        return "\n".join([f"About {user}:", *(f"- {text}" for text in _current(told))]) if _current(told) else ""
    form = random.choices((_exchanges, _sentences, _utterances, _segments), (65, 20, 8, 7))[0]
    return form(told, user)


def served(prompt: str, memory: str, dialogue: Sequence[Message], user: str, today: datetime) -> Prompt:
    """The prompt of a reply as an agent of the starter model makes it."""
    turns = tuple(
        Turn(f"s.{n}", message.role, user if message.role == "user" else ASSISTANT, message.content, today)  # type: ignore[arg-type]  # no system message
        for n, message in enumerate(dialogue)
    )
    holder = _Holder(prompt)
    responder = Responder(
        memory=holder, llm=ScriptedLLM(lambda _: ""), speakers=Speakers(user, ASSISTANT), memory_position="system"
    )
    return responder.prepare(Session("s", turns), recall=Recall(memory)).prompt


class _Holder(NoMemory):
    """Nothing remembered, and the reply prompt of some system."""

    def __init__(self, prompt: str) -> None:
        super().__init__()
        self.response_prompt = prompt  # type: ignore[misc]  # of the class elsewhere


def _exchanges(told: Sequence[Told], user: str) -> str:
    return dated_lines(_unit(transcript(_turns(one, user)), one.time) for one in told)


def _utterances(told: Sequence[Told], user: str) -> str:
    return dated_lines(_unit(transcript(_turns(one, user)[:1]), one.time) for one in told)


def _segments(told: Sequence[Told], user: str) -> str:
    """Two exchanges in a row are one segment, of the first one's day."""
    pairs = [told[start : start + 2] for start in range(0, len(told), 2)]
    return dated_lines(_unit(transcript(turn for one in pair for turn in _turns(one, user)), pair[0].time) for pair in pairs)


def _sentences(told: Sequence[Told], _user: str) -> str:
    return dated_lines(_unit(one.sentence, one.time) for one in told if one.sentence)


def _timelines(told: Sequence[Told]) -> str:
    """One of each person's events, with the relation that leads to each."""
    events = sorted((one for one in told if one.sentence), key=lambda one: one.about[1])
    lines = []
    for _, story in groupby(events, key=lambda one: one.about[1]):
        before: set[tuple[str, str]] = set()
        shown = []
        for one in sorted(story, key=lambda one: one.time):
            step = "" if not before else "- (Changed) " if one.about in before else "- (SameTopic) "
            before.add(one.about)
            shown.append(f"{step}{day(one.time)}: {one.sentence}")
        lines.append("\n".join(shown))
    return "\n\n".join(lines)


def _current(told: Sequence[Told]) -> list[str]:
    """Sentences that still hold."""
    latest = {one.about: one.sentence for one in told if one.sentence}
    return list(latest.values())


def _turns(one: Told, user: str) -> list[Turn]:
    return [
        Turn("t.0", "user", user, one.text, one.time),
        Turn("t.1", "assistant", ASSISTANT, one.reply, one.time),
    ]


def _unit(text: str, time: datetime) -> Unit:
    return Unit("u", text, text, "told", "", "s", (), time, time)
