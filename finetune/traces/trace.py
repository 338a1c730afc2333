"""Traces: what a teacher was asked and answered in one stage of a memory system, as JSONL that trainers read.

A line holds `messages` (the last one is the teacher's) and `metadata`: its origin, format and sampling, the values the
prompt was rendered with, the probability of each choice, and what answered at what cost. Does not depend on any model,
system or data set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from hashlib import sha256
from json import dumps
from math import isfinite
from pathlib import Path

from pydantic import TypeAdapter

from localmem.errors import BadInput
from localmem.evaluation.answers import Work
from localmem.files import nearest, read_log, write_atomic
from localmem.llm.base import route
from localmem.prompts import list_prompts
from localmem.types import Choice, Completion, FreeText, JsonSchema, Message, Prompt

# The stage of a prompt by its name, otherwise by its task; other tasks are stages of their own name.
_STAGES: Mapping[str, str] = {
    "rsum/update": "summarize",
    "secom/continue": "segment",
    "theanine/explain": "link",
    "creem/first": "blend",
}


@dataclass(frozen=True, slots=True)
class TraceMetadata:
    """Where a trace comes from and how it was made.

    `choices` are log-probabilities of a choice's options; an option that is missing is impossible, which JSON has no
    number for. `inputs` are the values that the prompt was rendered with; None in traces of another origin, and in
    those collected before inputs were recorded. `source` is the file, with its checksum, that an answer was imported
    from; `gold` is a human answer. `session` and its `time` are what was read, or replied in, when this was asked.
    `adapter` is the name and checksum of the LoRA weights that answered beside the teacher's own; the call took so many
    `seconds` (a batch is one call) and tokens. `sample` numbers the answers of one teacher to one prompt, and
    `rejected` is a worse one of these. `extra` and `open_ended` are the prompt's, as its `stop` is.
    """

    prompt: str
    prompt_sha256: str
    teacher: str
    teacher_sha256: str
    template_sha256: str
    work: Work
    schema: Mapping[str, object] | None = None
    options: tuple[str, ...] = ()
    choices: Mapping[str, float] | None = None
    temperature: float = 0.0
    seed: int | None = None
    max_tokens: int = 0
    finish: str = "stop"
    stop: tuple[str, ...] = ()
    source: str = ""
    source_sha256: str = ""
    gold: str | None = None
    inputs: Mapping[str, str] | None = None
    session: str = ""
    time: datetime | None = None
    adapter: str = ""
    seconds: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    sample: int = 0
    rejected: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    open_ended: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer of a teacher; the last message is the assistant's."""

    messages: tuple[Message, ...]
    metadata: TraceMetadata
    id: str = ""

    @property
    def context(self) -> tuple[Message, ...]:
        """The messages before the answer: what the teacher was shown."""
        return self.messages[:-1]

    @property
    def context_text(self) -> str:
        """The messages before the answer as one text."""
        return "\n".join(message.content for message in self.context)

    @property
    def answer(self) -> str:
        """The teacher's answer."""
        return self.messages[-1].content

    def prompt(self) -> Prompt:
        """The prompt that the teacher was given."""
        metadata = self.metadata
        if metadata.options:
            form: Choice | JsonSchema | FreeText = Choice(metadata.options)
        else:
            form = JsonSchema(metadata.schema) if metadata.schema else FreeText()
        return Prompt(
            metadata.prompt,
            self.context,
            max_tokens=metadata.max_tokens,
            temperature=metadata.temperature,
            seed=metadata.seed,
            stop=metadata.stop,
            format=form,
            extra=metadata.extra,
            open_ended=metadata.open_ended,
        )


@dataclass(frozen=True, slots=True)
class Teacher:
    """Name of the teacher, and the checksums of its weights and chat template, "" if unknown.

    `adapters` names the LoRA weights that answer instead of the plain model, by prompt or system name.
    """

    name: str
    sha256: str = ""
    template_sha256: str = ""
    adapters: Mapping[str, str] = field(default_factory=dict)


