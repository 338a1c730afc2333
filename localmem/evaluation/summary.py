"""The report of a run: scores, means with intervals, paired differences, costs, quality against cost, corpus measures.

Receives the lines and verdicts of a run and the models that measures need; loads none and asks none. A failed answer
counts with the worst score, 0, or 1 for being worse than another: a system must not gain by failing where it would have
been wrong. So does an answer of which the judge's verdict is not usable; the share that was judged stands beside it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from localmem.evaluation.answers import FALLBACKS, Answer, Judgement, Line, Read, answers_of, reads_of
from localmem.evaluation.evidence_retrieval import recall_at
from localmem.evaluation.metrics.text import (
    locomo_f1,
    rouge,
    token_f1,
)
from localmem.llm.wrappers import PromptUsage
from localmem.reporting.intervals import difference, estimate
from localmem.reporting.sections import BrowsableAnswer, Section, Table, pareto_plot, save_plot

Item = TypeVar("Item")
Category = TypeVar("Category")
Key = tuple[str, str, str, str]  # system, dataset, episode, probe
# Measure -> answer -> score; an answer that a measure does not apply to is absent.
Scores = Mapping[str, Mapping[Key, float]]

BROWSABLE = 5_000  # answers on a page


@dataclass(frozen=True, slots=True)
class SystemResult:
    """What one system read and answered of a data set, and what it spent on reading, recalling and responding."""

    reads: Sequence[Read]
    answers: Sequence[Answer]

    @property
    def reading(self) -> PromptUsage:
        """What all prompts cost that read sessions."""
        return _total(read.spent for read in self.reads)

    @property
    def successes(self) -> list[Answer]:
        """The answers with costs: a failed one has none, and would make the mean look cheap."""
        return [answer for answer in self.answers if not answer.error]

    def usage(self, stage: str) -> PromptUsage:
        """What all prompts of a stage (recall, respond) cost."""
        return _total(answer.spent.get(stage, {}) for answer in self.successes)

    def stage_seconds(self, stage: str) -> float:
        """Seconds per answer that did not fail."""
        return sum(answer.seconds.get(stage, 0.0) for answer in self.successes) / max(len(self.successes), 1)

    @property
    def tokens(self) -> float:
        """Tokens per answer that did not fail, including its share of the reading."""
        usage = self.usage("recall").plus(self.usage("respond"))
        reading = (self.reading.input_tokens + self.reading.output_tokens) / max(len(self.answers), 1)
        return reading + (usage.input_tokens + usage.output_tokens) / max(len(self.successes), 1)

    @property
    def seconds(self) -> float:
        """Seconds per answer; reading happens before and is not included."""
        return self.stage_seconds("recall") + self.stage_seconds("respond")

    def cost_cells(self) -> tuple[str, ...]:
        """The cells of the table of costs after the system's name."""
        read, recall, respond = self.reading, self.usage("recall"), self.usage("respond")
        sessions, answers = max(len(self.reads), 1), max(len(self.successes), 1)
        counted = [line.fallbacks for line in self.answers if line.fallbacks is not None]
        return (
            str(len(self.reads)),
            str(sum(bool(line.error) for line in self.reads)),
            f"{read.calls / sessions:.1f}",
            f"{(read.input_tokens + read.output_tokens) / sessions:.0f}",
            f"{sum(line.seconds for line in self.reads) / sessions:.2f}",
            f"{recall.calls / answers:.1f}",
            f"{(recall.input_tokens + recall.output_tokens) / answers:.0f}",
            f"{self.stage_seconds('recall'):.3f}",
            f"{(respond.input_tokens + respond.output_tokens) / answers:.0f}",
            f"{respond.output_tokens / answers:.0f}",
            f"{self.stage_seconds('respond'):.2f}",
            str(read.trimmed + recall.trimmed + respond.trimmed),
            str(sum(counted)) if counted else "",
        )


Results = Mapping[str, SystemResult]

_COST_HEAD = (
    "system", "sessions", "failed to read", "calls to read", "tokens", "seconds", "calls to recall", "tokens",
    "seconds", "tokens to respond", "output tokens", "seconds", "truncated prompts", "fallbacks to recall",
)  # fmt: skip


def _total(spent: Iterable[Mapping[str, PromptUsage]]) -> PromptUsage:
    return reduce(PromptUsage.plus, (usage for by_prompt in spent for usage in by_prompt.values()), PromptUsage())


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
        by_system = _group(own, lambda answer: answer.work.system)
        results = {
            system: SystemResult([read for read in reads if read.work[:2] == (system, dataset)], rows)
            for system, rows in by_system.items()
        }
        # The measures that any of the answers has, in the order of `scores`
        keys = {key(answer) for answer in own}
        measures = [name for name, values in scores.items() if not keys.isdisjoint(values)]
        tables += _tables(dataset, results, measures, scores, against)
        if measures and len(results) > 1:
            plots += _save_plots(dataset, results, measures[0], scores[measures[0]], folder)
    browsable = tuple(_browsable(answer, scores) for answer in answers[:BROWSABLE])
    note = f"only the first {BROWSABLE} of {len(answers)} answers can be browsed"
    notes = [*notes, note] if len(answers) > BROWSABLE else notes
    return Section(title, tuple(notes), tuple(tables), tuple(plots), browsable)


