"""What can only be said of all answers together, and of whole memories: BLEU, variety, perplexity, gold memory.

Receives the lines of a run and whatever model a measure needs; loads none.
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


def tables(lines: Sequence[Line], more: Sequence[MetricName], models: ScoringModels) -> list[Table]:
    """For each data set its answers by system, and memories against gold ones; `more` measures ask `models`."""
    answers = answers_of(lines)
    found: list[Table] = []
    for data in sorted({answer.work.dataset for answer in answers}):
        rows = []
        for system in sorted({answer.work.system for answer in answers if answer.work.dataset == data}):
            held = [one for one in answers if one.work[:2] == (system, data) and not one.error and one.gold[0].strip()]
            if held:
                rows.append({"system": system, **_row(held, more, models)})
        if rows:
            found.append(Table.of(f"{data}: all answers together (failed ones left out)", rows))
    return [*found, *_memories(lines)]


def _row(answers: Sequence[Answer], more: Sequence[MetricName], models: ScoringModels) -> dict[str, float]:
    replies = [
        ScorableReply(answer.probe, answer.text, tuple(gold for gold in answer.gold if gold.strip()))
        for answer in answers
    ]
    found = score_replies(replies, (*LEXICAL_METRICS, *more), models=models).overall
    weighed = [answer.likelihood for answer in answers if answer.likelihood]
    return {**found, **({"perplexity of gold": perplexity(weighed)} if weighed else {})}


def _memories(lines: Sequence[Line]) -> list[Table]:
    """After each session with gold sentences: how many are held, and how much of what is held is one of them."""
    found: defaultdict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for work, held, gold in _held(lines):
        found[work.dataset, work.system].append(
            (*shared_words(held, gold), *match_sentences(rouge_similarities(held, gold)))
        )
    names = [f"{what} {of}" for of in ("of words", "of sentences") for what in ("precision", "recall", "F1")]
    tables = []
    for data in sorted({data for data, _ in found}):
        rows = [
            {
                "system": system,
                "sessions": len(values),
                **dict(zip(names, map(fmean, zip(*values, strict=True)), strict=True)),
            }
            for (of, system), values in sorted(found.items())
            if of == data
        ]
        tables.append(Table.of(f"{data}: memory against gold memory, mean over sessions", rows))
    return tables


def _held(lines: Sequence[Line]) -> Iterator[tuple[Work, list[str], Sequence[str]]]:
    """What each memory holds once a session with gold sentences is over; sessions stand in the order of reading."""
    banks: defaultdict[Work, Bank] = defaultdict(Bank)
    for line in lines:
        if isinstance(line, Read):
            banks[line.work] = banks[line.work].apply(line.changes)
            if line.gold:
                bank = banks[line.work]
                yield line.work, [*(unit.text for unit in bank.live()), *bank.notes.values()], line.gold
