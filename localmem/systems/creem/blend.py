"""CREEM's two prompts for every turn, the question and "blend and refine", and how their answers are read.

Does not depend on bank or index. Insights come with the ids of the memories that they replace; the schema allows only
the memories that were shown, so no other can be removed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from localmem.llm.base import LLM
from localmem.llm.structured_output import (
    answer_format,
    array,
    count_fallback,
    generate_usable,
    record,
    repeats_instructions,
    string,
)
from localmem.prompts import load, render
from localmem.text.dialogue import day, latest_turns, line, transcript
from localmem.text.units import free_tokens
from localmem.types import Completion, JsonSchema, Prompt, Turn, Unit

Operation = Literal["New", "Redundant", "Updated"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_QUESTION = "creem/question"


@dataclass(frozen=True, slots=True)
class Statements:
    """The search results about one speaker: memories, and turns of the dialogue."""

    speaker: str
    memories: Sequence[Unit]
    turns: Sequence[Turn]


@dataclass(frozen=True, slots=True)
class Insight:
    """A new memory, and the ids of those it replaces; without refinement it has no operation and replaces none."""

    text: str
    operation: Operation | None
    replaces: tuple[str, ...]


def ask_questions(
    llm: LLM, dialogues: Sequence[tuple[Sequence[Turn], str]], tokens: int, fallbacks: Counter[str]
) -> list[str]:
    """The most salient question about a speaker, for each (dialogue, speaker) (section 2.2, appendix A.1).

    All are asked at once. The last `tokens` of the dialogue are shown, fewer when the model's context is short. For an
    answer without a question the last turn is used, and that is counted.
    """
    bare = render(_QUESTION, dialogue="", speaker="")
    budget = min(tokens, max(free_tokens(llm, bare), llm.context_length // 4))
    recent = [transcript(latest_turns(turns, budget, llm.count_tokens)) for turns, _ in dialogues]
    prompts = [
        render(_QUESTION, dialogue=text, speaker=speaker) for text, (_, speaker) in zip(recent, dialogues, strict=True)
    ]
    questions = []
    for answer, (turns, _) in zip(generate_usable(llm, prompts, fallbacks), dialogues, strict=True):
        question = " ".join(answer.text.split()) if answer else ""
        if answer and not question:
            count_fallback(_QUESTION, "its answer is empty", fallbacks)
        questions.append(question or turns[-1].text)
    return questions


class Blender:
    """Asks for `count` insights of at most `longest` characters (section 2.3, appendix A.3).

    With `refine` each gets an operation. An unusable answer gives no insights. An insight that is labelled Redundant or
    Updated but names no memory, or New but names some, is New. Both are counted.
    """

    def __init__(self, llm: LLM, *, count: int, longest: int, refine: bool, fallbacks: Counter[str]) -> None:
        self._llm = llm
        self._count = count
        self._longest = longest
        self._refine = refine
        self._fallbacks = fallbacks

    def blend(self, batch: Sequence[Statements]) -> list[list[Insight]]:
        """The insights from each set of statements; all asked at once."""
        labels = [{f"M{n}": unit.id for n, unit in enumerate(statements.memories, 1)} for statements in batch]
        prompts = [self._prompt(statements, list(names)) for statements, names in zip(batch, labels, strict=True)]
        answers = generate_usable(self._llm, prompts, self._fallbacks)
        return [
            self._read(answer, names, prompt) if answer else []
            for answer, names, prompt in zip(answers, labels, prompts, strict=True)
        ]

    def _prompt(self, statements: Statements, labels: Sequence[str]) -> Prompt:
        prompt = render(
            "creem/blend",
            form=self._form(labels),
            statements=_statement_lines(statements, labels),
            speaker=statements.speaker,
            count=self._count,
            refine=self._refine,
        )
        return replace(prompt, max_tokens=load("creem/blend").max_tokens * self._count)

    def _read(self, answer: Completion, labels: Mapping[str, str], prompt: Prompt) -> list[Insight]:
        """The insights, each once, without examples copied from the prompt."""
        match json.loads(answer.text):
            case {"insights": list(items)}:
                insights = [insight for item in items if (insight := self._insight(item, labels))]
                new = [insight for insight in insights if not repeats_instructions(prompt, insight.text)]
                return list({insight.text: insight for insight in new}.values())
        count_fallback("creem/blend", f"its answer {answer.text!r:.80} holds no insights", self._fallbacks)
        return []

    def _insight(self, item: object, labels: Mapping[str, str]) -> Insight | None:
        match item:
            case {"insight": str(text), **judgement} if any(character.isalnum() for character in text):
                return self._judge(" ".join(text.split()), judgement, labels)
        return None

    def _judge(self, text: str, judgement: Mapping[object, object], labels: Mapping[str, str]) -> Insight:
        if not self._refine:
            return Insight(text, None, ())
        operation: Operation = "New"
        match judgement.get("operation"):
            case "Redundant" | "Updated" as label:
                operation = label
        replaced = _unit_ids(judgement.get("remove"), labels)
        if (operation == "New") == bool(replaced):
            reason = f"an insight labelled {operation} names {len(replaced)} memories to remove; it is New"
            count_fallback("creem/blend", reason, self._fallbacks)
            return Insight(text, "New", ())
        return Insight(text, operation, replaced)

    def _form(self, labels: Sequence[str]) -> JsonSchema:
        fields = {"insight": string(self._longest)}
        if self._refine and labels:
            fields |= {"operation": {"enum": list(OPERATIONS)}, "remove": array({"enum": list(labels)}, len(labels))}
        elif self._refine:
            fields |= {"operation": {"enum": ["New"]}}  # there is no memory that it could repeat or change
        return answer_format(insights={**array(record(**fields), self._count), "minItems": 1})


def _unit_ids(names: object, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of the memories that an answer names."""
    items = names if isinstance(names, list) else []
    return tuple(dict.fromkeys(labels[name] for name in items if isinstance(name, str) and name in labels))


def _statement_lines(statements: Statements, labels: Sequence[str]) -> str:
    """Memories with their labels and dates, then the turns, each in its order."""
    memories = [f"{label} ({day(m.time)}): {m.text}" for label, m in zip(labels, statements.memories, strict=True)]
    return "\n".join([*memories, *(f"Now, {line(turn)}" for turn in statements.turns)])
