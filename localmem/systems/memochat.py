"""MemoChat: a memo of topics, each with a summary and the dialogue behind it; the LLM picks the topics that help.

MemoChat (Lu et al., 2023), a baseline of Theanine (section 3.2), SeCom (section 3) and Recursively Summarizing (section
4, Figure 9). Memo writing: when the recent dialogue reaches 10 entries or 1,024 words it is cut into topics with a
summary each, and its last 2 entries go on as the recent dialogue. Retrieval: the LLM picks from the numbered topics,
of which the last always says that none fits. The reply sees topic, summary and dialogue of those picked. Knows nothing
of search: there is no index.

Differs from the paper: what the rule cuts off is written into the memo when the session ends, all of it in one batch,
since the session itself stands in the reply's prompt until then. Picks are numbers in a bounded list, where the paper
parses text. Lines that no topic claims are in no memo, as in the paper; where an answer cannot be used, its piece of
dialogue is kept under one topic, its date. A memo too long for the context is offered from the newest topic on.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from localmem.bank import Bank
from localmem.errors import BadSettings
from localmem.llm.base import LLM
from localmem.llm.schemas import answer, many, number, record, text
from localmem.llm.structured_output import unusable, usable
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.text.dialogue import dated, day, line, transcript
from localmem.text.history import newest
from localmem.types import AddUnit, Change, Completion, Hit, Recall, Session, Turn, Unit

_WRITE = "memochat/write"
_SELECT = "memochat/select"
_TOPIC = 60  # characters; a bound of ours, as is that of a summary


class _Topic(NamedTuple):
    title: str
    summary: str
    turns: Sequence[Turn]


class MemoChat(Memory):
    """One unit a topic. A piece of dialogue is full at `entries` turns or `words`; its last `kept` begin the next.

    A piece gives at most `topics` of them, and a reply sees at most `picks`. `fallbacks` counts unusable answers.
    """

    name = "memochat"

    def __init__(
        self,
        *,
        llm: LLM,
        entries: int,
        words: int,
        kept: int,
        topics: int,
        picks: int,
        longest: int,
        bank: Bank | None = None,
    ) -> None:
        if kept >= entries:
            raise BadSettings(f"memochat cannot keep {kept} of {entries} entries; set kept below entries")
        super().__init__(bank=bank)
        self._llm = llm
        self._entries = entries
        self._words = words
        self._kept = kept
        self._picks = picks
        line_number = number(1, entries)
        topic = record(topic=text(_TOPIC), summary=text(longest), first=line_number, last=line_number)
        self._form = answer(memos=many(topic, topics))
        self.fallbacks: Counter[str] = Counter()

    def recall(self, session: Session) -> Recall:
        offered = self._offered(session)
        if not offered:
            return Recall()
        listed = [f"{n}. {unit.key}" for n, unit in enumerate(offered, start=1)]
        prompt = render(
            _SELECT,
            form=answer(topics=many(number(1, len(offered) + 1), self._picks)),
            topics="\n".join(listed),
            last=len(offered) + 1,
            request=session.turns[-1].text,
        )
        (completion,) = usable(self._llm, [prompt], self.fallbacks)
        picked = [offered[n - 1] for n in self._picked(completion) if n <= len(offered)]
        return Recall(dated(picked), tuple(Hit(unit, 0.0) for unit in picked))

    def end_session(self, session: Session) -> list[Change]:
        pieces = self._pieces(session.turns)
        prompts = [render(_WRITE, form=self._form, dialogue=_numbered(piece)) for piece in pieces]
        answers = usable(self._llm, prompts, self.fallbacks)
        return [
            AddUnit(_unit(session, f"{at}.{n}", topic), session.turns[-1].time)
            for at, (piece, completion) in enumerate(zip(pieces, answers, strict=True))
            for n, topic in enumerate(self._topics(piece, completion))
        ]

    def _pieces(self, turns: Sequence[Turn]) -> list[Sequence[Turn]]:
        """The recent dialogue at each time that it is written into the memo."""
        pieces: list[Sequence[Turn]] = []
        recent: list[Turn] = []
        fresh = 0  # of the recent turns those that no memo has seen
        for turn in turns:
            recent.append(turn)
            fresh += 1
            full = len(recent) >= self._entries or sum(len(said.text.split()) for said in recent) >= self._words
            if full:
                pieces.append(tuple(recent))
                recent, fresh = recent[len(recent) - self._kept :], 0
        return [*pieces, tuple(recent)] if fresh else pieces

    def _topics(self, piece: Sequence[Turn], completion: Completion | None) -> list[_Topic]:
        found = [] if completion is None else _read(json.loads(completion.text), piece)
        if completion is not None and not found:
            unusable(_WRITE, f"its answer {completion.text!r:.80} names no topic", self.fallbacks)
        return found or [_Topic(day(piece[0].time), piece[0].text[:_TOPIC], piece)]

    def _offered(self, session: Session) -> list[Unit]:
        """The newest topics that fit a prompt, oldest first."""
        held = list(self.bank.live())
        (asked,) = self._llm.count_tokens([session.turns[-1].text])
        room = (self._llm.context_length - load(_SELECT).max_tokens - asked) * 3 // 4  # the rest is for instructions
        keys = [replace(unit, text=f"{len(held)}. {unit.key}") for unit in held]
        offered = len(newest(keys, max(0, room), self._llm.count_tokens))
        if offered < len(held):
            unusable(_SELECT, f"the newest {offered} of {len(held)} topics fit", self.fallbacks)
        return held[len(held) - offered :]

    def _picked(self, completion: Completion | None) -> list[int]:
        """The numbers picked, in the order of the list."""
        if completion is None:
            return []
        match json.loads(completion.text):
            case {"topics": list(numbers)}:
                return sorted({n for n in numbers if isinstance(n, int) and n > 0})
        unusable(_SELECT, f"its answer {completion.text!r:.80} holds no list of topics", self.fallbacks)
        return []


def _numbered(turns: Sequence[Turn]) -> str:
    return "\n".join(f"{n}. {line(turn)}" for n, turn in enumerate(turns, start=1))


def _read(value: object, piece: Sequence[Turn]) -> list[_Topic]:
    """The topics of an answer that hold a line of the piece."""
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
            said = all(any(map(str.isalnum, text)) for text in (title, summary))
            return [_Topic(title, summary, turns)] if said and turns else []
    return []


def _unit(session: Session, place: str, topic: _Topic) -> Unit:
    head = f"{topic.title}: {topic.summary}"
    return Unit(
        id=f"{session.id}/memo{place}",
        text=f"{head}\n{transcript(topic.turns)}",
        key=head,
        kind="memo",
        speaker="",
        session=session.id,
        sources=tuple(turn.id for turn in topic.turns),
        time=topic.turns[0].time,
        learned=session.turns[-1].time,
    )
