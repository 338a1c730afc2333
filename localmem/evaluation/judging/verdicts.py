"""Asking a judge: items in, one verdict per item out, in order. Does not depend on a particular judge or backend.

Unusable answers are counted; an item without a usable answer gets a verdict without scores.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from localmem.evaluation.judging.judges import (
    FIRST,
    RIGHT,
    SECOND,
    TIE,
    Grades,
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
from localmem.types import Choice, Completion, Format, Prompt

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
    return [_verdict(judge, item, list(islice(answers, judge.prompts)), counts) for item in items]


def judge_prompts(judge: Judge, item: Item, seed: int = 0) -> list[Prompt]:
    """Every prompt of one item: by criterion, by sample, in each order."""
    check_item(judge, item)
    inputs = {name: item.get(name, "") for name in (*judge.inputs, *judge.optional)}
    orders = [inputs]
    if isinstance(judge.verdict, Pair):
        first, second = judge.verdict.first, judge.verdict.second
        orders.append(inputs | {first: inputs[second], second: inputs[first]})
    form = _format(judge, item)
    prompts = []
    for criterion in [{"criterion": name} for name in judge.criteria] or [{}]:
        rendered = [render(judge.prompt, form=form, **criterion, **order) for order in orders]
        prompts += [
            replace(prompt, temperature=judge.temperature, seed=seed + sample)
            for sample in range(judge.samples)
            for prompt in rendered
        ]
    return prompts


def _generate(
    llm: LLM, prompts: Sequence[Prompt], fallbacks: Counter[str], track: Track
) -> Iterator[Completion | None]:
    for start in range(0, len(prompts), _CHUNK):
        answers = generate_usable(llm, prompts[start : start + _CHUNK], fallbacks)
        track(len(answers))
        yield from answers


def _format(judge: Judge, item: Item) -> Format:
    match judge.verdict:
        case Words() as words:
            return Choice(words.options_of(item))
        case Numbers(names=names, low=low, high=high):
            return answer_format(**{name: integer(low, high) for name in names})
        case Grades(low=low, high=high):
            return Choice(tuple(str(grade) for grade in range(low, high + 1)))
        case Pair():
            return Choice(_POSITIONS)


def _verdict(judge: Judge, item: Item, answers: Answers, fallbacks: Counter[str]) -> Verdict:
    verdict = _combine(judge, item, answers, fallbacks)
    return replace(verdict, trimmed=sum(answer is not None and answer.trimmed > 0 for answer in answers))


def _combine(judge: Judge, item: Item, answers: Answers, fallbacks: Counter[str]) -> Verdict:
    match judge.verdict:
        case Words() as words:
            return _from_words(words, item, answers)
        case Numbers() as numbers:
            return _from_numbers(judge, numbers, answers, fallbacks)
        case Grades():
            return _from_grades(judge, answers)
        case Pair():
            return _from_pairs(answers)


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


def _from_numbers(judge: Judge, numbers: Numbers, answers: Answers, fallbacks: Counter[str]) -> Verdict:
    parsed = [_parse_numbers(judge, numbers, answer, fallbacks) for answer in answers if answer is not None]
    usable = [row for row in parsed if row is not None]
    return Verdict(scores=_mean(usable), unusable=len(answers) - len(usable))


def _parse_numbers(
    judge: Judge, numbers: Numbers, answer: Completion, fallbacks: Counter[str]
) -> Mapping[str, float] | None:
    """The bounds are checked again, since an older server may ignore them."""
    document = json.loads(answer.text)
    if isinstance(document, dict):
        values = {name: document.get(name) for name in numbers.names}
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
    return {
        FIRST: (before["1"] + after["2"]) / 2,
        SECOND: (before["2"] + after["1"]) / 2,
        TIE: (before[TIE] + after[TIE]) / 2,
    }


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
