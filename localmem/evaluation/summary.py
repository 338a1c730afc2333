"""What a run found: means with intervals, differences and whether they are ties, costs, and quality against cost.

Receives the lines of a run and the scores of its answers; asks no model. A system's failed answers count with the worst
score, 0: a system is not better for having failed where it would have been wrong.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from localmem.evaluation.answers import Answer, Line, Read, answers_of, reads_of
from localmem.llm.wrappers import Spent
from localmem.reporting.bootstrap import Estimate, difference, estimate
from localmem.reporting.plots import picture
from localmem.reporting.sections import Section, Shown, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Item = TypeVar("Item")
Key = tuple[str, str, str, str]  # system, data, episode, probe
Scores = Mapping[
    str, Mapping[Key, float]
]  # measure -> answer -> score; an answer that a measure does not fit is absent

MOST_SHOWN = 5_000  # answers that a page can hold


@dataclass(frozen=True, slots=True)
class Cost:
    """What a system spent: a session that is read, and an answer, in calls, tokens and seconds."""

    sessions: int
    unread: int
    read: Spent
    read_seconds: float
    answers: int
    failed: int
    recall: Spent
    respond: Spent
    recall_seconds: float
    respond_seconds: float

    @property
    def tokens(self) -> float:
        """Tokens that an answer costs, with its share of the reading."""
        spent = (self.read, self.recall, self.respond)
        return sum(each.input_tokens + each.output_tokens for each in spent) / max(self.answers, 1)

    @property
    def seconds(self) -> float:
        """Seconds until an answer is there; what was read before is not waited for."""
        return (self.recall_seconds + self.respond_seconds) / max(self.answers, 1)


def key(answer: Answer) -> Key:
    """Which answer of a run this is."""
    return (*answer.work, answer.probe)


def section(
    title: str, notes: Sequence[str], lines: Sequence[Line], scores: Scores, folder: Path, *, against: Sequence[str]
) -> Section:
    """The whole run; pictures go into `folder`. Systems are compared with those of `against`."""
    answers, reads = answers_of(lines), reads_of(lines)
    tables: list[Table] = []
    pictures: list[str] = []
    for data in sorted({answer.work.data for answer in answers}):
        held = [answer for answer in answers if answer.work.data == data]
        costs = _costs(held, [read for read in reads if read.work.data == data])
        tables += _tables(data, held, scores, costs, against)
        pictures += _pictures(data, held, scores, costs, folder)
    shown = tuple(_shown(answer, scores) for answer in answers[:MOST_SHOWN])
    more = (
        [f"only the first {MOST_SHOWN} of {len(answers)} answers can be browsed"] if len(answers) > MOST_SHOWN else []
    )
    return Section(title, (*notes, *more), tuple(tables), tuple(pictures), shown)


# -- quality -----------------------------------------------------------------------------------------------------------


def _tables(
    data: str, answers: Sequence[Answer], scores: Scores, costs: Mapping[str, Cost], against: Sequence[str]
) -> list[Table]:
    measures = _fitting(answers, scores)
    by_system = _by(answers, lambda answer: answer.work.system)
    quality = [
        (
            system,
            str(len(held)),
            str(costs[system].failed),
            *(_interval(_values(held, scores[name])) for name in measures),
        )
        for system, held in by_system.items()
    ]
    found = [
        Table(f"{data}: quality (mean and 95 % interval)", ("system", "answers", "failed", *measures), tuple(quality))
    ]
    others = [other for other in against if other in by_system and len(by_system) > 1]
    found += [_compared(data, other, by_system, measures, scores) for other in others]
    for what, of in (("question type", lambda one: one.about), ("session it was asked after", lambda one: one.session)):
        found += _split(data, what, answers, of, measures[:1], scores)
    return [*found, _cost_table(data, costs)]


def _compared(
    data: str, other: str, by_system: Mapping[str, Sequence[Answer]], measures: Sequence[str], scores: Scores
) -> Table:
    rows = []
    for system, held in by_system.items():
        if system != other:
            cells = (_difference(held, by_system[other], scores[name]) for name in measures)
            rows.append((system, *cells))
    caption = f"{data}: difference to {other}, answer by answer (= marks a tie: the interval holds 0)"
    return Table(caption, ("system", *measures), tuple(rows))


def _split(
    data: str,
    what: str,
    answers: Sequence[Answer],
    of: Callable[[Answer], str],
    measures: Sequence[str],
    scores: Scores,
) -> list[Table]:
    """A column for each kind of probe; no table where there is but one kind."""
    kinds = sorted({of(answer) for answer in answers})
    if len(kinds) < 2 or len(kinds) > 12:
        return []
    tables = []
    for name in measures:
        rows = []
        for system, held in _by(answers, lambda answer: answer.work.system).items():
            parts = [_values([one for one in held if of(one) == kind], scores[name]) for kind in kinds]
            rows.append((system, *(f"{fmean(part):.3f} ({len(part)})" if part else "" for part in parts)))
        tables.append(Table(f"{data}: {name} by {what} (answers in brackets)", ("system", *kinds), tuple(rows)))
    return tables


def _fitting(answers: Sequence[Answer], scores: Scores) -> list[str]:
    """The measures that any of the answers has, in the order they were given."""
    keys = {key(answer) for answer in answers}
    return [name for name, found in scores.items() if not keys.isdisjoint(found)]


def _values(answers: Iterable[Answer], scores: Mapping[Key, float]) -> list[float]:
    return [scores[key(answer)] for answer in answers if key(answer) in scores]


def _interval(values: Sequence[float]) -> str:
    return "" if not values else _told(estimate(values))


def _difference(ours: Sequence[Answer], theirs: Sequence[Answer], scores: Mapping[Key, float]) -> str:
    other = {key(answer)[1:]: scores.get(key(answer)) for answer in theirs}
    pairs = [
        (scores[key(answer)], there)
        for answer in ours
        if key(answer) in scores and (there := other.get(key(answer)[1:])) is not None
    ]
    if not pairs:
        return ""
    found = difference(*(list(side) for side in zip(*pairs, strict=True)))
    return f"{'= ' if found.low <= 0 <= found.high else ''}{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _told(found: Estimate) -> str:
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


# -- cost --------------------------------------------------------------------------------------------------------------


def _costs(answers: Sequence[Answer], reads: Sequence[Read]) -> dict[str, Cost]:
    by_system = _by(answers, lambda answer: answer.work.system)
    read_by = _by(reads, lambda read: read.work.system)
    return {system: _cost(held, read_by.get(system, [])) for system, held in by_system.items()}


def _cost(answers: Sequence[Answer], reads: Sequence[Read]) -> Cost:
    def of(stage: str) -> Spent:
        return total(spent for answer in answers for spent in answer.spent.get(stage, {}).values())

    def seconds(stage: str) -> float:
        return sum(answer.seconds.get(stage, 0.0) for answer in answers)

    return Cost(
        sessions=len(reads),
        unread=sum(bool(read.error) for read in reads),
        read=total(spent for read in reads for spent in read.spent.values()),
        read_seconds=sum(read.seconds for read in reads),
        answers=len(answers),
        failed=sum(bool(answer.error) for answer in answers),
        recall=of("recall"),
        respond=of("respond"),
        recall_seconds=seconds("recall"),
        respond_seconds=seconds("respond"),
    )


def total(spent: Iterable[Spent]) -> Spent:
    """All of it together."""
    found = Spent()
    for each in spent:
        found = found.plus(each)
    return found


def _cost_table(data: str, costs: Mapping[str, Cost]) -> Table:
    head = (
        "system", "sessions", "not read", "calls to read one", "tokens", "seconds", "calls to recall", "tokens",
        "seconds", "tokens to respond", "of them out", "seconds", "cut to fit",
    )  # fmt: skip
    rows = tuple((system, *_cost_cells(cost)) for system, cost in costs.items())
    return Table(f"{data}: what a session costs to read, and an answer to recall and to respond (means)", head, rows)


def _cost_cells(cost: Cost) -> tuple[str, ...]:
    sessions, answers = max(cost.sessions, 1), max(cost.answers, 1)
    return (
        str(cost.sessions),
        str(cost.unread),
        f"{cost.read.calls / sessions:.1f}",
        f"{(cost.read.input_tokens + cost.read.output_tokens) / sessions:.0f}",
        f"{cost.read_seconds / sessions:.2f}",
        f"{cost.recall.calls / answers:.1f}",
        f"{(cost.recall.input_tokens + cost.recall.output_tokens) / answers:.0f}",
        f"{cost.recall_seconds / answers:.3f}",
        f"{(cost.respond.input_tokens + cost.respond.output_tokens) / answers:.0f}",
        f"{cost.respond.output_tokens / answers:.0f}",
        f"{cost.respond_seconds / answers:.2f}",
        str(cost.read.trimmed + cost.recall.trimmed + cost.respond.trimmed),
    )


# -- pictures ----------------------------------------------------------------------------------------------------------


def _pictures(
    data: str, answers: Sequence[Answer], scores: Scores, costs: Mapping[str, Cost], folder: Path
) -> list[str]:
    """Quality by the first measure against tokens and against seconds, with the Pareto front."""
    measures = _fitting(answers, scores)
    if not measures or len(costs) < 2:
        return []
    held = _by(answers, lambda answer: answer.work.system)
    means = {system: fmean(values) for system in costs if (values := _values(held[system], scores[measures[0]]))}
    names = []
    for what, label in (("tokens", "tokens an answer, reading included"), ("seconds", "seconds to an answer")):
        points = {system: (float(getattr(costs[system], what)), mean) for system, mean in means.items()}
        name = f"{data}-{what}.png"
        picture(folder / name, _front_of(points, label, f"{measures[0]}, {data}"))
        names.append(name)
    return names


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names that no other beats: none costs at most as much and is better. Cheapest first."""
    best, kept = float("-inf"), []
    for name, (_, quality) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if quality > best:
            best = quality
            kept.append(name)
    return kept


