"""Labelling: which relation, if any, leads from the earlier of two events to the later (Theanine, Phase I-2).

Knows neither bank nor graph. All pairs of a session are asked about in one `generate` a step. What they share stands
first in each prompt (instructions, the new session's dialogue, then the older one's), so most of it is read once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import NamedTuple, TypedDict

from localmem.llm.base import LLM
from localmem.llm.structured_output import usable
from localmem.prompts import load, render
from localmem.systems.theanine.dialogues import excerpt
from localmem.text.dialogue import day
from localmem.types import Choice, Completion, Unit

# Appendix B.1: six commonsense relations, then SameTopic, else none at all.
RELATIONS = ("Changed", "Cause", "Reason", "HinderedBy", "React", "Want")
OTHER = "Other"
SAME_TOPIC = "SameTopic"
NO_RELATION = "None"
SIMILAR = "Similar"  # the label of a link that was made without asking

_TEMPLATE = 64  # tokens that a chat template adds, at most


class Label(NamedTuple):
    """A relation, and the probability that the labeller gave it (None where the backend does not tell)."""

    relation: str
    probability: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A unit of the graph and a new one."""

    old: Unit
    new: Unit

    @property
    def earlier(self) -> Unit:
        """The older unit, but for a session that is remembered after a later one."""
        return self.new if self.new.time < self.old.time else self.old

    @property
    def later(self) -> Unit:
        return self.old if self.new.time < self.old.time else self.new


class _Inputs(TypedDict):
    """What the prompts of one pair are filled with."""

    new_date: str
    new_dialogue: str
    old_date: str
    old_dialogue: str
    earlier_date: str
    earlier: str
    later_date: str
    later: str


class Labeller:
    """Asks for each pair first whether one of six relations holds, then, where none does, for SameTopic or None.

    With `reasoning` an explanation is written first. Of each origin dialogue at most `origin_tokens` are shown, fewer
    where the model's context is short. A pair whose answer cannot be used has no relation; `fallbacks` counts it.
    """

    def __init__(self, llm: LLM, *, reasoning: bool, origin_tokens: int, fallbacks: Counter[str]) -> None:
        self._llm = llm
        self._reasoning = reasoning
        self._origin_tokens = origin_tokens
        self._fallbacks = fallbacks

    def label(self, pairs: Sequence[Pair], dialogues: Mapping[str, str]) -> list[Label | None]:
        """A label for each pair, None where the events have no relation. `dialogues` are keyed by session id.

        Pairs of one older session should stand together: their prompts then share both dialogues.
        """
        if not pairs:
            return []
        inputs = self._inputs(pairs, dialogues)
        asked = list(zip(inputs, self._explanations(inputs), strict=True))
        labels = self._ask(asked, 1, (*RELATIONS, OTHER))
        undecided = {number: label for number, label in enumerate(labels) if label and label.relation == OTHER}
        second = self._ask([asked[number] for number in undecided], 2, (SAME_TOPIC, NO_RELATION))
        for (number, first), label in zip(undecided.items(), second, strict=True):
            labels[number] = _after(first, label)
        return labels

    def _explanations(self, asked: Sequence[_Inputs]) -> list[str]:
        if not self._reasoning:
            return [""] * len(asked)
        prompts = [render("theanine/explain", **inputs) for inputs in asked]
        answers = usable(self._llm, prompts, self._fallbacks)
        return [" ".join(answer.text.split()) if answer else "" for answer in answers]

    def _ask(self, asked: Sequence[tuple[_Inputs, str]], step: int, options: tuple[str, ...]) -> list[Label | None]:
        form = Choice(options)
        prompts = [
            render("theanine/link", form=form, step=step, reasoning=reasoning, **inputs) for inputs, reasoning in asked
        ]
        return [_chosen(answer) if answer else None for answer in usable(self._llm, prompts, self._fallbacks)]

    def _inputs(self, pairs: Sequence[Pair], dialogues: Mapping[str, str]) -> list[_Inputs]:
        """What the prompts of the pairs are filled with, both dialogues cut to what fits."""
        budget = self._room(pairs)
        told: dict[str, list[str]] = {}  # one excerpt for all events of a session, so that their prompts share it
        for unit in (unit for pair in pairs for unit in (pair.old, pair.new)):
            told.setdefault(unit.session, []).append(unit.text)
        shown = {
            session: excerpt(dialogues.get(session, ""), events, budget, self._llm.count_tokens)
            for session, events in told.items()
        }
        return [_filled(pair, shown[pair.new.session], shown[pair.old.session]) for pair in pairs]

    def _room(self, pairs: Sequence[Pair]) -> int:
        """Tokens for each of the two dialogues."""
        longest = max(pairs, key=lambda pair: len(pair.old.text) + len(pair.new.text))
        bare = render("theanine/link", step=1, reasoning="", **_filled(longest, "", ""))
        used = sum(self._llm.count_tokens([message.content for message in bare.messages]))
        answer = bare.max_tokens + (load("theanine/explain").max_tokens if self._reasoning else 0)
        left = self._llm.context_length - used - answer - _TEMPLATE
        return max(0, min(self._origin_tokens, left // 2))


def _filled(pair: Pair, new_dialogue: str, old_dialogue: str) -> _Inputs:
    return {
        "new_date": day(pair.new.time),
        "new_dialogue": new_dialogue,
        "old_date": day(pair.old.time),
        "old_dialogue": old_dialogue,
        "earlier_date": day(pair.earlier.time),
        "earlier": pair.earlier.text,
        "later_date": day(pair.later.time),
        "later": pair.later.text,
    }


def _chosen(completion: Completion) -> Label:
    choices = completion.choices
    return Label(completion.text, exp(choices[completion.text]) if choices else None)


def _after(first: Label, second: Label | None) -> Label | None:
    """The second step's answer; its probability is that of both steps together."""
    if second is None or second.relation == NO_RELATION:
        return None
    if first.probability is None or second.probability is None:
        return Label(second.relation, None)
    return Label(second.relation, first.probability * second.probability)