# -- quality -----------------------------------------------------------------------------------------------------------


def _tables(
    dataset: str, results: Results, measures: Sequence[str], scores: Scores, against: Sequence[str]
) -> list[Table]:
    quality = [
        {"system": system, "answers": len(result.answers), "failed": sum(bool(row.error) for row in result.answers)}
        | {name: _format_mean(result.answers, scores[name]) for name in measures}
        for system, result in results.items()
    ]
    tables = [Table.of(f"{dataset}: quality (mean and 95 % interval over conversations)", quality)]
    for baseline in against:
        if baseline in results and len(results) > 1:
            rows = [
                {"system": system}
                | {name: _format_difference(own, results[baseline], scores[name]) for name in measures}
                for system, own in results.items()
                if system != baseline
            ]
            caption = f"{dataset}: difference from {baseline}, paired by answer (=: none beyond the interval)"
            tables.append(Table.of(caption, rows))
    for measure in measures[:1]:
        by = f"{dataset}: {measure} by {{}} (number of answers in brackets)"
        tables += _split_table(by.format("question type"), results, lambda row: row.about, scores[measure])
        when = by.format("session after which it was asked")
        tables += _split_table(when, results, lambda row: row.session, scores[measure])
    caption = f"{dataset}: costs, means per session to read and per answer that did not fail; sessions, truncated "
    caption += f"prompts and fallbacks are totals; {FALLBACKS}"
    costs = tuple((system, *result.cost_cells()) for system, result in results.items())
    return [*tables, Table(caption, _COST_HEAD, costs)]


def _split_table(
    caption: str, results: Results, category: Callable[[Answer], str], scores: Mapping[Key, float]
) -> list[Table]:
    """A table with a column for each category; none for a single category or more than twelve."""
    categories = sorted({category(answer) for result in results.values() for answer in result.answers})
    if not 2 <= len(categories) <= 12:
        return []
    rows = []
    for system, result in results.items():
        groups = _group(result.answers, category)
        parts = [_values(groups.get(each, ()), scores) for each in categories]
        rows.append((system, *(f"{fmean(part):.3f} ({len(part)})" if part else "" for part in parts)))
    return [Table(caption, ("system", *categories), tuple(rows))]


def _values(answers: Iterable[Answer], scores: Mapping[Key, float]) -> list[float]:
    return [scores[key(answer)] for answer in answers if key(answer) in scores]


def _format_mean(answers: Sequence[Answer], scores: Mapping[Key, float]) -> str:
    scored = [key(answer) for answer in answers if key(answer) in scores]
    return estimate([scores[name] for name in scored], [name[2] for name in scored]).as_text() if scored else ""


def _format_difference(ours: SystemResult, theirs: SystemResult, scores: Mapping[Key, float]) -> str:
    ours_by_probe, theirs_by_probe = (
        {key(answer)[1:]: scores[key(answer)] for answer in result.answers if key(answer) in scores}
        for result in (ours, theirs)
    )
    shared = [probe for probe in ours_by_probe if probe in theirs_by_probe]
    if not shared:
        return ""
    ours_values, theirs_values = ([side[probe] for probe in shared] for side in (ours_by_probe, theirs_by_probe))
    mean = difference(ours_values, theirs_values, [episode for _, episode, _ in shared])
    return f"{'= ' if mean.spans_zero else ''}{mean.as_text('+')}"


# -- plots and answers -------------------------------------------------------------------------------------------------


def _save_plots(dataset: str, results: Results, measure: str, scores: Mapping[Key, float], folder: Path) -> list[str]:
    """Quality against tokens and against seconds, with the Pareto front."""
    means = {name: fmean(values) for name, result in results.items() if (values := _values(result.answers, scores))}
    names = []
    for unit, label in (("tokens", "tokens per answer, including reading"), ("seconds", "seconds per answer")):
        points = {system: (float(getattr(results[system], unit)), mean) for system, mean in means.items()}
        names.append(f"{dataset}-{unit}.png")
        save_plot(folder / names[-1], pareto_plot(points, xlabel=label, ylabel=f"{measure}, {dataset}"))
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


def _group(items: Iterable[Item], category: Callable[[Item], Category]) -> dict[Category, list[Item]]:
    groups: defaultdict[Category, list[Item]] = defaultdict(list)
    for item in items:
        groups[category(item)].append(item)
    return dict(groups)


