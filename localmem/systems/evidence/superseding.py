"""Superseding: which earlier sentence a new one replaces, by a logistic model of a few features, without an LLM.

Two sentences of a user are compared by how much nearer they are than others, by the numbers, days and months in which
they differ, by words that announce a change ("moved to", "now", "called off"), and by the names that fill the same slot
("I live in"). Words and weights stand in superseding.yaml. Pure functions; nearness comes from whoever has an index.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property, lru_cache
from itertools import compress, pairwise
from pathlib import Path

from pydantic import BaseModel

from localmem.files import read_yaml
from localmem.systems.evidence.slots import Slot, read_slots
from localmem.text.clauses import split_clauses
from localmem.text.parse import words

_TOP, _OTHERS = 3, 20  # the matches from the fourth to the twentieth say how near any two sentences are
_FEW, _USUAL = 7, 0.2  # with fewer matches than this, the usual cosine of two unrelated sentences counts
_OTHER_MATTER = re.compile(  # begins a clause that goes on with something else than the one before it
    r"(?:and|but|plus)\s(?!(?:i[ts]|it['’]s|that|this|then|so|now|not|also|they|he|she|who|which)\b)|(?:my|our|the)\s",
    re.IGNORECASE,
)
_SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True)
class Sentence:
    """What is compared of a sentence: its longer words, values as (kind, value), cues of change, and slots."""

    text: str
    words: frozenset[str]
    values: frozenset[tuple[str, str]]
    cues: frozenset[str]

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """What it fills with a name; read when asked for, which is seldom."""
        return tuple(read_slots(self.text))

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of its values."""
        return frozenset(kind for kind, _ in self.values)

    @property
    def may_replace(self) -> bool:
        """Whether it could replace anything: it announces a change or holds a value."""
        return bool(self.cues or self.values or any(slot.is_change for slot in self.slots))

    @property
    def matters(self) -> frozenset[str]:
        """What it gives a value of: the kinds of its values and slots."""
        return self.kinds | {slot.kind for slot in self.slots}


@lru_cache(maxsize=4096)  # what is near to one sentence often is to the next
def read_sentence(text: str) -> Sentence:
    """A sentence as it is compared."""
    rules, spaced = _rules(), [word.replace("'", "") for word in words(text)]
    line = " ".join(spaced)
    numbers = re.findall(r"\d+(?:[.,:]\d+)*", text)
    values = {(kind, match[0][:3]) for kind in ("day", "month") for match in rules.values[kind].finditer(line)}
    values |= {("number", match[0]) for match in rules.values["number"].finditer(" ".join([*spaced, *numbers]))}
    cues = {name for name, cue in rules.cues.items() if cue.search(line)}
    if _SPACELESS.search(text):
        cues |= {name for name, cue in rules.unspaced.items() if cue.search(text)}
    return Sentence(text, frozenset(word for word in spaced if len(word) > 3), frozenset(values), frozenset(cues))


def nearness(cosines: Sequence[float]) -> list[float]:
    """How much nearer each match is than those that match by chance; `cosines` stand in falling order."""
    others = cosines[_TOP:_OTHERS] if len(cosines) >= _FEW else [_USUAL]
    usual = sum(others) / len(others)
    return [cosine - usual for cosine in cosines]


def describe(new: Sentence, old: Sentence, near: float, gap: timedelta, *, same_session: bool) -> dict[str, float]:
    """The features of a pair by name; `gap` is the time between them."""
    kinds = new.kinds & old.kinds
    gained, lost = new.values - old.values, old.values - new.values
    changed = all(any(kind in kinds for kind, _ in side) for side in (gained, lost))
    count = min(len(new.cues), 3)
    fills_slot = any(slot.replaces(other) for slot in new.slots for other in old.slots)
    return {
        "near": near,
        "changed_near": changed * near,
        "kinds": len(kinds),
        "names_both": bool(new.values & old.values) and bool(gained),
        "no_old_value": not old.values,
        "shared_words": len(new.words & old.words) / max(1, len(new.words)),
        "cues": count,
        "cues_near": count * near,
        "slot": fills_slot,
        "same_session": same_session and not fills_slot,  # an announced change is as sure there
        "days": math.log1p(max(0, gap.days)),
        **{f"cue_{name}": name in new.cues for name in _rules().cues},
    }


def corrects_alone(new: Sentence, old: Sentence) -> bool:
    """Whether a correction names what it corrects and another value, so that it can stand in the old one's place."""
    kinds = {kind for kind, _ in new.values - old.values} & {kind for kind, _ in old.values - new.values}
    return bool(kinds and new.words & old.words)


def find_replaced(old: str, new: Sentence) -> list[str]:
    """The passages of a sentence that a new one replaces: those that share a word, slot or kind of value with it.

    All of the sentence where no value of it is replaced: words alone do not tell what else has changed.
    """
    starts = [start for start, _ in split_clauses(old) if not start or _OTHER_MATTER.match(old, start)]
    passages = [old[start:end].rstrip() for start, end in pairwise([*starts, len(old)])]
    sentences = [read_sentence(passage) for passage in passages]
    if not any(sentence.matters & new.matters for sentence in sentences):
        return [old]
    shares = [bool(sentence.matters & new.matters or sentence.words & new.words) for sentence in sentences]
    return [old] if all(shares) else list(compress(passages, shares))


def probability(features: Mapping[str, float]) -> float:
    """The probability that the new sentence replaces the old one."""
    rules = _rules()
    total = rules.bias + sum(weight * features[name] for name, weight in rules.weights.items())
    return 1 / (1 + math.exp(-total))


class _Table(BaseModel):
    cues: dict[str, str]
    unspaced: dict[str, str]
    values: dict[str, str]
    weights: dict[str, float]
    bias: float


@dataclass(frozen=True)
class _Rules:
    cues: Mapping[str, re.Pattern[str]]
    unspaced: Mapping[str, re.Pattern[str]]
    values: Mapping[str, re.Pattern[str]]
    weights: Mapping[str, float]
    bias: float


@cache
def _rules() -> _Rules:
    table = _Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))
    cues, values = (_compile(phrases, r"(?<!\w)(?:{})(?!\w)") for phrases in (table.cues, table.values))
    return _Rules(cues, _compile(table.unspaced, "{}"), values, table.weights, table.bias)


def _compile(phrases: Mapping[str, str], form: str) -> dict[str, re.Pattern[str]]:
    return {name: re.compile(form.format(text.strip().replace(" | ", "|"))) for name, text in phrases.items()}
