"""What a reply rests on: the memories recalled for it, its sentences that rest on each, and on none.

The page shows it beside the reply, and again when the dialogue is opened while the server still runs.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date

from localmem.bank import Bank
from localmem.grounding.support import read_statements
from localmem.server.page.memory_views import split_speaker
from localmem.server.page.rendering import render_text
from localmem.times.annotate import show_times
from localmem.turns.utterances import split_sentences
from localmem.types import Hit, Reply, Unit, Working

_QUOTED = re.compile(r'said: "(.+?)"(?=\n|$)')  # how a quotation of memory ends a line
_LEFT_OUT = "…"  # stands in a quotation for what is left out


@dataclass(frozen=True, slots=True)
class Evidence:
    """A recalled memory beside a reply; `number` is its mark, `is_quoted` says that the reply repeats its words.

    `statements` are the sentences of the reply that rest on it.
    """

    number: int
    unit: Unit
    speaker: str
    text: str
    score: float
    is_quoted: bool
    statements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A sentence of a reply with the `number` of the memory it rests on, or with what no memory holds."""

    text: str
    number: int | None
    unsupported: str


@dataclass(frozen=True, slots=True)
class Support:
    """What stands beside a reply, whose words are `text`.

    `quotes_chat` says that it repeats words of this chat, and no memory was recalled.
    """

    text: str
    evidence: Sequence[Evidence]
    marks: Sequence[Mark]
    workings: Sequence[Working]
    trimmed: int
    quotes_chat: bool

    @property
    def statements(self) -> list[dict[str, object]]:
        """The marks as the script of the page reads them."""
        return [asdict(mark) for mark in self.marks]

    def render(self, bank: Bank) -> str:
        """As HTML, in which every text is escaped."""
        return render_text(
            "evidence.html",
            evidence=sorted(self.evidence, key=lambda item: not (item.is_quoted or item.statements)),
            doubtful=[mark for mark in self.marks if mark.unsupported],
            workings=self.workings,
            listed=set(bank.units),
            trimmed=self.trimmed,
            quotes_chat=self.quotes_chat,
        )

    def within(self, bank: Bank) -> "Support | None":
        """Without memories that are no longer in use, and then without what was worked out; None if none is left."""
        current = [item for item in self.evidence if bank.is_live(item.unit.id)]
        if len(current) == len(self.evidence):
            return self
        numbers = {item.number for item in current}
        marks = [mark for mark in self.marks if mark.number in numbers or mark.unsupported]
        return replace(self, evidence=current, marks=marks, workings=()) if current else None


def support_reply(reply: Reply) -> Support:
    """What was recalled for a reply, and which of its sentences rest on which of that, or on nothing."""
    text, today = reply.completion.text, reply.turn.time.date()
    evidence = list_evidence(reply.recall.hits, text, today)
    context = "\n".join(message.content for message in reply.prompt.messages)
    memories = [show_times(item.unit, today) for item in evidence]
    statements = read_statements(text, memories, context, [today, *(item.unit.time.date() for item in evidence)])
    for place, item in enumerate(evidence):
        own = tuple(each.text for each in statements if each.memory == place)
        evidence[place] = replace(item, statements=own)
    marks = [
        Mark(each.text, None if each.memory is None else evidence[each.memory].number, each.unsupported)
        for each in statements
    ]
    quotes_chat = not evidence and _quotes(text, context)
    return Support(text, evidence, marks, reply.recall.workings, reply.completion.trimmed, quotes_chat)


def list_evidence(hits: Sequence[Hit], text: str, today: date) -> list[Evidence]:
    """The recalled memories, those that a reply quotes word for word first, else best first."""
    quoted = [_plain(quote) for quote in _QUOTED.findall(text)]
    rows = []
    for hit in hits:
        speaker, _, words = split_speaker(hit.unit)
        dated = show_times(hit.unit, today)
        sentences = {_plain(part) for part in split_sentences(dated.partition(": ")[2] or dated)}
        rows.append((any(quote in sentences for quote in quoted), hit, speaker, words))
    rows.sort(key=lambda row: (not row[0], -row[1].score))
    return [
        Evidence(number, hit.unit, speaker, words, float(hit.score), is_quoted)
        for number, (is_quoted, hit, speaker, words) in enumerate(rows, start=1)
    ]


def _quotes(text: str, context: str) -> bool:
    """Whether a reply quotes something, and all of it stands in the context."""
    quotes, words = _QUOTED.findall(text), _plain(context)
    parts = [part.strip() for quote in quotes for part in _plain(quote).split(_LEFT_OUT)]
    return bool(quotes) and all(part in words for part in parts)


def _plain(text: str) -> str:
    return " ".join(text.replace("'", '"').split())
