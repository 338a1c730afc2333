"""How turns, dates and units are written out in prompts, messages compared, and units made out of a session.

What a prompt has no room for is left out from the oldest unit on, before a backend would cut it. Does not depend on any
system.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime
from itertools import groupby, islice
from typing import TypedDict, TypeVar

from localmem.llm.base import LLM
from localmem.llm.structured_output import count_fallback
from localmem.prompts import load
from localmem.text.provenance import FOREIGN, label
from localmem.times.annotate import show_times
from localmem.types import AddUnit, Change, Hit, Prompt, Recall, Role, Session, Turn, Unit

Count = Callable[[Sequence[str]], list[int]]
"""The number of tokens of each text."""

Item = TypeVar("Item")

IN_SIGHT = 40  # turns before a dialogue's last one that need no recall: a small context holds few more
_BLOCK = 64  # texts counted in one call: however long the history, little more is counted than what fits


def day(moment: datetime) -> str:
    """A date as people write it, for example "2 March 2026"."""
    return f"{moment.day} {moment:%B %Y}"


def line(turn: Turn) -> str:
    """One turn of a transcript."""
    return f"{turn.speaker}: {turn.text}"


def normalize(role: str, text: str) -> tuple[str, str]:
    """A message as it is compared: in one Unicode form, without regard to white space."""
    return role, " ".join(unicodedata.normalize("NFC", text).split())


def without_speaker(text: str, speaker: str) -> str:
    """What a unit says, without its speaker's name and its place in a long message."""
    return re.sub(rf"^{re.escape(speaker)}(?: \(part \d+ of \d+\))?: ", "", text) if speaker else text


def transcript(turns: Iterable[Turn]) -> str:
    """Turns as lines "speaker: text"."""
    return "\n".join(line(turn) for turn in turns)


def dated_lines(units: Iterable[Unit], today: date | None = None) -> str:
    """Units as lines "date: text", in the given order; with `today`, dates stand behind the times that they name.

    A text that is neither side's words stands under a label, indented, so that no line of it looks like another memory.
    """
    return "\n".join(_dated_line(unit, show_times(unit, today) if today else unit.text) for unit in units)


def _dated_line(unit: Unit, text: str) -> str:
    lines = text.replace("\n", "\n  ") if unit.origin in FOREIGN else text
    return f"{day(unit.time)}: {label(unit)}{lines}"


# -- speakers


class PromptNames(TypedDict):
    """Two inputs of a prompt."""

    user: str
    assistant: str


def distinguish_speakers(turns: Sequence[Turn]) -> list[Turn]:
    """The turns, with the role appended to a speaker name that both sides share."""
    users, assistants = ({turn.speaker for turn in turns if turn.role == role} for role in ("user", "assistant"))
    shared = users & assistants
    return [
        replace(turn, speaker=f"{turn.speaker} ({turn.role})") if turn.speaker in shared else turn for turn in turns
    ]


def speaker_names(turns: Sequence[Turn]) -> dict[Role, str]:
    """The name of each side that spoke, as in the last of its turns."""
    return {turn.role: turn.speaker for turn in turns}


def prompt_names(turns: Sequence[Turn]) -> PromptNames:
    """The inputs `user` and `assistant` of a prompt: the names, or "the user" and "the assistant" for a silent side."""
    names = speaker_names(turns)
    return {"user": names.get("user", "the user"), "assistant": names.get("assistant", "the assistant")}


def add_names(prompt: Prompt, turns: Sequence[Turn]) -> Prompt:
    """The prompt with `prompt_names` among its inputs, for what answers from these instead of the text."""
    names = prompt_names(turns)
    return replace(prompt, inputs={**prompt.inputs, "user": names["user"], "assistant": names["assistant"]})


# -- token budgets


def split_turns(turns: Sequence[Turn], budget: int, count: Count) -> list[tuple[Turn, ...]]:
    """Consecutive runs of turns whose transcripts hold at most `budget` tokens each.

    A single turn over the budget is a run by itself; the backend's rule for long prompts then applies to it.
    """
    return pack(turns, count([line(turn) for turn in turns]), budget)


