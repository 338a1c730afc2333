"""Filtering of traces: drops what a student should not learn and divides conversations into parts, counting both.

Does not depend on any model. A conversation is in one part of every division.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

import jsonschema  # type: ignore[import-untyped]  # its stubs are a separate package

from finetune.groundedness import GROUNDED, overlap
from finetune.traces.trace import Trace
from localmem.errors import BadInput

Part = Literal["train", "valid", "test"]
Reason = str

PARTS: tuple[Part, ...] = ("train", "valid", "test")
TEXT_STAGES = frozenset({"summarize", "refine", "blend", "respond", "day", "events", "compress"})


@dataclass(frozen=True, slots=True)
class FilteredTraces:
    """The remaining traces by part, and the number of dropped ones by reason."""

    parts: Mapping[Part, tuple[Trace, ...]]
    dropped: Mapping[Reason, int] = field(default_factory=dict)


def filter_traces(
    traces: Iterable[Trace],
    stage: str,
    *,
    seed: int = 0,
    reject: Callable[[Trace], Reason | None] = lambda _: None,
) -> FilteredTraces:
    """The traces that are complete, well-formed, grounded and new, divided 80 : 10 : 10 by conversation.

    `reject` may give a reason to drop a trace that passes all other checks. Raises BadInput if nothing remains.
    """
    parts: dict[Part, list[Trace]] = {part: [] for part in PARTS}
    dropped: Counter[Reason] = Counter()
    ids: set[str] = set()
    for trace in traces:
        reason = "duplicate" if trace.id in ids else find_problem(trace, stage) or reject(trace)
        ids.add(trace.id)
        if reason:
            dropped[reason] += 1
        else:
            parts[part_of(trace, seed)].append(trace)
    if not any(parts.values()):
        raise BadInput(f"none of {len(ids)} traces of {stage!r} can be learned from ({dict(dropped)}); collect more")
    return FilteredTraces({part: tuple(remaining) for part, remaining in parts.items()}, dict(dropped))


def part_of(trace: Trace, seed: int = 0) -> Part:
    """The part of the trace's conversation, whatever system read it."""
    work = trace.metadata.work
    number = sha256(f"{seed}/{work.dataset}/{work.episode}".encode()).digest()[0]
    return "train" if number < 205 else "valid" if number < 230 else "test"  # of 256


def find_problem(trace: Trace, stage: str) -> Reason | None:
    """Why a student should not learn this trace, or None."""
    if not trace.answer.strip():
        return "empty"
    if trace.metadata.finish == "length":
        return "cut short"
    if not is_valid(trace.answer, trace):
        return "wrong format"
    if stage in TEXT_STAGES and groundedness(trace) < GROUNDED:
        return "not grounded in the prompt"
    return None


def is_valid(answer: str, trace: Trace) -> bool:
    """Whether an answer is one of the trace's options, or fits its schema."""
    metadata = trace.metadata
    if metadata.options:
        return answer in metadata.options
    if metadata.schema is None:
        return True
    try:
        jsonschema.validate(json.loads(answer), metadata.schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def groundedness(trace: Trace) -> float:
    """Share of the answer's content words that occur in the prompt; 1 for an answer without any."""
    return overlap(trace.answer, [message.content for message in trace.context])
