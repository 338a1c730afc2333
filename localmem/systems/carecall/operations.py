"""Algorithm 1 of Keep Me Updated: what becomes of remembered and of new sentences, given an operation for each pair.

A pure function over names; knows no texts, no classifier, no bank.

How conflicting labels are settled follows from the order of the algorithm's lines:

- Lines 3-9 come first. A remembered sentence goes if any new one says REPLACE or DELETE about it; no other label of its
  row can save it. A new sentence that says DELETE about any remembered one goes too, whatever it says about the others.
- Lines 10-14 look at the remembered sentences that are left, and at no others. A new sentence goes if one of them says
  PASS about it. A PASS by a remembered sentence that is itself gone counts for nothing.
- A remembered sentence that REPLACE retired stays retired even if the new one is then dropped by a DELETE or a PASS.
- APPEND never outweighs anything.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from localmem.text.base import Operation

Labels = Mapping[tuple[str, str], Operation]
Step = Literal["keep", "retire", "add", "drop"]


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one sentence: remembered ones are kept or retired, new ones added or dropped.

    `because` is the operation that decided against it, `other` the sentence of the other side that it was said with.
    """

    sentence: str
    step: Step
    because: Operation | None = None
    other: str = ""


def update(memory: Sequence[str], sentences: Sequence[str], labels: Labels) -> list[Fate]:
    """The fate of each remembered sentence, then of each new one, in the orders given (Algorithm 1).

    All names differ. `labels` holds O(m, s) by (m, s); a pair that it lacks is an APPEND.
    """
    against = {m: [s for s in sentences if labels.get((m, s)) in ("REPLACE", "DELETE")] for m in memory}  # lines 3-6
    left = [m for m in memory if not against[m]]  # line 9
    new = [_new(s, memory, left, labels) for s in sentences]
    stored = {fate.sentence for fate in new if fate.step == "add"}  # line 14
    return [*(_old(m, against[m], stored, labels) for m in memory), *new]


def remaining(fates: Sequence[Fate]) -> list[str]:
    """M': what is remembered from now on, old sentences before new ones."""
    return [fate.sentence for fate in fates if fate.step in ("keep", "add")]


def replacements(fates: Sequence[Fate]) -> dict[str, list[str]]:
    """For each new sentence that is stored, the remembered ones whose place it took, if any."""
    stored = {fate.sentence for fate in fates if fate.step == "add"}
    taken: dict[str, list[str]] = {}
    for fate in fates:
        if fate.step == "retire" and fate.other in stored:
            taken.setdefault(fate.other, []).append(fate.sentence)
    return taken


def _old(m: str, against: Sequence[str], stored: Container[str], labels: Labels) -> Fate:
    """What took the place of `m` is the first sentence against it that is stored, else the first against it."""
    if not against:
        return Fate(m, "keep")
    other = next((s for s in against if s in stored), against[0])
    return Fate(m, "retire", labels[m, other], other)


def _new(s: str, memory: Sequence[str], left: Sequence[str], labels: Labels) -> Fate:
    deletes = (m for m in memory if labels.get((m, s)) == "DELETE")  # lines 7-8
    passes = (m for m in left if labels.get((m, s)) == "PASS")  # lines 10-13
    other = next(chain(deletes, passes), None)
    return Fate(s, "add") if other is None else Fate(s, "drop", labels[other, s], other)
