"""Algorithm 1 of Keep Me Updated: what becomes of remembered and of new sentences, given an operation for each pair.

Pure functions over the sentences' names; they do not depend on texts, a classifier or a bank.

The order of the algorithm's lines settles conflicting labels:

- Lines 3-9 come first. A remembered sentence is retired if its label with any new one is REPLACE or DELETE; no other
  label of its row can save it. A new sentence with a DELETE is dropped too, whatever its other labels are.
- Lines 10-14 consider only the remembered sentences that are not retired. A new sentence is dropped if its label with
  one of them is PASS. A PASS with a retired sentence has no effect.
- A remembered sentence that REPLACE retired stays retired even if the new one is then dropped by a DELETE or a PASS.
- APPEND never outweighs another label.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from localmem.classification import Operation

Labels = Mapping[tuple[str, str], Operation]
Step = Literal["keep", "retire", "add", "drop"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happens to one sentence: remembered ones are kept or retired, new ones added or dropped.

    `because` is the operation that decided against it, `other` the sentence of the other side in that pair.
    """

    sentence: str
    step: Step
    because: Operation | None = None
    other: str = ""


def update(memory: Sequence[str], sentences: Sequence[str], labels: Labels) -> list[Outcome]:
    """The outcome of each remembered sentence, then of each new one, in the given orders (Algorithm 1).

    All names differ. `labels` maps (m, s) to O(m, s); a missing pair is an APPEND.
    """
    against = {m: [s for s in sentences if labels.get((m, s)) in ("REPLACE", "DELETE")] for m in memory}  # lines 3-6
    surviving = [m for m in memory if not against[m]]  # line 9
    new = [_new(s, memory, surviving, labels) for s in sentences]
    stored = {outcome.sentence for outcome in new if outcome.step == "add"}  # line 14
    return [*(_old(m, against[m], stored, labels) for m in memory), *new]


def remaining(outcomes: Sequence[Outcome]) -> list[str]:
    """M': the sentences remembered from now on, old ones before new ones."""
    return [outcome.sentence for outcome in outcomes if outcome.step in ("keep", "add")]


def replacements(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    """The remembered sentences that each stored new sentence replaced; without those that replaced none."""
    stored = {outcome.sentence for outcome in outcomes if outcome.step == "add"}
    replaced: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.step == "retire" and outcome.other in stored:
            replaced.setdefault(outcome.other, []).append(outcome.sentence)
    return replaced


def _old(m: str, against: Sequence[str], stored: Container[str], labels: Labels) -> Outcome:
    """The outcome of a remembered sentence. `other` is the first sentence against it that is stored, else the first."""
    if not against:
        return Outcome(m, "keep")
    other = next((s for s in against if s in stored), against[0])
    return Outcome(m, "retire", labels[m, other], other)


def _new(s: str, memory: Sequence[str], surviving: Sequence[str], labels: Labels) -> Outcome:
    deletes = (m for m in memory if labels.get((m, s)) == "DELETE")  # lines 7-8
    passes = (m for m in surviving if labels.get((m, s)) == "PASS")  # lines 10-13
    other = next(chain(deletes, passes), None)
    return Outcome(s, "add") if other is None else Outcome(s, "drop", labels[other, s], other)
