"""Asking a judge: items in, a verdict for each out, in their order. Knows no particular judge and no backend.

An answer that cannot be used is counted; an item none of whose answers can be used has a verdict without scores.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from localmem.errors import BadInput
from localmem.evaluation.judging.judges import FIRST, RIGHT, SECOND, TIE, Grades, Item, Judge, Numbers, Pair, Words
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, count_fallback, generate_usable, integer
from localmem.prompts import render
from localmem.types import Choice, Completion, Format, Prompt

Track = Callable[[int], object]  # told how many more prompts were answered

_CHUNK = 256  # prompts in one call of the backbone
_PLACES = ("1", "2", TIE)
_FLIPPED = {"1": "flip to 1", "2": "flip to 2"}  # the place that was named in both orders
FLIPS = tuple(_FLIPPED.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says of one item.

    `scores` are by the judge's scales, so that their means are shares (or mean numbers); they are empty when no answer
    could be used. `label` is the word it came to, if the judge gives words. `votes` count the samples' words; of two
    things compared, a sample that named one place in both orders is "flip to" that place and counts as a tie.
    `probabilities` are the model's own for the words, averaged over the samples, where the backend tells.
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


Answers = Sequence[Completion | None]  # None where one could not be used


def ask_judge(
    llm: LLM,
    judge: Judge,
    items: Sequence[Item],
    *,
    seed: int = 0,
    fallbacks: Counter[str] | None = None,
    track: Track = lambda _: None,
) -> list[Verdict]:
    """A verdict for each item. `fallbacks` counts the answers that could not be used, by the prompt's name.

    All prompts of all items and samples go out together. Sample n is drawn with `seed` + n. Raises BadInput for an item
    that lacks an input.
    """
    prompts = [prompt for item in items for prompt in prompts_of(judge, item, seed)]
    counted: Counter[str] = Counter() if fallbacks is None else fallbacks
    answers = _answered(llm, prompts, counted, track)
    return [_verdict(judge, item, list(islice(answers, judge.prompts)), counted) for item in items]


def prompts_of(judge: Judge, item: Item, seed: int = 0) -> list[Prompt]:
    """Every prompt of one item: by each criterion, for each sample, in each order."""
    lacking = [name for name in judge.inputs if name not in item]
    if lacking:
        raise BadInput(f"the judge {judge.name!r} needs {', '.join(lacking)}, and the item has {sorted(item)}")
    given = {name: item.get(name, "") for name in (*judge.inputs, *judge.optional)}
    orders = [given]
    if isinstance(judge.verdict, Pair):
        one, two = judge.verdict.first, judge.verdict.second
        orders.append(given | {one: given[two], two: given[one]})
    form = _form(judge, item)
    found = []
    owns = [{"criterion": name} for name in judge.criteria] or [{}]
    for own in owns:
        shown = [render(judge.prompt, form=form, **own, **order) for order in orders]
        found += [
            replace(prompt, temperature=judge.temperature, seed=seed + sample)
            for sample in range(judge.samples)
            for prompt in shown
        ]
    return found


def _answered(
    llm: LLM, prompts: Sequence[Prompt], fallbacks: Counter[str], track: Track
) -> Iterator[Completion | None]:
    for start in range(0, len(prompts), _CHUNK):
        part = generate_usable(llm, prompts[start : start + _CHUNK], fallbacks)
        track(len(part))
        yield from part


def _form(judge: Judge, item: Item) -> Format:
    match judge.verdict:
        case Words() as words:
            return Choice(words.of(item))
        case Numbers(names=names, low=low, high=high):
            return answer_format(**{name: integer(low, high) for name in names})
        case Grades(low=low, high=high):
            return Choice(tuple(str(grade) for grade in range(low, high + 1)))
        case Pair():
            return Choice(_PLACES)


def _verdict(judge: Judge, item: Item, answers: Answers, fallbacks: Counter[str]) -> Verdict:
    found = _read(judge, item, answers, fallbacks)
    return replace(found, trimmed=sum(answer is not None and answer.trimmed > 0 for answer in answers))


def _read(judge: Judge, item: Item, answers: Answers, fallbacks: Counter[str]) -> Verdict:
    match judge.verdict:
        case Words() as words:
            return _worded(words, item, answers)
        case Numbers() as numbers:
            return _numbered(judge, numbers, answers, fallbacks)
        case Grades():
            return _graded(judge, answers)
        case Pair():
            return _compared(answers)


def _worded(words: Words, item: Item, answers: Answers) -> Verdict:
    said = [answer for answer in answers if answer is not None]
    if not said:
        return Verdict(unusable=len(answers))
    votes = Counter(answer.text for answer in said)
    label = _most(votes, words.undecided)
    scores = {option: float(option == label) for option in words.options}
    if words.right:
        scores[RIGHT] = float(words.is_right(item, label))
    return Verdict(label, scores, votes, _mean([_probabilities(answer) for answer in said]), len(answers) - len(said))


def _numbered(judge: Judge, numbers: Numbers, answers: Answers, fallbacks: Counter[str]) -> Verdict:
    read = [_numbers(judge, numbers, answer, fallbacks) for answer in answers if answer is not None]
    said = [one for one in read if one is not None]
    return Verdict(scores=_mean(said), unusable=len(answers) - len(said))


def _numbers(judge: Judge, numbers: Numbers, answer: Completion, fallbacks: Counter[str]) -> Mapping[str, float] | None:
    """A server may be older than the bounds that were asked of it, so they are looked at again."""
    value = json.loads(answer.text)
    if isinstance(value, dict):
        found = {name: value.get(name) for name in numbers.names}
        held = {
            name: float(one)
            for name, one in found.items()
            if isinstance(one, int) and numbers.low <= one <= numbers.high
        }
        if len(held) == len(numbers.names):
            return held
    count_fallback(judge.prompt, f"its answer {answer.text!r:.80} holds no numbers in range", fallbacks)
    return None


def _graded(judge: Judge, answers: Answers) -> Verdict:
    """The mean of each criterion's samples; one without a usable answer has no score."""
    left = iter(answers)
    scores: dict[str, float] = {}
    for name in judge.criteria:
        grades = [float(answer.text) for answer in islice(left, judge.samples) if answer is not None]
        if grades:
            scores[name] = sum(grades) / len(grades)
    return Verdict(scores=scores, unusable=sum(answer is None for answer in answers))


