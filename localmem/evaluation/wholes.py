"""What can only be said of all answers together, and of whole memories: BLEU, variety, perplexity, gold memory.

Receives the lines of a run and whatever model a measure needs; loads none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from localmem.bank import Bank
from localmem.evaluation.answers import Answer, Line, Read, Work, answers_of
from localmem.evaluation.metrics.likelihood import perplexity
from localmem.evaluation.metrics.memory import by_words, matched, shared_words
from localmem.evaluation.metrics.text import bleu, distinct, rouge
from localmem.evaluation.sections import Table

Measure = Callable[[Sequence[str], Sequence[str]], float]  # texts and gold texts to one number


def tables(lines: Sequence[Line], more: Mapping[str, Measure]) -> list[Table]:
    """For each data set its answers by system, and memories against gold ones; `more` are measures that ask a model."""
    answers = answers_of(lines)
    found: list[Table] = []
    for data in sorted({answer.work.data for answer in answers}):
        rows = []
        for system in sorted({answer.work.system for answer in answers if answer.work.data == data}):
            held = [one for one in answers if one.work[:2] == (system, data) and not one.error and one.gold[0].strip()]
            if held:
                rows.append({"system": system, **_row(held, more)})
        if rows:
            found.append(Table.of(f"{data}: all answers together (failed ones left out)", rows))
    return [*found, *_memories(lines)]


def _row(answers: Sequence[Answer], more: Mapping[str, Measure]) -> dict[str, object]:
    texts = [answer.text for answer in answers]
    golds = [[gold for gold in answer.gold if gold.strip()] for answer in answers]
    row: dict[str, object] = {f"BLEU-{order}": bleu(texts, golds, order).corpus for order in (1, 2, 4)}
    row |= {name.replace("rouge", "ROUGE-"): fmean(values) for name, values in rouge(texts, golds).items()}
    row |= {f"Distinct-{order}": distinct(texts, order) for order in (1, 2)}
    if weighed := [answer.likelihood for answer in answers if answer.likelihood]:
        row["perplexity of gold"] = perplexity(weighed)
    return row | {name: measure(texts, [one[0] for one in golds]) for name, measure in more.items()}


def _memories(lines: Sequence[Line]) -> list[Table]:
    """After each session with gold sentences: how many are held, and how much of what is held is one of them."""
    found: defaultdict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for work, held, gold in _held(lines):
        found[work.data, work.system].append((*shared_words(held, gold), *matched(by_words(held, gold))))
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
