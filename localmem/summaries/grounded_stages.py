"""The stages of memory systems without a backbone: what a model of 135 M parameters would invent is quoted instead.

A wrapper around the backbone that systems get. It answers the prompts of the stages that it knows, by name, out of the
prompt's inputs, in the prompt's format: summaries are quotations of what was said, a rewritten text is the text itself,
and small trained models judge. All other prompts go to the backbone.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localmem.grounding.gate import normalise
from localmem.llm.base import LLM
from localmem.llm.wrappers import Wrapper
from localmem.retrieval.base import Encoder
from localmem.summaries.statements import Line, StatementSelector, bare_statement, read_transcript
from localmem.types import Completion, JsonSchema, Prompt

Decide = Callable[[Sequence[tuple[str, str]]], list[str]]
"""What each new statement does to an old one, PASS, APPEND, REPLACE or DELETE, for pairs (old, new)."""

_OPERATION = "carecall/operation"
_SUMMARIES = (
    "carecall/summarize",
    "theanine/summarize",
    "comedy/summarize",
    "creem/first",
    "memory_retrieval/summarize",
)
_RELATED = 0.5  # the cosine from which two statements are about one thing
_CONTINUED = 0.3  # the cosine with any turn of a segment from which an exchange continues it
_LINES = 12  # statements of a summary whose format sets no limit
_NEWS = 10  # statements of a chronicle
_MEMORY = re.compile(r"^(M\d+) \([^)]*\): (.*)$", re.MULTILINE)
_NOW = re.compile(r"^Now, ", re.MULTILINE)
_NUMBERED = re.compile(r"^(\d+)\. (.*)$", re.MULTILINE)
_EXCHANGE = re.compile(r"^\[Exchange \d+\]\n", re.MULTILINE)
_QUOTED = re.compile(r"(?<=\") (?=Asked \"|[^\"]{1,60} said: \")|\n")  # between the quotations of a running text
_DATED = re.compile(r"^\d{1,2} [A-Z][a-z]+ \d{4}(?:: )?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GroundedParts:
    """What grounded stages need.

    `select` finds what is worth remembering, `decide` what it does to what is known, and `segment` divides a dialogue,
    given as the text of each exchange.
    """

    encoder: Encoder
    select: StatementSelector
    decide: Decide
    segment: Callable[[Sequence[str]], list[range]]


class GroundedStages(Wrapper):
    """Answers the stages by quoting, without a call of the backbone. `parts` are made when they are first needed."""

    def __init__(self, inner: LLM, parts: Callable[[], GroundedParts]) -> None:
        super().__init__(inner)
        self._parts = parts
        self._stages: Mapping[str, Callable[[Prompt], object]] = {
            **dict.fromkeys(_SUMMARIES, self._summary),
            "all_memories/persona": self._persona,
            "summem/summarize": self._relevant,
            "rsum/update": self._update_summary,
            "memorybank/day": self._prose,
            "memorybank/insight": self._prose,
            "rebot/summarize": self._prose,
            "memorybank/events": _continue_text,
            "memorybank/portrait": _continue_text,
            "conditionmem/record": self._record,
            "conditionmem/reflect": lambda _: {"enough": True, "query": ""},
            "comedy/compress": _compress,
            "creem/question": lambda prompt: prompt.inputs["dialogue"].rsplit("\n", 1)[-1],
            "creem/blend": self._insights,
            "theanine/explain": lambda _: "",
            "theanine/link": self._relation,
            "theanine/refine": lambda prompt: _list_lines(prompt.inputs["timeline"].splitlines()),
            "secom/segment": self._segments,
            "secom/continue": self._continues,
            "memochat/write": self._memos,
            "memochat/select": self._topics,
            "carecall/fuse": lambda _: {"loses": False, "sentence": ""},
        }

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        inputs = [prompt.inputs for prompt in prompts if prompt.name == _OPERATION]
        pairs = [(bare_statement(inputs["memory"]), bare_statement(inputs["sentence"])) for inputs in inputs]
        operations = iter(self._parts().decide(pairs) if pairs else ())
        others = [prompt for prompt in prompts if not self._knows(prompt)]
        answers = iter(self.inner.generate(others) if others else ())
        return [
            Completion(next(operations))
            if prompt.name == _OPERATION
            else self._answer(prompt)
            if self._knows(prompt)
            else next(answers)
            for prompt in prompts
        ]

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        if not self._knows(prompt):
            return (yield from self.inner.stream(prompt))
        (answer,) = self.generate([prompt])
        yield answer.text
        return answer

    def _knows(self, prompt: Prompt) -> bool:
        return prompt.name in self._stages or prompt.name == _OPERATION

    def _answer(self, prompt: Prompt) -> Completion:
        answer = self._stages[prompt.name](prompt)
        return Completion(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))

    def _quotes(self, lines: Sequence[Line], speaker: str, limit: int | None = None) -> list[str]:
        """The statements that are worth remembering, as sentences."""
        return [statement.quote() for statement in self._parts().select.select(lines, speaker, limit)]

    def _summary(self, prompt: Prompt) -> object:
        speaker = prompt.inputs.get("about") or prompt.inputs["user"]
        if speaker == prompt.inputs["assistant"]:
            return {"memories": []}  # advice is nothing that it would have to remember of itself
        return {"memories": self._quotes(_dialogue(prompt), speaker, _limit(prompt))}

    def _persona(self, prompt: Prompt) -> object:
        speaker = prompt.inputs["speaker"]
        new_texts = read_transcript(prompt.inputs["said"], (speaker,))
        return {"memories": self._quotes(new_texts, speaker, _limit(prompt))}

    def _prose(self, prompt: Prompt) -> str:
        return _list_lines(self._quotes(_dialogue(prompt), prompt.inputs["user"], _LINES))

    def _relevant(self, prompt: Prompt) -> object:
        """What was said of the request's matter, the nearest of it."""
        names = json.loads(prompt.inputs.get("speakers", "[]"))
        lines = read_transcript(_DATED.sub("", prompt.inputs["history"]), names)
        speakers = dict.fromkeys(line.speaker for line in lines)
        quotes = [quote for name in speakers for quote in self._quotes(lines, name)]
        nearness = self._cosines([prompt.inputs["request"]], quotes)[0] if quotes else np.zeros(0)
        nearest = set(np.argsort(-nearness, kind="stable")[: _limit(prompt)].tolist())
        return {"memories": [quote for n, quote in enumerate(quotes) if n in nearest]}

    def _update_summary(self, prompt: Prompt) -> str:
        """The memory without what is outdated, and what is new; of too much, the newest."""
        dialogue = _dialogue(prompt)
        memory = prompt.inputs["memory"].splitlines()
        new = self._quotes(dialogue, _user(prompt, dialogue), int(prompt.inputs["limit"]))
        remaining, additions, _ = self._update(memory, new)
        return _list_lines([*remaining, *additions][-int(prompt.inputs["limit"]) :])

    def _update(self, old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str], dict[str, list[str]]]:
        """The old texts that still hold, the new ones that say something new, and what each of those replaces."""
        new_texts, old_texts = [list(map(bare_statement, texts)) for texts in (new, old)]
        near = (
            self._cosines(new_texts, old_texts) >= _RELATED
            if old and new
            else np.zeros((len(new), len(old)), dtype=bool)
        )
        places = [(n, o) for n, o in zip(*near.nonzero(), strict=True)]
        operations = self._parts().decide([(old_texts[o], new_texts[n]) for n, o in places]) if places else []
        existing = {normalise(text) for text in old}
        repeats = {n for (n, _), operation in zip(places, operations, strict=True) if operation == "PASS"}
        additions = [text for n, text in enumerate(new) if n not in repeats and normalise(text) not in existing]
        replacements: dict[str, list[str]] = {text: [] for text in additions}
        for (n, o), operation in zip(places, operations, strict=True):
            if operation in ("REPLACE", "DELETE") and new[n] in replacements:
                replacements[new[n]].append(old[o])
        obsolete = {text for texts in replacements.values() for text in texts}
        return [text for text in old if text not in obsolete], additions, replacements

    def _record(self, prompt: Prompt) -> object:
        lines = _dialogue(prompt)
        return {"summary": "", "knowledge": self._quotes(lines, _user(prompt, lines), _limit(prompt))}

    def _insights(self, prompt: Prompt) -> object:
        text = prompt.inputs["statements"]
        memories = {match[2]: match[1] for match in _MEMORY.finditer(text)}
        lines = [Line(*turn.strip().partition(": ")[::2]) for turn in _NOW.split(text)[1:]]
        new = self._quotes(lines, prompt.inputs["speaker"], int(prompt.inputs["count"]))
        _, additions, replacements = self._update(list(memories), new)
        return {
            "insights": [
                {
                    "insight": insight,
                    "operation": "Updated" if replacements[insight] else "New",
                    "remove": [memories[old] for old in replacements[insight]],
                }
                for insight in additions
            ]
        }

    def _relation(self, prompt: Prompt) -> str:
        """Changed where the later event outdates the earlier one, else whether they are of one topic."""
        pair = bare_statement(prompt.inputs["earlier"]), bare_statement(prompt.inputs["later"])
        near = bool(self._cosines([pair[0]], [pair[1]])[0, 0] >= _RELATED)
        if prompt.inputs["step"] == "1":
            return "Changed" if near and self._parts().decide([pair])[0] == "REPLACE" else "Other"
        return "SameTopic" if near else "None"

    def _segments(self, prompt: Prompt) -> object:
        texts = _EXCHANGE.split(prompt.inputs["dialogue"])[1:]
        segments = self._parts().segment([text.strip() for text in texts])
        return {"ends": " ".join(str(segment.stop - 1) for segment in segments)}

    def _continues(self, prompt: Prompt) -> str:
        nearness = self._cosines([prompt.inputs["exchange"]], prompt.inputs["segment"].splitlines())[0].max()
        return "same" if nearness >= _CONTINUED else "new"

    def _memos(self, prompt: Prompt) -> object:
        """One topic, entitled by its first statement."""
        numbered = prompt.inputs["dialogue"]
        lines = read_transcript(_NUMBERED.sub(r"\2", numbered), _names(prompt))
        quotes = self._quotes(lines, _user(prompt, lines), _LINES)
        last = len(numbered.splitlines())
        memo = {"topic": quotes[0][:60], "summary": " ".join(quotes), "first": 1, "last": last} if quotes else {}
        return {"memos": [memo] if memo else []}

    def _topics(self, prompt: Prompt) -> object:
        topics = [match[2] for match in _NUMBERED.finditer(prompt.inputs["topics"])]
        nearness = self._cosines([prompt.inputs["request"]], topics)[0]
        order = np.argsort(-nearness, kind="stable")[: _limit(prompt)].tolist()
        return {"topics": sorted(n + 1 for n in order)}

    def _cosines(self, rows: Sequence[str], columns: Sequence[str]) -> NDArray[np.float32]:
        """(rows, columns) cosines of texts."""
        encode = self._parts().encoder.encode
        products: NDArray[np.float32] = np.array(encode(rows, "query")) @ np.array(encode(columns, "passage")).T
        return products


