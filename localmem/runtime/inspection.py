"""Look at a memory: what it would recall for a text, and all that it holds, as documents that can be written as JSON.

The command line prints these documents and the server returns them. Nothing here changes a memory.
"""

import json
from dataclasses import asdict
from datetime import date, datetime

from localmem.errors import BadInput
from localmem.memory import Memory
from localmem.retrieval.base import Scope
from localmem.store.change_log import UnitHistory
from localmem.store.sql import Store
from localmem.text.dialogue import dated_lines
from localmem.text.provenance import origin_of
from localmem.times.annotate import over_since, spans_of
from localmem.times.periods import NO_LIMIT, Periods
from localmem.turns.pins import recall_with_pins
from localmem.types import Hit, Prompt, Recall, Reply, Session, Turn, Unit

Document = dict[str, object]

_HITS = 10  # units that a search within filters returns
_SEARCHED = 1000  # units that are searched for, where only some will do


def recall_text(
    memory: Memory, text: str, scope: Scope, periods: Periods = NO_LIMIT, *, user_name: str = "User"
) -> Recall:
    """What would be recalled if the user said `text` at `scope.now`.

    With a speaker, since, until or periods, which no system recalls by: the units that a search within these bounds
    returns, in time order as systems show them. Raises BadInput for such a search in a system that keeps no units.
    """
    if scope.now and not periods and (scope.speaker, scope.since, scope.until) == (None, None, None):
        turn = Turn("probe.0", "user", user_name, text, scope.now)
        return recall_with_pins(memory, Session("probe", (turn,)))
    if not memory.keeps_units:
        raise BadInput("this memory system keeps no units to search; omit speaker, happened and told")
    hits = tuple(sorted(search_within(memory, text, _HITS, scope, periods), key=lambda hit: hit.unit.time))
    recall = Recall(dated_lines(hit.unit for hit in hits), hits)
    return memory.show(recall, scope.now.date()) if memory.show and scope.now else recall


def search_within(memory: Memory, text: str, k: int, scope: Scope, periods: Periods) -> list[Hit]:
    """At most `k` units within a scope and periods, best first; with periods only the first thousand are looked at."""
    hits = memory.search(text, _SEARCHED if periods else k, scope)
    return [hit for hit in hits if periods.hold(hit.unit)][:k]


def recall_document(recall: Recall, now: datetime) -> Document:
    """The recalled text as the model reads it, the units behind it with their scores, and what was worked out."""
    hits = [{"score": float(hit.score), **unit_document(hit.unit, now)} for hit in recall.hits]
    workings = [asdict(working) for working in recall.workings]
    return {"text": recall.text, "hits": _with_iso_times(hits), "workings": workings}


def reply_document(reply: Reply) -> Document:
    """What a reply was based on: the recalled units, what was worked out, and the memory text as the model read it."""
    hits = [{"id": hit.unit.id, "text": hit.unit.text, "score": float(hit.score)} for hit in reply.recall.hits]
    workings = [asdict(working) for working in reply.recall.workings]
    return {"recalled": hits, "memory": reply.recall.text, "workings": workings}


def prompt_document(prompt: Prompt) -> Document:
    """A prompt's name and messages, as they were sent."""
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    return {"name": prompt.name, "messages": messages}


def unit_document(unit: Unit, now: datetime) -> Document:
    """A unit with the times that its text names, and the day since when what it tells is over, None if it is not."""
    past = over_since(unit, now.date())
    spans = [
        {**asdict(span), "readings": [[day.isoformat() for day in reading] for reading in span.readings]}
        for span in spans_of(unit)
    ]
    return {**asdict(unit), "origin": origin_of(unit), "spans": spans, "over_since": past and past.isoformat()}


def memory_document(
    store: Store,
    user: str,
    system: str,
    now: datetime,
    as_of: datetime | None = None,
    periods: Periods = NO_LIMIT,
) -> Document:
    """A user's units with their state, links, notes and marks, and how many closed sessions the system has not read.

    With `periods` only the units within these.
    """
    bank, moment = store.bank(user, system, as_of), as_of or now
    within = filter(periods.hold, bank.units.values())
    units = [{**unit_document(unit, moment), "retired": not bank.is_live(unit.id)} for unit in within]
    return {
        "user": user,
        "system": system,
        "units": _with_iso_times(units),
        "links": [asdict(link) for link in bank.links],
        "notes": dict(bank.notes),
        "marks": [{"unit": unit, "mark": mark, "value": value} for (unit, mark), value in bank.marks.items()],
        "unread_sessions": store.backlog(user, system).sessions,
    }


def history_document(history: UnitHistory) -> Document:
    """The history of a unit."""
    document: Document = json.loads(json.dumps(asdict(history), default=_iso))
    return document


def _iso(value: date) -> str:
    return value.isoformat()


def _with_iso_times(rows: list[Document]) -> list[Document]:
    return [
        {key: value.isoformat() if isinstance(value, datetime) else value for key, value in row.items()} for row in rows
    ]
