"""Sifting traces: what a student should not learn goes, and conversations are divided into parts, with a tally of both.

Knows traces and no model. A conversation is on one side of every division.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own

from finetune.groundedness import GROUNDED, share_in
from finetune.traces.trace import Trace
from localmem.errors import BadInput

Part = Literal["train", "valid", "test"]
Reason = str

TEXTS = frozenset({"summarize", "refine", "blend", "respond", "day", "events", "compress"})  # stages that write text


@dataclass(frozen=True, slots=True)
class Sifted:
    """What is left, by part, and how many went for which reason."""

    parts: Mapping[Part, tuple[Trace, ...]]
    dropped: Mapping[Reason, int] = field(default_factory=dict)


def sift(
    traces: Iterable[Trace],
    stage: str,
    *,
    seed: int = 0,
    more: Callable[[Trace], Reason | None] = lambda _: None,
) -> Sifted:
    """The traces that are whole, of their format, grounded and new, divided 80 : 10 : 10 by conversation.

    `more` may know a reason against one that nothing else speaks against. Raises BadInput where nothing is left.
    """
    kept: dict[Part, list[Trace]] = {"train": [], "valid": [], "test": []}
    dropped: Counter[Reason] = Counter()
    seen: set[str] = set()
    for trace in traces:
        reason = "asked before" if trace.id in seen else wrong_with(trace, stage) or more(trace)
        seen.add(trace.id)
        if reason:
            dropped[reason] += 1
        else:
            kept[part_of(trace, seed)].append(trace)
    if not any(kept.values()):
        raise BadInput(f"none of {len(seen)} traces of {stage!r} can be learned from ({dict(dropped)}); collect more")
    return Sifted({part: tuple(held) for part, held in kept.items()}, dict(dropped))


def part_of(trace: Trace, seed: int = 0) -> Part:
    """By the conversation that it comes from, whatever system read it."""
    work = trace.metadata.work
    number = sha256(f"{seed}/{work.dataset}/{work.episode}".encode()).digest()[0]
    return "train" if number < 205 else "valid" if number < 230 else "test"  # of 256


def wrong_with(trace: Trace, stage: str) -> Reason | None:
    """Why a student should not learn this one; None when it may."""
    if not trace.answer.strip():
        return "empty"
    if trace.metadata.finish == "length":
        return "cut short"
    if not valid(trace.answer, trace):
        return "not of its format"
    if stage in TEXTS and grounded(trace) < GROUNDED:
        return "not grounded in what was asked"
    return None


def valid(answer: str, trace: Trace) -> bool:
    """Whether an answer is one of the options, or fits the schema, that the trace was made under."""
    about = trace.metadata
    if about.options:
        return answer in about.options
    if about.schema is None:
        return True
    try:
        jsonschema.validate(json.loads(answer), about.schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def grounded(trace: Trace) -> float:
    """Of the telling words of an answer, the share that stand in what was asked; 1 for an answer without any."""
    return share_in(trace.answer, [message.content for message in trace.asked])
