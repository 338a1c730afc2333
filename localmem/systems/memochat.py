"""MemoChat: a memo of topics, each with a summary and the dialogue behind it; the LLM picks the topics that help.

MemoChat (Lu et al., 2023), a baseline of Theanine (section 3.2), SeCom (section 3) and Recursively Summarizing (section
4, Figure 9). Memo writing: when the recent dialogue reaches 10 entries or 1,024 words it is cut into topics with a
summary each, and its last 2 entries begin the next recent dialogue. Retrieval: the LLM picks from the numbered topics,
the last of which always says that none fits. The reply sees topic, summary and dialogue of those picked. There is no
index.

Differs from the paper: what the rule cuts off is written into the memo when the session ends, all of it in one batch,
since the session itself is part of the reply's prompt until then. Picks are numbers in a bounded list, where the paper
parses text. Lines that no topic claims are in no memo, as in the paper; where an answer cannot be used, its piece of
dialogue is stored under one topic, its date, and a refused title or summary is replaced by the date or the first words.
A memo too long for the context is offered from the newest topic on.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pydantic import NonNegativeInt, PositiveInt

from localmem.bank import Bank
from localmem.errors import BadSettings
from localmem.grounding.gate import Gate
from localmem.llm.structured_output import (
    answer_format,
    array,
    count_fallback,
    generate_usable,
    integer,
    record,
    string,
)
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.systems import Options, Parts, System
from localmem.text.dialogue import add_names, add_units, day, line, new_unit, newest_units, recall_units, transcript
from localmem.types import Change, Completion, Prompt, Recall, Session, Turn, Unit

_WRITE = "memochat/write"
_SELECT = "memochat/select"
_TOPIC = 60  # characters; a bound of ours, as is that of a summary


class _Topic(NamedTuple):
    title: str
    summary: str
    turns: Sequence[Turn]


class MemoChatOptions(Options):
    """A piece of dialogue is full at `entries` turns or `words`; its last `kept` turns begin the next.

    A piece gives at most `topics`, with summaries of `longest` characters, and a reply sees at most `picks` of them.
    """

    entries: PositiveInt
    words: PositiveInt
    kept: NonNegativeInt
    topics: PositiveInt
    picks: PositiveInt
    longest: PositiveInt


class MemoChat(Memory):
    """One unit a topic. `fallbacks` counts unusable answers."""

    name = "memochat"

    def __init__(self, parts: Parts, options: MemoChatOptions, bank: Bank | None = None) -> None:
        if options.kept >= options.entries:
            raise BadSettings(
                f"memochat cannot keep {options.kept} of {options.entries} entries; set kept below entries"
            )
        super().__init__(bank=bank)
        self._llm = parts.llm
        self._options = options
        line_number = integer(1, options.entries)
        topic = record(topic=string(_TOPIC), summary=string(options.longest), first=line_number, last=line_number)
        self._form = answer_format(memos=array(topic, options.topics))

    def recall(self, session: Session) -> Recall:
        offered = self._offer_topics(session)
        if not offered:
            return Recall()
        prompt = render(
            _SELECT,
            form=answer_format(topics=array(integer(1, len(offered) + 1), self._options.picks)),
            topics="\n".join(f"{n}. {unit.key}" for n, unit in enumerate(offered, start=1)),
            last=len(offered) + 1,
            request=session.turns[-1].text,
        )
        (completion,) = generate_usable(self._llm, [prompt], self.fallbacks)
        return recall_units([offered[n - 1] for n in self._picks(completion) if n <= len(offered)])

    def end_session(self, session: Session) -> list[Change]:
        pieces = self._pieces(session.turns)
        prompts = [
            add_names(render(_WRITE, form=self._form, dialogue=_numbered_lines(piece)), session.turns)
            for piece in pieces
        ]
        answers = generate_usable(self._llm, prompts, self.fallbacks)
        gate = Gate(session.turns, self.fallbacks)
        units = [
            _unit(session, f"{piece_number}.{n}", topic)
            for piece_number, (piece, prompt, completion) in enumerate(zip(pieces, prompts, answers, strict=True))
            for n, topic in enumerate(self._topics(piece, prompt, completion, gate))
        ]
        return [*add_units(units), *gate.refusals]

    def _pieces(self, turns: Sequence[Turn]) -> list[Sequence[Turn]]:
        """The recent dialogue at each moment at which it is written into the memo."""
        pieces: list[Sequence[Turn]] = []
        recent: list[Turn] = []
        fresh = 0  # how many of the recent turns are in no piece yet
        for turn in turns:
            recent.append(turn)
            fresh += 1
            words = sum(len(entry.text.split()) for entry in recent)
            if len(recent) >= self._options.entries or words >= self._options.words:
                pieces.append(tuple(recent))
                recent, fresh = recent[len(recent) - self._options.kept :], 0
        return [*pieces, tuple(recent)] if fresh else pieces

    def _topics(self, piece: Sequence[Turn], prompt: Prompt, completion: Completion | None, gate: Gate) -> list[_Topic]:
        topics = [] if completion is None else _read(json.loads(completion.text), piece)
        if completion is not None and not topics:
            count_fallback(_WRITE, f"its answer {completion.text!r:.80} names no topic", self.fallbacks)
        return list(dict.fromkeys(_admit(topic, prompt, gate) for topic in topics)) or [_plain_topic(piece)]

    def _offer_topics(self, session: Session) -> list[Unit]:
        """The newest topics that fit a prompt, oldest first."""
        units = list(self.bank.live())
        (request_size,) = self._llm.count_tokens([session.turns[-1].text])
        # A quarter is reserved for the instructions.
        room = (self._llm.context_length - load(_SELECT).max_tokens - request_size) * 3 // 4
        keys = [replace(unit, text=f"{len(units)}. {unit.key}") for unit in units]
        offered = len(newest_units(keys, max(0, room), self._llm.count_tokens))
        if offered < len(units):
            count_fallback(_SELECT, f"the newest {offered} of {len(units)} topics fit", self.fallbacks)
        return units[len(units) - offered :]

    def _picks(self, completion: Completion | None) -> list[int]:
        """The numbers picked, in the order of the list."""
        if completion is None:
            return []
        match json.loads(completion.text):
            case {"topics": list(numbers)}:
                return sorted({n for n in numbers if isinstance(n, int) and n > 0})
        count_fallback(_SELECT, f"its answer {completion.text!r:.80} holds no list of topics", self.fallbacks)
        return []


def _numbered_lines(turns: Sequence[Turn]) -> str:
    return "\n".join(f"{n}. {line(turn)}" for n, turn in enumerate(turns, start=1))


def _read(value: object, piece: Sequence[Turn]) -> list[_Topic]:
    match value:
        case {"memos": list(items)}:
            return [topic for item in items for topic in _topic(item, piece)]
    return []


def _topic(item: object, piece: Sequence[Turn]) -> list[_Topic]:
    match item:
        case {"topic": str(title), "summary": str(summary), "first": int(first), "last": int(last)}:
            low, high = sorted((first, last))
            turns = piece[max(low, 1) - 1 : high]
            title, summary = " ".join(title.split()), " ".join(summary.split())
            informative = all(any(map(str.isalnum, text)) for text in (title, summary))
            return [_Topic(title, summary, turns)] if informative and turns else []
    return []


def _plain_topic(turns: Sequence[Turn]) -> _Topic:
    """A topic without a model's words: the date, and how it begins."""
    return _Topic(day(turns[0].time), turns[0].text[:_TOPIC], turns)


def _admit(topic: _Topic, prompt: Prompt, gate: Gate) -> _Topic:
    plain = _plain_topic(topic.turns)
    title, summary = gate.admit_text(prompt, topic.title), gate.admit_text(prompt, topic.summary)
    return _Topic(title or plain.title, summary or plain.summary, topic.turns)


def _unit(session: Session, place: str, topic: _Topic) -> Unit:
    head = f"{topic.title}: {topic.summary}"
    text = f"{head}\n{transcript(topic.turns)}"
    return new_unit(session, f"memo{place}", text, kind="memo", turns=topic.turns, key=head)


SYSTEM = System(
    "memochat",
    MemoChatOptions,
    MemoChat,
    "a memo of topics with their dialogue",
    "for each reply; at each session's end",
)
