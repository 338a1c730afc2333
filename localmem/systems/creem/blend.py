"""Questions, and blend and refine: what CREEM asks the backbone for every turn, and how its answers are read.

Knows neither bank nor index. Insights come back with the ids of the memories that each is to replace; the schema names
the memories that were shown and no others, so no unknown one can be removed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from localmem.llm.base import LLM
from localmem.llm.schemas import answer, many, record, text
from localmem.llm.structured_output import repeats, unusable, usable
from localmem.prompts import load, render
from localmem.text.dialogue import day, line, transcript
from localmem.text.recent import recent
from localmem.types import Completion, JsonSchema, Prompt, Turn, Unit

Operation = Literal["New", "Redundant", "Updated"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

_TEMPLATE = 64  # tokens that a chat template adds, at most


@dataclass(frozen=True, slots=True)
class Statements:
    """What was found about one speaker: memories, and turns of the dialogue."""

    speaker: str
    memories: Sequence[Unit]
    turns: Sequence[Turn]


@dataclass(frozen=True, slots=True)
class Insight:
    """A new memory, and the ids of those it replaces; without refinement it was not judged and replaces none."""

    text: str
    operation: Operation | None
    replaces: tuple[str, ...]


class Questioner:
    """Asks for the most salient question about a speaker (section 2.2, appendix A.1).

    Of the dialogue the last `tokens` are shown, fewer where the model's context is short. An answer without a question
    is replaced by what was said last, and counted.
    """

    def __init__(self, llm: LLM, *, tokens: int, fallbacks: Counter[str]) -> None:
        self._llm = llm
        self._tokens = tokens
        self._fallbacks = fallbacks

    def ask(self, asked: Sequence[tuple[Sequence[Turn], str]]) -> list[str]:
        """For each (dialogue, speaker) the question; all asked at once."""
        budget = min(self._tokens, self._room())
        prompts = [
            render(
                "creem/question", dialogue=transcript(recent(turns, budget, self._llm.count_tokens)), speaker=speaker
            )
            for turns, speaker in asked
        ]
        answers = usable(self._llm, prompts, self._fallbacks)
        return [self._read(given, turns) for given, (turns, _) in zip(answers, asked, strict=True)]

    def _read(self, given: Completion | None, turns: Sequence[Turn]) -> str:
        question = " ".join(given.text.split()) if given else ""
        if question:
            return question
        if given:
            unusable("creem/question", "no question came back", self._fallbacks)
        return turns[-1].text

    def _room(self) -> int:
        bare = render("creem/question", dialogue="", speaker="")
        used = sum(self._llm.count_tokens([message.content for message in bare.messages]))
        return max(self._llm.context_length - used - bare.max_tokens - _TEMPLATE, self._llm.context_length // 4)


class Blender:
    """Asks for `count` insights of at most `longest` characters (section 2.3, appendix A.3).

    With `refine` each is judged. An answer that cannot be used gives none. An insight that is called Redundant or
    Updated and names no memory, or New and names some, is New. Both are counted.
    """

    def __init__(self, llm: LLM, *, count: int, longest: int, refine: bool, fallbacks: Counter[str]) -> None:
        self._llm = llm
        self._count = count
        self._longest = longest
        self._refine = refine
        self._fallbacks = fallbacks

    def blend(self, asked: Sequence[Statements]) -> list[list[Insight]]:
        """The insights from each set of statements; all asked at once."""
        labels = [{f"M{number}": unit.id for number, unit in enumerate(found.memories, 1)} for found in asked]
        prompts = [self._asking(found, list(names)) for found, names in zip(asked, labels, strict=True)]
        answers = usable(self._llm, prompts, self._fallbacks)
        return [
            self._read(given, names, prompt) if given else []
            for given, names, prompt in zip(answers, labels, prompts, strict=True)
        ]

    def _asking(self, found: Statements, labels: Sequence[str]) -> Prompt:
        prompt = render(
            "creem/blend",
            form=self._form(labels),
            statements=_written(found, labels),
            speaker=found.speaker,
            count=self._count,
            refine=self._refine,
        )
        return replace(prompt, max_tokens=load("creem/blend").max_tokens * self._count)

    def _read(self, given: Completion, labels: Mapping[str, str], prompt: Prompt) -> list[Insight]:
        """The insights, clean and each once; an example that a weak model gave back is none."""
        match json.loads(given.text):
            case {"insights": list(items)}:
                found = [insight for item in items if (insight := self._insight(item, labels))]
                fresh = [insight for insight in found if not repeats(prompt, insight.text)]
                return list({insight.text: insight for insight in fresh}.values())
        unusable("creem/blend", f"its answer {given.text!r:.80} holds no insights", self._fallbacks)
        return []

    def _insight(self, item: object, labels: Mapping[str, str]) -> Insight | None:
        match item:
            case {"insight": str(said), **judged} if any(character.isalnum() for character in said):
                return self._judged(" ".join(said.split()), judged, labels)
        return None

    def _judged(self, said: str, judged: Mapping[object, object], labels: Mapping[str, str]) -> Insight:
        if not self._refine:
            return Insight(said, None, ())
        operation: Operation = "New"
        match judged.get("operation"):
            case "Redundant" | "Updated" as known:
                operation = known
        gone = _known(judged.get("remove"), labels)
        if (operation == "New") == bool(gone):
            what = f"an insight called {operation} names {len(gone)} memories to remove; it is New"
            unusable("creem/blend", what, self._fallbacks)
            return Insight(said, "New", ())
        return Insight(said, operation, gone)

    def _form(self, labels: Sequence[str]) -> JsonSchema:
        fields = {"insight": text(self._longest)}
        if self._refine and labels:
            fields |= {"operation": {"enum": list(OPERATIONS)}, "remove": many({"enum": list(labels)}, len(labels))}
        elif self._refine:
            fields |= {"operation": {"enum": ["New"]}}  # there is nothing that it could repeat or change
        return answer(insights={**many(record(**fields), self._count), "minItems": 1})


def _known(named: object, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of the memories that an answer names."""
    names = named if isinstance(named, list) else []
    return tuple(dict.fromkeys(labels[name] for name in names if isinstance(name, str) and name in labels))


def _written(found: Statements, labels: Sequence[str]) -> str:
    """Memories with their labels and dates, then what was said, each in its order."""
    memories = [f"{label} ({day(m.time)}): {m.text}" for label, m in zip(labels, found.memories, strict=True)]
    return "\n".join([*memories, *(f"Now, {line(turn)}" for turn in found.turns)])
