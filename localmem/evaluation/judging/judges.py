"""The judges as plain values: which prompt, what an item must hold, what an answer may be, how often it is asked.

Knows no model and no data. An item is a mapping of strings; the words of the inputs are the same for all judges:

- question, gold, answer: what was asked, the right answer ("" when the history does not say), the one that is judged
- other: the second of two that are compared
- dialogue: the current conversation up to the turn that is judged, as lines "speaker: text"; for `memory` all sessions
- past: what is known from earlier conversations (gold memory, persona, evidence)
- recalled, memory: what a system recalled for this turn; all that it holds
- speaker: who replies, or whom the memory is about
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from localmem.errors import BadInput

Item = Mapping[str, str]
Unit = Literal["answer", "two answers", "two recalls", "memory"]

FIRST, SECOND, TIE = "first", "second", "tie"
RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Words:
    """The verdict is one of the options; where samples disagree evenly, `undecided`.

    `right` is the option that a right answer gets, if there is such a thing; `abstained` takes its place for an item
    whose gold is empty, and `right` can then not be said.
    """

    options: tuple[str, ...]
    undecided: str
    right: str = ""
    abstained: str = ""

    def of(self, item: Item) -> tuple[str, ...]:
        """The options that this item can get."""
        return self.options if item.get("gold", " ") else tuple(one for one in self.options if one != self.right)

    def is_right(self, item: Item, label: str) -> bool:
        """Whether the label is that of a right answer to this item."""
        return label == (self.right if item.get("gold", " ") else self.abstained)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The verdict is a JSON object with one integer a name; several samples are averaged."""

    names: tuple[str, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Grades:
    """The verdict is a grade for each criterion, each asked by itself; several samples are averaged."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Pair:
    """The verdict is the better of two inputs or a tie. Both orders are asked, and what flips with the order is a tie.

    Several samples vote; an even vote is a tie.
    """

    first: str
    second: str


Verdicts = Words | Numbers | Grades | Pair


@dataclass(frozen=True, slots=True)
class Judge:
    """One judge. `inputs` must be in an item, `optional` may be. `samples` are drawn at `temperature`.

    A prompt that asks by several criteria takes each criterion's name as an input, and one item is asked by each.
    """

    name: str
    prompt: str
    unit: Unit
    verdict: Verdicts
    inputs: tuple[str, ...]
    optional: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    samples: int = 1
    temperature: float = 0.0

    @property
    def prompts(self) -> int:
        """How many prompts one item takes."""
        return max(1, len(self.criteria)) * self.samples * (2 if isinstance(self.verdict, Pair) else 1)

    @property
    def scales(self) -> tuple[str, ...]:
        """The names of a verdict's scores."""
        match self.verdict:
            case Words(options=options, right=right):
                return (RIGHT, *options) if right else options
            case Numbers(names=names):
                return names
            case Grades():
                return self.criteria
            case Pair():
                return FIRST, SECOND, TIE

    def sampled(self, samples: int) -> "Judge":
        """The same judge with so many samples: one is the likeliest answer, several are drawn at temperature 1."""
        if samples < 1 or (isinstance(self.verdict, Pair) and samples % 2 == 0):
            raise BadInput(f"{samples} samples of the judge {self.name!r} give no majority; give an odd number of them")
        return replace(self, samples=samples, temperature=0.0 if samples == 1 else self.temperature or 1.0)


def get_judge(name: str) -> Judge:
    """The judge of this name. Raises BadInput."""
    if name not in JUDGES:
        raise BadInput(f"there is no judge {name!r}; give one of {', '.join(JUDGES)}")
    return JUDGES[name]


def _pairwise(name: str, samples: int) -> Judge:
    """A judge of two answers by the criterion of its name."""
    return Judge(
        name,
        "judge/pairwise",
        "two answers",
        Pair("answer", "other"),
        inputs=("dialogue", "answer", "other"),
        optional=("past", "gold"),
        criteria=(name,),
        samples=samples,
        temperature=1.0 if samples > 1 else 0.0,
    )


# CREEM, section 4.1; the prompt says what each of them is.
_MEMORY = (
    "integration",
    "consistency",
    "sophistication",
    "conciseness",
    "relevance",
    "concreteness",
    "diversity",
)

_JUDGES = (
    Judge(  # Theanine, section 5 and Figure 29
        "correct",
        "judge/correct",
        "answer",
        Words(("correct", "incorrect", "abstained"), undecided="incorrect", right="correct", abstained="abstained"),
        inputs=("question", "gold", "answer"),
    ),
    Judge(  # SeCom, section 3.1
        "score",
        "judge/score",
        "answer",
        Numbers(("score",), 0, 100),
        inputs=("question", "answer"),
        optional=("gold", "past"),
    ),
    Judge(  # LLM-Rsum, section 4.2
        "rating",
        "judge/rating",
        "answer",
        Numbers(("fluency", "coherence", "consistency"), 1, 100),
        inputs=("dialogue", "answer"),
        optional=("past",),
    ),
    _pairwise("preference", 1),  # LLM-Rsum, section 4.2; SeCom, appendix A.4
    _pairwise("consistency", 19),  # CREEM, appendix B.1: the majority of 19 samples
    _pairwise("memorability", 19),
    Judge(  # Theanine, section 4.2 and Figure 26
        "helpfulness",
        "judge/helpfulness",
        "two recalls",
        Pair("recalled", "other"),
        inputs=("speaker", "dialogue", "recalled", "other"),
    ),
    Judge(  # Theanine, section 4.2; without a majority it is neutral (appendix E.2)
        "entailment",
        "judge/entailment",
        "answer",
        Words(("entail", "neutral", "contradict"), undecided="neutral"),
        inputs=("past", "answer"),
        optional=("dialogue",),
    ),
    Judge(  # CREEM, section 4.1 and appendix B.2
        "memory",
        "judge/memory",
        "memory",
        Grades(1, 5),
        inputs=("speaker", "dialogue", "memory"),
        criteria=_MEMORY,
        samples=20,
        temperature=1.0,
    ),
)
JUDGES: Mapping[str, Judge] = {judge.name: judge for judge in _JUDGES}
