"""Labelling: which relation, if any, leads from the earlier of two events to the later (Theanine, Phase I-2).

All pairs of a session are asked about in one `generate` call for each step. What prompts share comes first in them
(instructions, the new session's dialogue, then the older one's), so that a prefix cache computes most of it once. The
dialogues that the events come from are notes of the bank; a prompt shows excerpts where not all of them fits. Does not
depend on bank or graph.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import NamedTuple, TypedDict

from localmem.llm.base import LLM
from localmem.llm.structured_output import generate_usable
from localmem.prompts import load, render
from localmem.text.dialogue import Count, day, free_tokens
from localmem.types import Choice, Completion, Unit

# Appendix B.1: six commonsense relations, then SameTopic, else none at all.
RELATIONS = ("Changed", "Cause", "Reason", "HinderedBy", "React", "Want")
OTHER = "Other"
SAME_TOPIC = "SameTopic"
NO_RELATION = "None"
SIMILAR = "Similar"  # the label of links that are not labelled by the LLM


class Label(NamedTuple):
    """A relation and its probability (None when the backend does not report one)."""

    relation: str
    probability: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A unit of the graph and a new one."""

    old: Unit
    new: Unit

    @property
    def earlier(self) -> Unit:
        """The unit whose event came first: the old one, unless its session was remembered after a later one."""
        return self.new if self.new.time < self.old.time else self.old

    @property
    def later(self) -> Unit:
        """The other unit."""
        return self.old if self.new.time < self.old.time else self.new


class _Inputs(TypedDict):
    """The inputs of the prompts of one pair."""

    new_date: str
    new_dialogue: str
    old_date: str
    old_dialogue: str
    earlier_date: str
    earlier: str
    later_date: str
    later: str