def pack(items: Sequence[Item], sizes: Sequence[int], budget: int) -> list[tuple[Item, ...]]:
    """Consecutive runs of items whose sizes add up to at most `budget`; an item over the budget is a run by itself."""
    runs: list[list[Item]] = []
    used = 0
    for item, size in zip(items, sizes, strict=True):
        if runs and used + size <= budget:
            runs[-1].append(item)
            used += size
        else:
            runs.append([item])
            used = size
    return list(map(tuple, runs))


def count_fitting(texts: Sequence[str], budget: int, count: Count) -> int:
    """How many of `texts`, counted from the first, hold at most `budget` tokens together."""
    used = 0
    for fitting, tokens in enumerate(count(texts)):
        used += tokens
        if used > budget:
            return fitting
    return len(texts)


def count_last_fitting(texts: Sequence[str], budget: int, count: Count) -> int:
    """How many of `texts`, counted from the last, hold at most `budget` tokens together."""
    fitting = 0
    for end in range(len(texts), 0, -_BLOCK):
        for size in count(texts[max(0, end - _BLOCK) : end][::-1]):
            budget -= size
            if budget < 0:
                return fitting
            fitting += 1
    return fitting


def latest_turns(turns: Sequence[Turn], budget: int, count: Count) -> Sequence[Turn]:
    """The longest run of last turns that hold at most `budget` tokens as lines; always at least the last turn."""

    def count_lines(texts: Sequence[str]) -> list[int]:
        return [size + 1 for size in count(texts)]  # and the line break

    fitting = count_last_fitting([line(turn) for turn in turns], budget, count_lines)
    return turns[len(turns) - max(fitting, 1) :]


UTTERANCE = "utterance"

_NUMBERS = re.compile(r"(\d+)")
_TEMPLATE = 64  # tokens that a chat template adds, at most


# -- from a session to units


def new_unit(
    session: Session,
    name: str,
    text: str,
    *,
    kind: str,
    turns: Sequence[Turn] | None = None,
    key: str = "",
    speaker: str = "",
    time: datetime | None = None,
) -> Unit:
    """The unit `name` of a session, from some of its turns (default: all).

    The key is the text unless another is given. `time` is that of the first turn unless given; the unit is learned at
    the end of the session.
    """
    turns = session.turns if turns is None else turns
    return Unit(
        id=f"{session.id}/{name}",
        text=text,
        key=key if key.strip() else text,
        kind=kind,
        speaker=speaker,
        session=session.id,
        sources=tuple(turn.id for turn in turns),
        time=turns[0].time if time is None else time,
        learned=session.turns[-1].time,
    )


def utterance_units(session: Session) -> list[Unit]:
    """A unit for each turn: its text with the speaker's name, its key without."""
    return [
        new_unit(session, f"t{n}", line(turn), kind=UTTERANCE, turns=[turn], key=turn.text, speaker=turn.speaker)
        for n, turn in enumerate(session.turns)
    ]


def transcript_unit(session: Session, name: str, turns: Sequence[Turn], kind: str, key: str = "") -> Unit:
    """Consecutive turns (at least one) as one unit, word for word under the speakers' names."""
    return new_unit(session, name, transcript(turns), kind=kind, turns=turns, key=key)


def exchange_units(session: Session) -> list[Unit]:
    """A unit for each exchange."""
    exchanges = enumerate(session.exchanges())
    return [transcript_unit(session, f"e{number}", exchange.turns(), "exchange") for number, exchange in exchanges]


def session_units(session: Session) -> list[Unit]:
    """One unit for the session; none for a session without turns."""
    return [transcript_unit(session, "session", session.turns, "session")] if session.turns else []


def statement_units(session: Session, texts: Iterable[str], kind: str, prefix: str | None = None) -> list[Unit]:
    """A unit for each text about the whole session, dated at its end; the session has at least one turn.

    Unit names are the prefix (default: the kind) and a number.
    """
    name = kind if prefix is None else prefix
    end = session.turns[-1].time
    return [new_unit(session, f"{name}{number}", text, kind=kind, time=end) for number, text in enumerate(texts)]


