"""Asking a judge: items in, one verdict per item out, in order. Does not depend on a particular judge or backend.

Unusable answers are counted; an item without a usable answer gets a verdict without scores. The entailment judge can
also be a trained NLI model: the same items, the same verdicts. Such models compare two sentences, so every sentence of
what is known is paired with every sentence of the answer (as SummaC does for summaries).
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadInput
from localmem.evaluation.judging.judges import (
    FIRST,
    JUDGES,
    RIGHT,
    SECOND,
    TIE,
    Item,
    Judge,
    Numbers,
    Pair,
    Words,
    check_item,
)
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, count_fallback, generate_usable, integer
from localmem.prompts import render
from localmem.text.parse import sentences
from localmem.types import Choice, Completion, Format, Prompt

# Prefix of an NLI model's label -> our word
_PREFIXES = {"entail": "entail", "neutral": "neutral", "contra": "contradict"}
_ENTAILMENT = JUDGES["entailment"]

Track = Callable[[int], object]  # receives the number of prompts that were just answered

_CHUNK = 256  # prompts in one call of the backbone
_POSITIONS = ("1", "2", TIE)
_FLIPPED = {"1": "flip to 1", "2": "flip to 2"}  # the position that was named in both orders
FLIPS = tuple(_FLIPPED.values())

Answers = Sequence[Completion | None]  # None for an unusable one


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's verdict on one item.

    `scores` are by the judge's scales, so that their means are shares (or mean numbers); empty if no answer was usable.
    `label` is the winning word, if the judge gives words. `votes` count the samples' words; when two are compared, a
    sample that named one position in both orders is "flip to" that position and counts as a tie. `probabilities` are
    the model's own for the words, averaged over the samples, if the backend reports them.
    """

    label: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    votes: Mapping[str, int] = field(default_factory=dict)
    probabilities: Mapping[str, float] = field(default_factory=dict)
    unusable: int = 0
    trimmed: int = 0

    @property
    def usable(self) -> bool:
        """Whether there is a verdict at all."""
        return bool(self.scores)


def ask_judge(
    llm: LLM,
    judge: Judge,
    items: Sequence[Item],
    *,
    seed: int = 0,
    fallbacks: Counter[str] | None = None,
    track: Track = lambda _: None,
) -> list[Verdict]:
    """A verdict for each item. `fallbacks` counts unusable answers by the prompt's name.

    The prompts of all items and samples are sent together; sample n uses `seed` + n. Raises BadInput for an item that
    lacks an input.
    """
    prompts = [prompt for item in items for prompt in judge_prompts(judge, item, seed)]
    counts: Counter[str] = Counter() if fallbacks is None else fallbacks
    answers = _generate(llm, prompts, counts, track)
    verdicts = []
    for item in items:
        part = list(islice(answers, judge.prompts))
        match judge.verdict:
            case Words() as words:
                verdict = _from_words(words, item, part)
            case Numbers() as numbers if numbers.names:
                parsed = [_parse_numbers(judge, numbers, answer, counts) for answer in part if answer is not None]
                usable = [row for row in parsed if row is not None]
                verdict = Verdict(scores=_mean(usable), unusable=len(part) - len(usable))
            case Numbers():
                verdict = _from_grades(judge, part)
            case _:  # a pair
                verdict = _from_pairs(part)
        trimmed = sum(answer is not None and answer.trimmed > 0 for answer in part)
        verdicts.append(replace(verdict, trimmed=trimmed))
    return verdicts


def judge_prompts(judge: Judge, item: Item, seed: int = 0) -> list[Prompt]:
    """Every prompt of one item: by criterion, by sample, in each order."""
    check_item(judge, item)
    inputs = {name: item.get(name, "") for name in (*judge.inputs, *judge.optional)}
    orders = [inputs]
    if isinstance(judge.verdict, Pair):
        first, second = judge.verdict.first, judge.verdict.second
        orders.append(inputs | {first: inputs[second], second: inputs[first]})
    match judge.verdict:
        case Words() as words:
            form: Format = Choice(words.options_of(item))
        case Numbers(low, high, names) if names:
            form = answer_format(**{name: integer(low, high) for name in names})
        case Numbers(low, high):
            form = Choice(tuple(str(grade) for grade in range(low, high + 1)))
        case _:  # a pair
            form = Choice(_POSITIONS)
    prompts = []
    for criterion in [{"criterion": name} for name in judge.criteria] or [{}]:
        rendered = [render(judge.prompt, form=form, **criterion, **order) for order in orders]
        prompts += [
            replace(prompt, temperature=judge.temperature, seed=seed + sample)
            for sample in range(judge.samples)
            for prompt in rendered
        ]
    return prompts


class PairProbabilities(Protocol):
    """The part of a `PairModel` that is needed here."""

    @property
    def labels(self) -> Sequence[str]:
        """The names of the columns."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(pairs, labels) float32."""


def infer_verdicts(model: PairProbabilities, items: Sequence[Item]) -> list[Verdict]:
    """A verdict for each item, from all its pairs of sentences; the pairs of all items go to the model together.

    A sentence of the answer gets the most decisive word: the largest probability of entailment or contradiction over
    what is known, if above one half. One contradicted sentence makes the answer contradict; otherwise one entailed
    sentence makes it entail.
    """
    columns = _columns(model.labels)
    pairs_by_item = [_sentence_pairs(item) for item in items]
    rows = iter(model.probabilities([pair for groups in pairs_by_item for pairs in groups for pair in pairs]))
    return [
        _from_inference([_strongest(list(islice(rows, len(pairs))), columns) for pairs in groups if pairs])
        for groups in pairs_by_item
    ]