# -- scores ------------------------------------------------------------------------------------------------------------

_PAIRWISE = {"first", "second", "tie"}  # the scales of a judge that compares two answers
_WORSE = "worse than "
UNCALIBRATED = "†"  # appended to a measure whose judge is not calibrated, or not well enough


def score_answers(answers: Sequence[Answer], judgements: Iterable[Judgement]) -> Scores:
    """Every measure, the most informative first: verdicts, then nearness to the gold answer, then evidence."""
    return {**_verdicts(judgements, answers), **_texts(answers), **_evidence(answers)}


def _texts(answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    scorable = [answer for answer in answers if any(gold.strip() for gold in answer.gold)]
    scores = {
        "F1": _best_scores(scorable, token_f1),
        "ROUGE-L": _best_scores(scorable, lambda text, gold: rouge([text], [gold])["rougeL"][0]),
    }
    return scores | _locomo(answers)


def _locomo(answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    """LoCoMo's own score over all questions, and without those of what was never said (22.5 % of them)."""
    questions = [answer for answer in answers if answer.kind == "question" and answer.work.dataset == "locomo"]
    scores = {
        key(answer): 0.0 if answer.error else locomo_f1(answer.text, "".join(answer.gold[:1]), answer.about)
        for answer in questions
    }
    answerable = {key(answer): scores[key(answer)] for answer in questions if answer.about != "adversarial"}
    if len(answerable) == len(scores):
        return {"LoCoMo F1": scores} if scores else {}
    return {"LoCoMo F1": scores, "LoCoMo F1 without adversarial": answerable}


def _best_scores(answers: Sequence[Answer], measure: Callable[[str, str], float]) -> dict[Key, float]:
    """Against the nearest gold answer where there are several."""
    return {
        key(answer): 0.0 if answer.error else max(measure(answer.text, gold) for gold in answer.gold if gold.strip())
        for answer in answers
    }


def _evidence(answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    """The share of the evidence from which recalled units come, and whether any does.

    The mean of the latter is Theanine's accuracy of golden memories (Table 3).
    """
    shares = {
        key(answer): 0.0 if answer.error else recall_at(answer.units, set(answer.evidence), len(answer.units))
        for answer in answers
        if answer.evidence
    }
    if not shares:
        return {}
    return {"evidence recalled": shares, "any of it": {name: float(share > 0) for name, share in shares.items()}}


def _verdicts(judgements: Iterable[Judgement], answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    """The verdicts of each judge by its scales, and the share of judged answers where some verdict is unusable.

    A failed answer and one without a usable verdict count as the worst, as in TeaFarm.
    """
    measures: dict[str, dict[Key, float]] = {}
    for (judge, believable, other), own in _group(judgements, _judge_of).items():
        mark = "" if believable else UNCALIBRATED
        usable_last = sorted(own, key=lambda each: bool(each.scores))  # several models may judge one answer
        scales = {_case_key(each): _scales(each) for each in usable_last if each.case.probe}
        for scale in dict.fromkeys(chain.from_iterable(scales.values())):
            worst = float(scale.startswith(_WORSE))
            scores = {answer: values.get(scale, worst) for answer, values in scales.items()}
            name = f"{judge}: {scale}{mark}" if scale else f"{judge}{mark}"
            measures[name] = scores | _worst_scores(answers, scores, other, worst=worst)
        if not all(scales.values()):
            name = f"{judge}: judged{mark}"
            judged = {answer: float(bool(values)) for answer, values in scales.items()}
            measures[name] = measures.get(name, {}) | judged
    return measures


def _judge_of(judgement: Judgement) -> tuple[str, bool, str]:
    return judgement.judge, judgement.believable, judgement.case.other


def _case_key(judgement: Judgement) -> Key:
    return (*judgement.case.work, judgement.case.probe)


def _worst_scores(
    answers: Sequence[Answer], scores: Mapping[Key, float], other: str, *, worst: float
) -> dict[Key, float]:
    """The score `worst` for failed answers of the kinds that the judge is asked about, but for those of `other`."""
    kinds = {answer.kind for answer in answers if key(answer) in scores}
    failed = [answer for answer in answers if answer.error and answer.kind in kinds]
    return {key(answer): worst for answer in failed if answer.work.system != other}


def _scales(judgement: Judgement) -> Mapping[str, float]:
    """The scores to report by scale: only `right` where a judge has it, under an empty name."""
    scores = judgement.scores
    if "right" in scores:
        return {"": scores["right"]}
    if set(scores) == _PAIRWISE:
        other = judgement.case.other
        return {f"better than {other}": scores["first"], f"{_WORSE}{other}": scores["second"]}
    return scores