def add_units(units: Iterable[Unit]) -> list[Change]:
    """The changes that add units, each at the time it was learned."""
    return [AddUnit(unit, unit.learned) for unit in units]


# -- from units to a prompt


def newest_units(units: Sequence[Unit], budget: int, count: Count) -> list[Unit]:
    """The longest run of last units whose texts hold at most `budget` tokens together, in their order."""

    def count_lines(texts: Sequence[str]) -> list[int]:
        return count([f"{text}\n" for text in texts])

    fitting = count_last_fitting([unit.text for unit in units], budget, count_lines)
    return list(units[len(units) - fitting :])


def history_text(units: Iterable[Unit]) -> str:
    """Utterances in the given order, each session's under its date, with an empty line between sessions."""
    sessions = (list(utterances) for _, utterances in groupby(units, key=lambda unit: unit.session))
    return "\n\n".join("\n".join([day(units[0].time), *(unit.text for unit in units)]) for units in sessions)


def history_budget(llm: LLM, session: Session, reply_prompt: str, other: str = "") -> int:
    """Tokens available for the past in the reply's prompt, next to the dialogue so far, the answer and `other` text.

    A quarter of what remains is reserved for instructions and template.
    """
    used = sum(llm.count_tokens([transcript(session.turns), other]))
    available = llm.context_length - load(reply_prompt).max_tokens - used
    return max(0, available * 3 // 4)


def free_tokens(llm: LLM, *bare: Prompt) -> int:
    """Tokens available in each of the prompts for the input that they were rendered without (here left empty).

    That is the context less the rendered text, the answer and the chat template.
    """
    sizes = iter(llm.count_tokens([message.content for prompt in bare for message in prompt.messages]))
    used = [sum(islice(sizes, len(prompt.messages))) + prompt.max_tokens for prompt in bare]
    return llm.context_length - max(used) - _TEMPLATE


def select_fitting(
    llm: LLM, session: Session, reply_prompt: str, units: Sequence[Unit], fallbacks: Counter[str]
) -> list[Unit]:
    """The newest units that fit next to the dialogue when each is written with its date; counts when some do not."""
    lines = [replace(unit, text=dated_lines([unit])) for unit in units]
    fitting = len(newest_units(lines, history_budget(llm, session, reply_prompt), llm.count_tokens))
    if fitting < len(units):
        count_fallback(reply_prompt, f"the newest {fitting} of {len(units)} memories fit its context", fallbacks)
    return list(units[len(units) - fitting :])


def recall_units(units: Sequence[Unit]) -> Recall:
    """A recall of these units, shown with their dates in the given order."""
    return recall_hits([Hit(unit, 0.0) for unit in units])


def recall_hits(hits: Sequence[Hit], today: date | None = None) -> Recall:
    """A recall of these hits, shown as `dated_lines` in the given order."""
    return Recall(text=dated_lines((hit.unit for hit in hits), today), hits=tuple(hits))


def show_recall(recall: Recall, today: date) -> Recall:
    """The recall with dates behind the times that its units name, wherever its text quotes a unit word for word."""
    text = recall.text
    for unit in (hit.unit for hit in recall.hits):
        dated = show_times(unit, today)
        if dated != unit.text:
            text = re.sub(rf"{re.escape(unit.text)}(?=\n|\Z)", dated.replace("\\", r"\\"), text)
    return replace(recall, text=text)


def by_time(hits: Iterable[Hit]) -> list[Hit]:
    """The hits in the order of their units' times, and of one time in the order of their turns."""
    return sorted(hits, key=lambda hit: (hit.unit.time, hit.unit.session, _position(hit.unit)))


def _position(unit: Unit) -> list[tuple[int, str]]:
    """Compares units of one session: numbers in their last turn's id and in their own by value, not by digits."""
    parts = _NUMBERS.split(f"{unit.sources[-1] if unit.sources else ''} {unit.id}")
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
