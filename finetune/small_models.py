"""Trained parts as students: an encoder or a T5 learns a teacher's `operation`, an encoder its `segment`.

Turns traces into what the trainers of those parts read, and a part's answers into what a chat model would have said, so
that both stand in one table. Knows no trainer's inside.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import log
from pathlib import Path
from typing import Literal

from finetune.traces.trace import Trace, read_traces
from finetune.trainers.training import Plan, Trained
from localmem.classification import OPERATIONS
from localmem.classification.pair_weights import config_of, is_t5
from localmem.errors import BadInput
from localmem.files import write_jsonl
from localmem.prompts import load
from localmem.types import Completion, Session, Turn

Kind = Literal["chat", "encoder", "t5"]

OPERATION, SEGMENT = "operation", "segment"
PROMPTS: Mapping[str, str] = {OPERATION: "carecall/operation", SEGMENT: "secom/segment"}  # whose form can be read back
FOLDER = "parts"

_INPUT = re.compile(r"\{\{ *(\w+) *\}\}")
_EXCHANGE = re.compile(r"^\[Exchange \d+\]\n", re.MULTILINE)
_UNDATED = datetime(1970, 1, 1, tzinfo=UTC)  # what a prompt shows has no times
_MARKS = {"[NEWLINE]": "[newline]", "[BOUNDARY]": "[boundary]"}  # what parts utterances must not stand in one


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a part is to learn: files of the trainer's own format, and how many traces could not be read back."""

    train: Path
    valid: Path
    passed_over: int


def kind_of(student: str | Path) -> Kind:
    """What the model in a folder is; `t5:tiny` and the like are T5s from nothing. Raises ModelMissing, BadInput."""
    if isinstance(student, str):
        return "t5"
    config = config_of(student)
    if is_t5(config):
        return "t5"
    named = config.get("architectures")
    causal = isinstance(named, list) and any(str(name).endswith("ForCausalLM") for name in named)
    return "chat" if causal else "encoder"


def check_stage(stages: Sequence[str], kind: Kind) -> str:
    """The one stage that such a part can learn. Raises BadInput."""
    fit = (OPERATION,) if kind == "t5" else (OPERATION, SEGMENT)
    if len(stages) != 1 or stages[0] not in fit:
        told = "a T5" if kind == "t5" else "an encoder"
        raise BadInput(f"{told} learns one stage, {' or '.join(fit)}, not {', '.join(stages)}; give a chat model")
    return stages[0]


def lesson(folder: Path, stage: str) -> Lesson:
    """The collection's train and valid traces, written in the trainer's format under `parts/`. Raises BadInput."""
    files: dict[str, Path] = {}
    passed_over = 0
    for part in ("train", "valid"):
        traces = read_traces(folder / part / f"{stage}.jsonl")
        lines = [line for trace in traces if (line := _line(trace, stage)) is not None]
        if not lines:
            raise BadInput(
                f"none of {len(traces)} traces of {folder / part} is asked as {PROMPTS[stage]} asks; collect from more "
                "conversations, or give a chat model"
            )
        passed_over += len(traces) - len(lines)
        files[part] = folder / FOLDER / f"{stage}-{part}.jsonl"
        _write(files[part], lines)
    return Lesson(files["train"], files["valid"], passed_over)


def train(
    stage: str,
    base: str | Path,
    learned: Lesson,
    plan: Plan,
    out: Path,
    command: str,
    *,
    resume: bool,
    note: Callable[[str], None],
) -> Trained:
    """Calls the part's own trainer, which writes the run's folder."""
    if stage == OPERATION:
        return _train_operations(base, learned, plan, out, command, resume=resume, note=note)
    from finetune.trainers.segmenter import Job
    from finetune.trainers.segmenter import train as run

    job = Job(Path(base), [learned.train], [learned.valid], out, plan, command=command)
    return run(job, resume=resume, note=note)


