"""The judges as plain values: prompt, required inputs, form of the verdict, number of samples; see data/judges.yaml.

Does not depend on a model. An item is a mapping of strings; the input names are the same for all judges:

- question, gold, answer: the question, the right answer ("" if the history has none), the answer to judge
- other: the second of two to compare
- dialogue: the current conversation up to the turn to judge, as lines "speaker: text"; for `memory` all sessions
- past: what is known from earlier conversations (gold memory, persona, evidence)
- recalled, memory: what a system recalled for this turn; everything it remembers
- speaker: who replies, or whom the memory is about
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from localmem.errors import BadInput
from localmem.evaluation import DATA
from localmem.files import parse, read_yaml

Item = Mapping[str, str]
Unit = Literal["answer", "two answers", "two recalls", "memory"]

FIRST, SECOND, TIE = "first", "second", "tie"
RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Words:
    """The verdict is one of the options, and `undecided` if the samples are tied.

    `right` is the option for a right answer, if there is one. For an item with an empty gold answer `abstained` takes
    its place, and `right` is not an option.
    """

    options: tuple[str, ...]
    undecided: str
    right: str = ""
    abstained: str = ""

    def options_of(self, item: Item) -> tuple[str, ...]:
        """The options that this item can get."""
        return tuple(option for option in self.options if item.get("gold", " ") or option != self.right)

    def is_right(self, item: Item, label: str) -> bool:
        """Whether the label is the one for a right answer to this item."""
        return label == (self.right if item.get("gold", " ") else self.abstained)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The verdict is a JSON object with one integer per name; several samples are averaged.

    Without names, it is a grade for each of the judge's criteria, each in its own prompt.
    """

    low: int
    high: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """The verdict is the better of two inputs or a tie. Both orders are asked; a choice that flips is a tie.

    Several samples vote; a tied vote is a tie.
    """

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Judge:
    """One judge. An item must have the `inputs` and may have the `optional` ones. `samples` use `temperature`.

    A prompt with several criteria takes a criterion's name as an input, and each item is asked about each.
    """

    name: str
    prompt: str
    unit: Unit
    verdict: Words | Numbers | Pair
    inputs: tuple[str, ...]
    optional: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    samples: int = 1
    temperature: float = 0.0

    @property
    def prompts(self) -> int:
        """The number of prompts for one item."""
        return max(1, len(self.criteria)) * self.samples * (2 if isinstance(self.verdict, Pair) else 1)

    @property
    def scales(self) -> tuple[str, ...]:
        """The names of a verdict's scores."""
        match self.verdict:
            case Words(options=options, right=right):
                return (RIGHT, *options) if right else options
            case Numbers(names=names):
                return names or self.criteria
            case Pair():
                return FIRST, SECOND, TIE

    def with_samples(self, samples: int) -> "Judge":
        """The same judge with this number of samples: greedy for one, at temperature 1 for several. Raises BadInput."""
        if samples < 1 or (isinstance(self.verdict, Pair) and samples % 2 == 0):
            raise BadInput(f"{samples} samples of the judge {self.name!r} cannot have a majority; give an odd number")
        return replace(self, samples=samples, temperature=0.0 if samples == 1 else self.temperature or 1.0)


def get_judge(name: str) -> Judge:
    """The judge of this name. Raises BadInput."""
    if name not in JUDGES:
        raise BadInput(f"there is no judge {name!r}; use one of {', '.join(JUDGES)}")
    return JUDGES[name]


def check_item(judge: Judge, item: Item, place: str = "") -> None:
    """Raises BadInput, which begins with `place`, for an item that lacks one of the judge's inputs."""
    missing = [name for name in judge.inputs if name not in item]
    if missing:
        fields = f"the item has {sorted(item)}"
        raise BadInput(f"{place}{fields}; add {', '.join(missing)}, which the judge {judge.name!r} needs")


_FILE = DATA / "judges.yaml"
_JUDGES = parse(str(_FILE), read_yaml(_FILE).get("judges"), TypeAdapter(list[Judge]), "install localmem again")
JUDGES: Mapping[str, Judge] = {judge.name: judge for judge in _JUDGES}