def _dialogue(prompt: Prompt) -> list[Line]:
    return read_transcript(prompt.inputs["dialogue"], _names(prompt))


def _names(prompt: Prompt) -> list[str]:
    return [prompt.inputs[name] for name in ("user", "assistant", "about") if name in prompt.inputs]


def _user(prompt: Prompt, lines: Sequence[Line]) -> str:
    """Whose statements are remembered: the user's, or the first speaker's where the prompt does not name the user."""
    return prompt.inputs.get("user") or (lines[0].speaker if lines else "")


def _limit(prompt: Prompt) -> int:
    """The most items of the first list in the prompt's format."""
    return next(iter(_limits(prompt).values()), _LINES)


def _limits(prompt: Prompt) -> dict[str, int]:
    """The most items of each list in the prompt's format."""
    fields = prompt.format.schema.get("properties") if isinstance(prompt.format, JsonSchema) else None
    items = fields.items() if isinstance(fields, dict) else ()
    return {name: int(field["maxItems"]) for name, field in items if "maxItems" in field}


def _continue_text(prompt: Prompt) -> str:
    """The text so far and what is new; of too much, the newest lines."""
    statements = [text for line in ("before", "news") for text in _QUOTED.split(prompt.inputs[line]) if text.strip()]
    return _list_lines(list(dict.fromkeys(statements))[-_NEWS:])


def _compress(prompt: Prompt) -> object:
    """The newest memories as events; nothing is concluded about anybody."""
    memories = prompt.inputs["memories"].splitlines()
    return {"portrait": [], "relationship": [], "events": memories[-_limits(prompt).get("events", _NEWS) :]}


def _list_lines(statements: Sequence[str]) -> str:
    """A list, whose items are read as one sentence each."""
    return "\n".join(f"- {statement.removeprefix('- ')}" for statement in statements)
