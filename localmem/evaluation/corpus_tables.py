"""Measures over a run as a whole: all answers together, those that use the gold memory, memories against gold ones, and
what a judge makes of them.

Receives the lines of a run and the models that measures need; loads none and asks none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from localmem.bank import Bank
from localmem.evaluation.answers import Answer, Judgement, Line, Read, Work, answers_of
from localmem.evaluation.file_scoring import (
    LEXICAL_METRICS,
    MetricName,
    RunMetric,
    ScorableReply,
    ScoringModels,
    score_replies,
)
from localmem.evaluation.metrics.model_based import perplexity
from localmem.evaluation.metrics.text import match_sentences, rouge_similarities, shared_words
from localmem.evaluation.summary import UNCALIBRATED
from localmem.reporting.intervals import estimate
from localmem.reporting.sections import Table

MEMORY_TURNS = "the replies that use the gold memory (memory turns)"
SAME_MEANING = 0.8  # the cosine from which two sentences say the same
_MEMORY_COLUMNS = [f"{name} {of}" for of in ("of words", "of sentences") for name in ("precision", "recall", "F1")]
_MEANING_COLUMNS = [f"{name} of sentences by meaning" for name in ("precision", "recall", "F1")]


def corpus_tables(lines: Sequence[Line], metrics: Sequence[RunMetric], models: ScoringModels) -> list[Table]:
    """A table of answers by system for each data set, then memories against gold ones; `metrics` are further ones."""
    scorable: defaultdict[str, defaultdict[str, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers_of(lines):
        if not answer.error and answer.gold[0].strip():
            scorable[answer.work.dataset][answer.work.system].append(answer)
    measures: list[MetricName] = [name for name in metrics if name != "meaning"]
    groups = {
        "all answers together (without failed ones)": lambda _: True,
        MEMORY_TURNS: lambda answer: answer.rests_on,
    }
    answer_tables = [
        Table.of(f"{dataset}: {caption}", rows)
        for dataset, by_system in sorted(scorable.items())
        for caption, includes in groups.items()
        if (rows := _answer_rows(by_system, includes, measures, models))
    ]
    return [*answer_tables, *_memory_tables(lines, models if "meaning" in metrics else None)]


def _answer_rows(
    by_system: Mapping[str, Sequence[Answer]],
    includes: Callable[[Answer], object],
    metrics: Sequence[MetricName],
    models: ScoringModels,
) -> list[dict[str, object]]:
    selected = {system: [answer for answer in answers if includes(answer)] for system, answers in by_system.items()}
    return [
        {"system": system, "answers": len(answers), **_measures(answers, metrics, models)}
        for system, answers in selected.items()
        if answers
    ]


def _measures(answers: Sequence[Answer], metrics: Sequence[MetricName], models: ScoringModels) -> dict[str, float]:
    replies = [
        ScorableReply(answer.probe, answer.text, tuple(gold for gold in answer.gold if gold.strip()))
        for answer in answers
    ]
    measures = dict(score_replies(replies, (*LEXICAL_METRICS, *metrics), models=models).overall)
    likelihoods = [answer.likelihood for answer in answers if answer.likelihood]
    return measures | ({"perplexity of gold": perplexity(likelihoods)} if likelihoods else {})


def _memory_tables(lines: Sequence[Line], models: ScoringModels | None) -> list[Table]:
    """After each session with gold sentences: how many the memory holds, and how much of it is gold.

    Sentences are compared by their words, and with `models` by their meaning, too.
    """
    columns = (*_MEMORY_COLUMNS, *(_MEANING_COLUMNS if models else ()))
    figures: defaultdict[str, defaultdict[str, list[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(list))
    for work, memory, gold in _memories(lines):
        sentences = match_sentences(rouge_similarities(memory, gold))
        meanings = match_sentences(models.similarities(memory, gold), SAME_MEANING) if models else ()
        figures[work.dataset][work.system].append((*shared_words(memory, gold), *sentences, *meanings))
    return [
        Table.of(
            f"{dataset}: memory against gold memory, mean over sessions",
            [
                {
                    "system": system,
                    "sessions": len(rows),
                    **dict(zip(columns, map(fmean, zip(*rows, strict=True)), strict=True)),
                }
                for system, rows in sorted(by_system.items())
            ],
        )
        for dataset, by_system in sorted(figures.items())
    ]


def _memories(lines: Sequence[Line]) -> Iterator[tuple[Work, list[str], Sequence[str]]]:
    """The texts of each memory after a session with gold sentences; `lines` are in the order of reading."""
    banks: defaultdict[Work, Bank] = defaultdict(Bank)
    for line in lines:
        if isinstance(line, Read):
            banks[line.work] = banks[line.work].apply(line.changes)
            if line.gold:
                bank = banks[line.work]
                yield line.work, [*(unit.text for unit in bank.live()), *bank.notes.values()], line.gold


def graded_memory_tables(judgements: Iterable[Judgement]) -> list[Table]:
    """The grades of whole memories, by system and criterion (CREEM, Table 1), with intervals over conversations."""
    graded: defaultdict[str, defaultdict[str, list[Mapping[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for verdict in judgements:
        if not verdict.case.probe and verdict.scores:
            mark = "" if verdict.believable else UNCALIBRATED
            graded[f"{verdict.case.work.dataset}: grades of memories{mark}"][verdict.case.work.system].append(
                verdict.scores
            )
    return [
        Table.of(
            caption,
            [
                {
                    "system": system,
                    "memories": len(grades),
                    **{name: estimate([scores[name] for scores in grades]).as_text(digits=2) for name in grades[0]},
                }
                for system, grades in sorted(by_system.items())
            ],
        )
        for caption, by_system in sorted(graded.items())
    ]