def _compared(answers: Answers) -> Verdict:
    """Samples come as pairs: as given, then the other way round."""
    both = list(zip(answers[::2], answers[1::2], strict=True))
    said = [(given, turned) for given, turned in both if given is not None and turned is not None]
    lost = sum(answer is None for answer in answers)
    if not said:
        return Verdict(unusable=lost)
    votes = Counter(_sample(given.text, turned.text) for given, turned in said)
    settled = Counter({TIE: 0})
    for word, count in votes.items():
        settled[TIE if word in FLIPS else word] += count
    label = _most(settled, TIE)
    scores = {one: float(one == label) for one in (FIRST, SECOND, TIE)}
    return Verdict(label, scores, votes, _mean([_sides(*pair) for pair in said]), lost)


def _sample(given: str, turned: str) -> str:
    """What one sample says: the same thing in both orders, or nothing."""
    if given == turned:
        return _FLIPPED.get(given, TIE)
    return {("1", "2"): FIRST, ("2", "1"): SECOND}.get((given, turned), TIE)


def _sides(given: Completion, turned: Completion) -> Mapping[str, float]:
    """The probabilities of the two things, whichever place they stood in."""
    one, two = _probabilities(given), _probabilities(turned)
    if not one or not two:
        return {}
    return {
        FIRST: (one["1"] + two["2"]) / 2,
        SECOND: (one["2"] + two["1"]) / 2,
        TIE: (one[TIE] + two[TIE]) / 2,
    }


def _probabilities(answer: Completion) -> Mapping[str, float]:
    return {word: math.exp(weight) for word, weight in (answer.choices or {}).items()}


def _most(votes: Counter[str], undecided: str) -> str:
    """The word with the most votes; `undecided` when two share the first place."""
    (word, count), *rest = votes.most_common(2)
    return undecided if rest and rest[0][1] == count else word


def _mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Name by name, over the rows that have names at all."""
    held = [row for row in rows if row]
    return {name: sum(row[name] for row in held) / len(held) for name in held[0]} if held else {}