ADAPTER: TypeAdapter[Trace] = TypeAdapter(Trace)


def stage_of(prompt: str) -> str:
    """The stage of a prompt name: respond, summarize, segment, link, refine, blend, operation, judge, …"""
    system, _, task = prompt.partition("/")
    if system == "judge":
        return "judge"
    return _STAGES.get(prompt, "respond" if task.startswith("respond") else task)


@cache
def stages() -> frozenset[str]:
    """Every stage that a shipped prompt belongs to."""
    return frozenset(map(stage_of, list_prompts()))


def check_stage(stage: str) -> None:
    """Raise BadInput for a name that is no stage."""
    if stage not in stages():
        raise BadInput(
            f"there is no stage {stage!r}{nearest(stage, stages())}; use one of {', '.join(sorted(stages()))}"
        )


def make_trace(
    prompt: Prompt,
    completion: Completion,
    digest: str,
    teacher: Teacher,
    work: Work,
    *,
    seconds: float | None = None,
    sample: int = 0,
) -> Trace:
    """A trace of one prompt and its answer; `digest` is that of the prompt file."""
    form = prompt.format
    choices = completion.choices
    metadata = TraceMetadata(
        prompt=prompt.name,
        prompt_sha256=digest,
        teacher=teacher.name,
        teacher_sha256=teacher.sha256,
        template_sha256=teacher.template_sha256,
        work=work,
        schema=form.schema if isinstance(form, JsonSchema) else None,
        options=form.options if isinstance(form, Choice) else (),
        choices={option: value for option, value in choices.items() if isfinite(value)} if choices else None,
        temperature=prompt.temperature,
        seed=prompt.seed,
        max_tokens=prompt.max_tokens,
        finish=completion.finish,
        stop=prompt.stop,
        inputs=prompt.inputs or None,
        adapter=route(teacher.adapters, prompt.name) or "",
        seconds=seconds,
        input_tokens=completion.usage.input,
        output_tokens=completion.usage.output,
        sample=sample,
        extra=prompt.extra,
        open_ended=prompt.open_ended,
    )
    messages = (*prompt.messages, Message("assistant", completion.text))
    return identify(Trace(messages, metadata))


def identify(trace: Trace) -> Trace:
    """The trace with the id of its question, of what answered, and of the sample, which does not depend on the time."""
    metadata = trace.metadata
    parts = [question_id(metadata.prompt, trace.context), metadata.teacher, metadata.adapter, metadata.sample]
    return replace(trace, id=_digest(parts))


def question_id(prompt: str, context: Sequence[Message]) -> str:
    """An id that is the same for the same words under the same prompt name, whoever is asked and whenever."""
    return _digest([prompt, [[message.role, message.content] for message in context]])


def _digest(value: object) -> str:
    return sha256(dumps(value).encode()).hexdigest()[:16]


def read_traces(path: Path) -> list[Trace]:
    """Every trace of a file. Raises BadInput with file and line."""
    return list(read_log(path, ADAPTER))


def read_stage(collection: Path, part: str, stage: str) -> list[Trace]:
    """The traces of a stage in the part `train`, `valid` or `test` of a collection. Raises BadInput."""
    path = collection / part / f"{stage}.jsonl"
    if not path.exists():
        available = sorted(other.stem for other in path.parent.glob("*.jsonl"))
        cure = f"use one of {', '.join(available)}" if available else "give the folder of a collection"
        raise BadInput(f"{path.parent} has no stage {stage!r}{nearest(stage, available)}; {cure}")
    return read_traces(path)


def write_traces(path: Path, traces: Sequence[Trace]) -> None:
    """Replace the file by these traces. Raises BadInput."""
    write_atomic(path, (ADAPTER.dump_json(trace) + b"\n" for trace in traces), "choose another folder")