def _front_of(points: Mapping[str, tuple[float, float]], across: str, up: str) -> "Callable[[Axes], None]":
    def draw(axes: "Axes") -> None:
        for name, at in points.items():
            axes.plot(*at, "o", color="tab:blue")
            axes.annotate(name, at, xytext=(4, 4), textcoords="offset points", fontsize="small")
        edge = [points[name] for name in front(points)]
        axes.plot(*zip(*edge, strict=True), "-", color="tab:orange", label="Pareto front", drawstyle="steps-post")
        axes.margins(x=0.2)  # room for the names
        axes.set(xlabel=across, ylabel=up, xscale="log" if min(cost for cost, _ in points.values()) > 0 else "linear")

    return draw


# -- answers -----------------------------------------------------------------------------------------------------------


def _shown(answer: Answer, scores: Scores) -> Shown:
    found = (f"{name} {held[key(answer)]:.2f}" for name, held in scores.items() if key(answer) in held)
    return Shown(
        system=answer.work.system,
        data=answer.work.data,
        about=answer.about,
        question=answer.question,
        gold=" | ".join(answer.gold),
        answer=answer.text or answer.error,
        recalled=answer.recalled,
        scores=" · ".join(found),
    )


def _by(items: Iterable[Item], of: Callable[[Item], str]) -> dict[str, list[Item]]:
    found: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        found[of(item)].append(item)
    return dict(found)