def _train_operations(
    base: str | Path,
    learned: Lesson,
    plan: Plan,
    out: Path,
    command: str,
    *,
    resume: bool,
    note: Callable[[str], None],
) -> Trained:
    """The division by conversation stays as it is, and what a teacher never says is not learned: so the lesson is made
    here and not by the trainer.
    """
    from finetune.cross_validation import Fold
    from finetune.trainers.operation_classifier import Job, learn
    from finetune.trainers.operation_classifier import Lesson as Pairs
    from localmem.evaluation.datasets.labelled_pairs import read_operations

    files = [learned.train, learned.valid]
    fold = Fold(*(list(read_operations(path).pairs) for path in files))
    if never := set(OPERATIONS) - {pair.label for pair in fold.train}:
        note(f"the teacher never says {', '.join(sorted(never))}")
    pairs = Pairs(OPERATIONS, fold, plan, files, "Memory operations, from a teacher", out)
    job = Job(base=base, out=out, plan=plan, data=files, command=command)
    return learn(base, pairs, job, resume=resume, note=note)


def asked(folder: Path, stage: str, device: str = "auto") -> Callable[[Trace], Completion]:
    """How a trained part answers a trace; a trace that it cannot read gets an empty answer, which is not valid."""
    from localmem.factory.parts import pair_classifier, pair_model, trained_segmenter

    pair_model(str(folder), device).labels  # noqa: B018  # its weights load now, not within the first answer's time
    if stage == OPERATION:
        classifier = pair_classifier(str(folder), device)

        def operation(trace: Trace) -> Completion:
            found = _operation(trace)
            if found is None:
                return Completion("")
            (label,) = classifier.classify([(found["memory"], found["sentence"])])
            chances: dict[str, float] = {
                name: log(chance) for name, chance in label.probabilities.items() if chance > 0
            }
            return Completion(label.operation, choices=chances)

        return operation
    from localmem.segmentation.segmenters import segments_json

    segmenter = trained_segmenter(str(folder), device)

    def segment(trace: Trace) -> Completion:
        found = _exchanges(trace)
        return Completion(segments_json(segmenter.segment([_session(found)])[0]) if found else "")

    return segment


def _line(trace: Trace, stage: str) -> dict[str, str] | None:
    """A trace in the trainer's format; None for one that is asked otherwise."""
    work = trace.metadata.work
    if stage == OPERATION:
        found = _operation(trace)
        group = f"{work.dataset}/{work.episode}"
        return found and {
            "memory": found["memory"],
            "summary": found["sentence"],
            "label": trace.answer,
            "group": group,
        }
    exchanges = _exchanges(trace)
    return {"id": trace.id, "dialogue": _marked(exchanges, trace.answer)} if exchanges else None


def _operation(trace: Trace) -> dict[str, str] | None:
    found = _inputs(trace, OPERATION)
    return found if found and all(text.strip() for text in found.values()) else None


def _exchanges(trace: Trace) -> list[str] | None:
    found = _inputs(trace, SEGMENT)
    return [text.strip() for text in _EXCHANGE.split(found["dialogue"])[1:]] if found else None


def _inputs(trace: Trace, stage: str) -> dict[str, str] | None:
    """What the stage's prompt was rendered with, read back from what was asked."""
    if trace.metadata.prompt != PROMPTS[stage]:
        return None
    found = _form(PROMPTS[stage]).fullmatch(trace.asked[-1].content.strip())
    return found.groupdict() if found else None


@cache
def _form(prompt: str) -> re.Pattern[str]:
    """The user's section of a prompt as a pattern, an input a group."""
    texts = _INPUT.split(load(prompt).sections["user"].strip())
    parts = [re.escape(text) if place % 2 == 0 else f"(?P<{text}>.*?)" for place, text in enumerate(texts)]
    return re.compile("".join(parts), re.DOTALL)


def _marked(exchanges: Sequence[str], answer: str) -> str:
    """A dialogue as SuperDialSeg writes it, each exchange an utterance."""
    starts = {int(item["first"]) for item in json.loads(answer)["segments"]} - {0}
    lines: list[str] = []
    for place, text in enumerate(exchanges):
        for mark, told in _MARKS.items():
            text = text.replace(mark, told)
        lines += ["[BOUNDARY]", text] if place in starts else [text]
    return "[NEWLINE]".join(lines)


def _session(exchanges: Sequence[str]) -> Session:
    """A session whose exchanges they are: one turn each, as labelled dialogues are read."""
    turns = []
    for place, text in enumerate(exchanges):
        speaker, _, said = text.partition(": ")
        turns.append(Turn(str(place), "user", speaker, said, _UNDATED))
    return Session("asked", tuple(turns))


def _write(path: Path, lines: Sequence[Mapping[str, str]]) -> None:
    write_jsonl(path, lines, "choose another folder")
