"""The report of a run: means with intervals, paired differences, costs, and quality against cost.

Receives the lines of a run and the scores of its answers; asks no model. A failed answer counts with the worst score,
0: a system must not gain by failing where it would have been wrong.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from localmem.evaluation.answers import Answer, Line, Read, answers_of, reads_of
from localmem.llm.wrappers import PromptUsage
from localmem.reporting.bootstrap import difference, estimate
from localmem.reporting.plots import pareto_plot, save_plot
from localmem.reporting.sections import BrowsableAnswer, Section, Table

Item = TypeVar("Item")
Key = tuple[str, str, str, str]  # system, dataset, episode, probe
# Measure -> answer -> score; an answer that a measure does not apply to is absent.
Scores = Mapping[str, Mapping[Key, float]]

BROWSABLE = 5_000  # answers on a page


@dataclass(frozen=True, slots=True)
class Cost:
    """What a system spent on reading sessions, and on recalling and responding for answers."""

    sessions: int
    unread: int
    read: PromptUsage
    read_seconds: float
    answers: int
    failed: int
    recall: PromptUsage
    respond: PromptUsage
    recall_seconds: float
    respond_seconds: float

    @property
    def tokens(self) -> float:
        """Tokens per answer, including its share of the reading."""
        spent = (self.read, self.recall, self.respond)
        return sum(each.input_tokens + each.output_tokens for each in spent) / max(self.answers, 1)

    @property
    def seconds(self) -> float:
        """Seconds per answer; reading happens before and is not included."""
        return (self.recall_seconds + self.respond_seconds) / max(self.answers, 1)


def key(answer: Answer) -> Key:
    """Identifies an answer of a run."""
    return (*answer.work, answer.probe)


def section(
    title: str, notes: Sequence[str], lines: Sequence[Line], scores: Scores, folder: Path, *, against: Sequence[str]
) -> Section:
    """The whole run; plots go into `folder`. Systems are compared with those of `against`."""
    answers, reads = answers_of(lines), reads_of(lines)
    tables: list[Table] = []
    plots: list[str] = []
    for dataset, own in _group(answers, lambda answer: answer.work.dataset).items():
        costs = _costs(own, [read for read in reads if read.work.dataset == dataset])
        tables += _tables(dataset, own, scores, costs, against)
        plots += _save_plots(dataset, own, scores, costs, folder)
    browsable = tuple(_browsable(answer, scores) for answer in answers[:BROWSABLE])
    note = f"only the first {BROWSABLE} of {len(answers)} answers can be browsed"
    notes = [*notes, note] if len(answers) > BROWSABLE else notes
    return Section(title, tuple(notes), tuple(tables), tuple(plots), browsable)


# -- quality -----------------------------------------------------------------------------------------------------------


def _tables(
    dataset: str, answers: Sequence[Answer], scores: Scores, costs: Mapping[str, Cost], against: Sequence[str]
) -> list[Table]:
    measures = _applicable(answers, scores)
    by_system = _group(answers, lambda answer: answer.work.system)
    quality = [
        (
            system,
            str(len(own)),
            str(costs[system].failed),
            *(_format_mean(_values(own, scores[name])) for name in measures),
        )
        for system, own in by_system.items()
    ]
    head = ("system", "answers", "failed", *measures)
    tables = [Table(f"{dataset}: quality (mean and 95 % interval)", head, tuple(quality))]
    baselines = [name for name in against if name in by_system and len(by_system) > 1]
    tables += [_difference_table(dataset, baseline, by_system, measures, scores) for baseline in baselines]
    splits: dict[str, Callable[[Answer], str]] = {
        "question type": lambda answer: answer.about,
        "session after which it was asked": lambda answer: answer.session,
    }
    for name, category in splits.items():
        tables += _split_tables(dataset, name, answers, category, measures[:1], scores)
    return [*tables, _cost_table(dataset, costs)]


def _difference_table(
    dataset: str, baseline: str, by_system: Mapping[str, Sequence[Answer]], measures: Sequence[str], scores: Scores
) -> Table:
    rows = [
        (system, *(_format_difference(own, by_system[baseline], scores[name]) for name in measures))
        for system, own in by_system.items()
        if system != baseline
    ]
    caption = f"{dataset}: difference from {baseline}, paired by answer (=: no difference beyond the interval)"
    return Table(caption, ("system", *measures), tuple(rows))


def _split_tables(
    dataset: str,
    name: str,
    answers: Sequence[Answer],
    category: Callable[[Answer], str],
    measures: Sequence[str],
    scores: Scores,
) -> list[Table]:
    """A table for each measure with a column for each category; none for a single category or more than twelve."""
    categories = sorted({category(answer) for answer in answers})
    if not 2 <= len(categories) <= 12:
        return []
    tables = []
    for measure in measures:
        rows = []
        for system, own in _group(answers, lambda answer: answer.work.system).items():
            groups = _group(own, category)
            parts = [_values(groups.get(each, ()), scores[measure]) for each in categories]
            rows.append((system, *(f"{fmean(part):.3f} ({len(part)})" if part else "" for part in parts)))
        caption = f"{dataset}: {measure} by {name} (number of answers in brackets)"
        tables.append(Table(caption, ("system", *categories), tuple(rows)))
    return tables


def _applicable(answers: Sequence[Answer], scores: Scores) -> list[str]:
    """The measures that any of the answers has, in the order of `scores`."""
    keys = {key(answer) for answer in answers}
    return [name for name, values in scores.items() if not keys.isdisjoint(values)]


def _values(answers: Iterable[Answer], scores: Mapping[Key, float]) -> list[float]:
    return [scores[key(answer)] for answer in answers if key(answer) in scores]


def _format_mean(values: Sequence[float]) -> str:
    return estimate(values).as_text() if values else ""


def _format_difference(ours: Sequence[Answer], theirs: Sequence[Answer], scores: Mapping[Key, float]) -> str:
    baseline = {key(answer)[1:]: scores[key(answer)] for answer in theirs if key(answer) in scores}
    pairs = [
        (scores[key(answer)], baseline[key(answer)[1:]])
        for answer in ours
        if key(answer) in scores and key(answer)[1:] in baseline
    ]
    if not pairs:
        return ""
    mean = difference(*(list(side) for side in zip(*pairs, strict=True)))
    return f"{'= ' if mean.low <= 0 <= mean.high else ''}{mean.as_text('+')}"


# -- cost --------------------------------------------------------------------------------------------------------------


def _costs(answers: Sequence[Answer], reads: Sequence[Read]) -> dict[str, Cost]:
    reads_by_system = _group(reads, lambda read: read.work.system)
    by_system = _group(answers, lambda answer: answer.work.system)
    return {system: _cost(own, reads_by_system.get(system, [])) for system, own in by_system.items()}


def _cost(answers: Sequence[Answer], reads: Sequence[Read]) -> Cost:
    def stage_cost(stage: str) -> PromptUsage:
        return total(spent for answer in answers for spent in answer.spent.get(stage, {}).values())

    def stage_seconds(stage: str) -> float:
        return sum(answer.seconds.get(stage, 0.0) for answer in answers)

    return Cost(
        sessions=len(reads),
        unread=sum(bool(read.error) for read in reads),
        read=total(spent for read in reads for spent in read.spent.values()),
        read_seconds=sum(read.seconds for read in reads),
        answers=len(answers),
        failed=sum(bool(answer.error) for answer in answers),
        recall=stage_cost("recall"),
        respond=stage_cost("respond"),
        recall_seconds=stage_seconds("recall"),
        respond_seconds=stage_seconds("respond"),
    )


def total(spent: Iterable[PromptUsage]) -> PromptUsage:
    """The sum."""
    result = PromptUsage()
    for each in spent:
        result = result.plus(each)
    return result


def _cost_table(dataset: str, costs: Mapping[str, Cost]) -> Table:
    head = (
        "system", "sessions", "failed to read", "calls to read", "tokens", "seconds", "calls to recall", "tokens",
        "seconds", "tokens to respond", "output tokens", "seconds", "truncated prompts",
    )  # fmt: skip
    rows = tuple((system, *_cost_cells(cost)) for system, cost in costs.items())
    return Table(f"{dataset}: costs per session to read, and per answer to recall and respond (means)", head, rows)


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


# -- plots and answers -------------------------------------------------------------------------------------------------


def _save_plots(
    dataset: str, answers: Sequence[Answer], scores: Scores, costs: Mapping[str, Cost], folder: Path
) -> list[str]:
    """Quality by the first measure against tokens and against seconds, with the Pareto front."""
    measures = _applicable(answers, scores)
    if not measures or len(costs) < 2:
        return []
    by_system = _group(answers, lambda answer: answer.work.system)
    means = {system: fmean(values) for system in costs if (values := _values(by_system[system], scores[measures[0]]))}
    names = []
    for unit, label in (("tokens", "tokens per answer, including reading"), ("seconds", "seconds per answer")):
        points = {system: (float(getattr(costs[system], unit)), mean) for system, mean in means.items()}
        names.append(f"{dataset}-{unit}.png")
        save_plot(folder / names[-1], pareto_plot(points, xlabel=label, ylabel=f"{measures[0]}, {dataset}"))
    return names


def _browsable(answer: Answer, scores: Scores) -> BrowsableAnswer:
    cells = (f"{name} {values[key(answer)]:.2f}" for name, values in scores.items() if key(answer) in values)
    return BrowsableAnswer(
        system=answer.work.system,
        dataset=answer.work.dataset,
        category=answer.about,
        question=answer.question,
        gold=" | ".join(answer.gold),
        answer=answer.text or answer.error,
        recalled=answer.recalled,
        scores=" · ".join(cells),
    )


def _group(items: Iterable[Item], category: Callable[[Item], str]) -> dict[str, list[Item]]:
    groups: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        groups[category(item)].append(item)
    return dict(groups)
