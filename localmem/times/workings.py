"""What follows from what was said: dates, lengths of time, ages, orders, sums and differences, each with its sources.

`work_out` reads a question and the units that were recalled for it, which are to be current. It gives a result only
where every part is in these units, exact and without a rival; otherwise none. Knows no memory system.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date

from localmem.times import amount_workings, date_workings, time_workings
from localmem.times.cues import tells
from localmem.times.parts import Parts, Relevance
from localmem.times.questions import Kind, read_question
from localmem.types import Unit, Working

_RULES: dict[Kind, Callable[[Parts], Working | None]] = {
    "order": time_workings.order_of,
    "often": date_workings.frequency_of,
    "times": time_workings.times_of,
    "age": time_workings.age_of,
    "ago": lambda parts: time_workings.time_since(parts) or time_workings.lasting_of(parts),
    "total": lambda parts: None if tells("asks twice", parts.question) else amount_workings.total_of(parts),
    "listed": lambda parts: None if _lists_no_sum(parts.question) else amount_workings.listed_total_of(parts),
    "difference": amount_workings.difference_of,
    "duration": time_workings.duration_of,
    "when": date_workings.date_of,
}


def work_out(question: str, day: date, units: Sequence[Unit], relevance: Relevance | None = None) -> list[Working]:
    """What a question of this day asks to be worked out, from current units, the best first; mostly one result or none.

    With `relevance` it is told by sentences which of many units are meant; without, by words, as suits a few.
    """
    wish = read_question(question, day)
    if not wish.kinds or not units:
        return []
    parts = Parts(question, day, wish, units, relevance)
    results = (_RULES[kind](parts) for kind in wish.kinds)
    return next(([working] for working in results if working), [])


def _lists_no_sum(question: str) -> bool:
    return tells("counts things", question) or tells("asks twice", question)


def write_workings(workings: Iterable[Working]) -> str:
    """Workings as lines of a prompt."""
    return "\n".join(f"worked out: {working.text} [turns {', '.join(working.sources)}]" for working in workings)
