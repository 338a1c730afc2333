"""Measures of all answers together and of whole memories: BLEU, variety, perplexity, gold memory.

Receives the lines of a run and the models that measures need; loads none.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean

from localmem.bank import Bank
from localmem.evaluation.answers import Answer, Line, Read, Work, answers_of
from localmem.evaluation.file_scoring import LEXICAL_METRICS, MetricName, ScorableReply, ScoringModels, score_replies
from localmem.evaluation.metrics.gold_memory import match_sentences, rouge_similarities, shared_words
from localmem.evaluation.metrics.likelihood import perplexity
from localmem.reporting.sections import Table

_MEMORY_COLUMNS = [f"{name} {of}" for of in ("of words", "of sentences") for name in ("precision", "recall", "F1")]


def tables(lines: Sequence[Line], metrics: Sequence[MetricName], models: ScoringModels) -> list[Table]:
    """A table of answers by system for each data set, then memories against gold ones; `metrics` are further ones."""
    scorable: defaultdict[str, defaultdict[str, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers_of(lines):
        if not answer.error and answer.gold[0].strip():
            scorable[answer.work.dataset][answer.work.system].append(answer)
    answer_tables = [
        Table.of(
            f"{dataset}: all answers together (without failed ones)",
            [{"system": system, **_measures(answers, metrics, models)} for system, answers in by_system.items()],
        )
        for dataset, by_system in sorted(scorable.items())
    ]
    return [*answer_tables, *_memory_tables(lines)]


def _measures(answers: Sequence[Answer], metrics: Sequence[MetricName], models: ScoringModels) -> dict[str, float]:
    replies = [
        ScorableReply(answer.probe, answer.text, tuple(gold for gold in answer.gold if gold.strip()))
        for answer in answers
    ]
    measures = dict(score_replies(replies, (*LEXICAL_METRICS, *metrics), models=models).overall)
    likelihoods = [answer.likelihood for answer in answers if answer.likelihood]
    return measures | ({"perplexity of gold": perplexity(likelihoods)} if likelihoods else {})


def _memory_tables(lines: Sequence[Line]) -> list[Table]:
    """After each session with gold sentences: how many the memory holds, and how much of it is gold."""
    figures: defaultdict[str, defaultdict[str, list[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(list))
    for work, memory, gold in _memories(lines):
        sentences = match_sentences(rouge_similarities(memory, gold))
        figures[work.dataset][work.system].append((*shared_words(memory, gold), *sentences))
    return [
        Table.of(
            f"{dataset}: memory against gold memory, mean over sessions",
            [
                {
                    "system": system,
                    "sessions": len(rows),
                    **dict(zip(_MEMORY_COLUMNS, map(fmean, zip(*rows, strict=True)), strict=True)),
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