class Labeller:
    """Asks for each pair first for one of six relations or Other, then, after Other, for SameTopic or None.

    With `reasoning` an explanation is generated first. At most `origin_tokens` of each origin dialogue are shown, fewer
    when the model's context is short. A pair with an unusable answer has no relation; `fallbacks` counts it.
    """

    def __init__(self, llm: LLM, *, reasoning: bool, origin_tokens: int, fallbacks: Counter[str]) -> None:
        self._llm = llm
        self._reasoning = reasoning
        self._origin_tokens = origin_tokens
        self._fallbacks = fallbacks

    def label(self, pairs: Sequence[Pair], dialogues: Mapping[str, str]) -> list[Label | None]:
        """A label for each pair, None where the events have no relation. `dialogues` are keyed by session id.

        Pairs of one older session should be adjacent: their prompts then share both dialogues.
        """
        if not pairs:
            return []
        inputs = self._inputs(pairs, dialogues)
        requests = list(zip(inputs, self._explanations(inputs), strict=True))
        labels = self._ask(requests, 1, (*RELATIONS, OTHER))
        undecided = {number: label for number, label in enumerate(labels) if label and label.relation == OTHER}
        second = self._ask([requests[number] for number in undecided], 2, (SAME_TOPIC, NO_RELATION))
        for (number, first), label in zip(undecided.items(), second, strict=True):
            labels[number] = _combine(first, label)
        return labels

    def _explanations(self, batch: Sequence[_Inputs]) -> list[str]:
        if not self._reasoning:
            return [""] * len(batch)
        prompts = [render("theanine/explain", **inputs) for inputs in batch]
        answers = generate_usable(self._llm, prompts, self._fallbacks)
        return [" ".join(answer.text.split()) if answer else "" for answer in answers]

    def _ask(self, requests: Sequence[tuple[_Inputs, str]], step: int, options: tuple[str, ...]) -> list[Label | None]:
        form = Choice(options)
        prompts = [
            render("theanine/link", form=form, step=step, reasoning=reasoning, **inputs)
            for inputs, reasoning in requests
        ]
        return [_label(answer) if answer else None for answer in generate_usable(self._llm, prompts, self._fallbacks)]

    def _inputs(self, pairs: Sequence[Pair], dialogues: Mapping[str, str]) -> list[_Inputs]:
        """The prompt inputs of each pair, with both dialogues cut to what fits."""
        budget = self._room(pairs)
        events: dict[str, list[str]] = {}  # one excerpt for all events of a session, so that their prompts share it
        for unit in (unit for pair in pairs for unit in (pair.old, pair.new)):
            events.setdefault(unit.session, []).append(unit.text)
        excerpts = {
            session: excerpt(dialogues.get(session, ""), texts, budget, self._llm.count_tokens)
            for session, texts in events.items()
        }
        return [_pair_inputs(pair, excerpts[pair.new.session], excerpts[pair.old.session]) for pair in pairs]

    def _room(self, pairs: Sequence[Pair]) -> int:
        """Tokens for each of the two dialogues."""
        longest = max(pairs, key=lambda pair: len(pair.old.text) + len(pair.new.text))
        bare = render("theanine/link", step=1, reasoning="", **_pair_inputs(longest, "", ""))
        explanation = load("theanine/explain").max_tokens if self._reasoning else 0
        return max(0, min(self._origin_tokens, (free_tokens(self._llm, bare) - explanation) // 2))


def _pair_inputs(pair: Pair, new_dialogue: str, old_dialogue: str) -> _Inputs:
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


def _label(completion: Completion) -> Label:
    choices = completion.choices
    return Label(completion.text, exp(choices[completion.text]) if choices else None)


def _combine(first: Label, second: Label | None) -> Label | None:
    """The second step's label; its probability is that of both steps together."""
    if second is None or second.relation == NO_RELATION:
        return None
    if first.probability is None or second.probability is None:
        return Label(second.relation, None)
    return Label(second.relation, first.probability * second.probability)


_WORD = re.compile(r"\w+")
_GAP = "[...]"
_MARK = 4  # tokens of a gap mark and its line break, at most


def note_name(session_id: str) -> str:
    """The note that holds a session's dialogue."""
    return f"dialogue/{session_id}"


def excerpt(dialogue: str, events: Sequence[str], budget: int, count: Count) -> str:
    """At most `budget` tokens: all of the dialogue, or the lines most similar to the events, in their order.

    Of equally similar lines the later ones are used. Gaps are marked. When no line fits, the best one is cut at its
    end.
    """
    lines = dialogue.split("\n")
    sizes = [size + 1 for size in count(lines)]  # and the line break
    if sum(sizes) <= budget:
        return dialogue
    ranked = _rank(lines, _words(" ".join(events)))
    selected: list[int] = []
    remaining = budget
    for number in ranked:
        if sizes[number] + _MARK <= remaining:
            remaining -= sizes[number] + _MARK
            selected.append(number)
    return _with_gaps(lines, sorted(selected)) if selected else _cut(lines[ranked[0]], budget, count)


def _cut(line: str, budget: int, count: Count) -> str:
    """The beginning of a line, of at most `budget` tokens. They differ in length, so it may take several cuts."""
    while line and (size := count([line])[0]) > budget:
        line = line[: min(len(line) - 1, len(line) * budget // size)]
    return line


def _rank(lines: Sequence[str], event_words: set[str]) -> list[int]:
    """The line numbers, best first: a shared word counts more, the fewer lines contain it."""
    words = [event_words & _words(text) for text in lines]
    frequency = Counter(word for shared in words for word in shared)
    scores = [sum(1 / frequency[word] for word in shared) for shared in words]
    return sorted(range(len(lines)), key=lambda number: (-scores[number], -number))


def _with_gaps(lines: Sequence[str], selected: Sequence[int]) -> str:
    result: list[str] = []
    for number, previous in zip(selected, [-1, *selected], strict=False):
        result += [lines[number]] if number == previous + 1 else [_GAP, lines[number]]
    return "\n".join(result)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