def _generate(
    llm: LLM, prompts: Sequence[Prompt], fallbacks: Counter[str], track: Track
) -> Iterator[Completion | None]:
    for start in range(0, len(prompts), _CHUNK):
        answers = generate_usable(llm, prompts[start : start + _CHUNK], fallbacks)
        track(len(answers))
        yield from answers


def _from_words(words: Words, item: Item, answers: Answers) -> Verdict:
    usable = [answer for answer in answers if answer is not None]
    unusable = len(answers) - len(usable)
    if not usable:
        return Verdict(unusable=unusable)
    votes = Counter(answer.text for answer in usable)
    label = _winner(votes, words.undecided)
    scores = {option: float(option == label) for option in words.options}
    if words.right:
        scores[RIGHT] = float(words.is_right(item, label))
    return Verdict(label, scores, votes, _mean([_probabilities(answer) for answer in usable]), unusable)


def _parse_numbers(
    judge: Judge, numbers: Numbers, answer: Completion, fallbacks: Counter[str]
) -> Mapping[str, float] | None:
    """The bounds are checked again, since an older server may ignore them."""
    document = json.loads(answer.text)
    values = {name: document.get(name) for name in numbers.names} if isinstance(document, dict) else {}
    valid = {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int) and numbers.low <= value <= numbers.high
    }
    if len(valid) == len(numbers.names):
        return valid
    count_fallback(judge.prompt, f"its answer {answer.text!r:.80} has no numbers in range", fallbacks)
    return None


def _from_grades(judge: Judge, answers: Answers) -> Verdict:
    """The mean over each criterion's samples; a criterion without a usable answer has no score."""
    remaining = iter(answers)
    scores: dict[str, float] = {}
    for name in judge.criteria:
        grades = [float(answer.text) for answer in islice(remaining, judge.samples) if answer is not None]
        if grades:
            scores[name] = sum(grades) / len(grades)
    return Verdict(scores=scores, unusable=sum(answer is None for answer in answers))


def _from_pairs(answers: Answers) -> Verdict:
    """Samples come as pairs: in the given order, then swapped."""
    samples = list(zip(answers[::2], answers[1::2], strict=True))
    usable = [(straight, swapped) for straight, swapped in samples if straight is not None and swapped is not None]
    unusable = sum(answer is None for answer in answers)
    if not usable:
        return Verdict(unusable=unusable)
    votes = Counter(_vote(straight.text, swapped.text) for straight, swapped in usable)
    merged = Counter({TIE: 0})
    for word, count in votes.items():
        merged[TIE if word in FLIPS else word] += count
    label = _winner(merged, TIE)
    scores = {word: float(word == label) for word in (FIRST, SECOND, TIE)}
    return Verdict(label, scores, votes, _mean([_pair_probabilities(*sample) for sample in usable]), unusable)


def _vote(straight: str, swapped: str) -> str:
    """The vote of one sample: the same thing in both orders, or a flip or tie."""
    if straight == swapped:
        return _FLIPPED.get(straight, TIE)
    return {("1", "2"): FIRST, ("2", "1"): SECOND}.get((straight, swapped), TIE)


def _pair_probabilities(straight: Completion, swapped: Completion) -> Mapping[str, float]:
    """The probabilities of the two things, averaged over both positions."""
    before, after = _probabilities(straight), _probabilities(swapped)
    if not before or not after:
        return {}
    places = {FIRST: ("1", "2"), SECOND: ("2", "1"), TIE: (TIE, TIE)}  # in either order
    return {word: (before[place] + after[swapped_place]) / 2 for word, (place, swapped_place) in places.items()}


def _probabilities(answer: Completion) -> Mapping[str, float]:
    return {word: math.exp(weight) for word, weight in (answer.choices or {}).items()}


def _winner(votes: Counter[str], undecided: str) -> str:
    """The word with the most votes; `undecided` if two share the first place."""
    (word, count), *others = votes.most_common(2)
    return undecided if others and others[0][1] == count else word


def _mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By name, over the rows that are not empty."""
    filled = [row for row in rows if row]
    return {name: sum(row[name] for row in filled) / len(filled) for name in filled[0]} if filled else {}


def _columns(labels: Sequence[str]) -> Mapping[str, int]:
    columns = {
        word: index
        for index, label in enumerate(labels)
        for prefix, word in _PREFIXES.items()
        if label.lower().startswith(prefix)
    }
    if set(columns) != set(_PREFIXES.values()):
        raise BadInput(f"the model has the labels {list(labels)}; an NLI model has entailment, neutral, contradiction")
    return columns


def _sentence_pairs(item: Item) -> list[list[tuple[str, str]]]:
    """For each sentence of the answer its pairs with everything that is known."""
    check_item(_ENTAILMENT, item)
    premises = sentences(item["past"])
    return [[(premise, sentence) for premise in premises] for sentence in sentences(item["answer"])]


def _strongest(rows: Sequence[NDArray[np.float32]], columns: Mapping[str, int]) -> dict[str, float]:
    """For one sentence: the largest probability of either, and the remainder for neutral."""
    table = np.stack(rows)
    entail, contradict = (float(table[:, columns[word]].max()) for word in ("entail", "contradict"))
    return {"entail": entail, "neutral": max(0.0, 1 - entail - contradict), "contradict": contradict}


def _from_inference(strongest: Sequence[Mapping[str, float]]) -> Verdict:
    scales = _ENTAILMENT.scales
    words = [max(row, key=lambda word: row[word]) if max(row.values()) > 0.5 else "neutral" for row in strongest]
    label = next((word for word in ("contradict", "entail") if word in words), "neutral")
    highest = {word: max((row[word] for row in strongest), default=0.0) for word in scales}
    total = sum(highest.values()) or 1.0
    probabilities = {word: value / total for word, value in highest.items()}
    return Verdict(label, {word: float(word == label) for word in scales}, {label: 1}, probabilities)
