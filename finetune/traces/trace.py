"""Traces: what a teacher was asked and answered in one stage of a memory system, as JSONL that trainers read.

A line holds `messages` (the last is the teacher's) and `metadata`: where it comes from, under which format and sampling
it was made, how probable each choice was. Knows no model; `finetune.traces.collect` records traces and
`finetune.traces.filtering` filters them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from json import dumps
from math import isfinite
from pathlib import Path

from pydantic import TypeAdapter

from localmem.evaluation.answers import Work
from localmem.files import JsonlLog, read_log, write_atomic
from localmem.types import Choice, Completion, JsonSchema, Message, Prompt

# The stage of a prompt, by its name or else by its task; other tasks are stages of their own name.
_BY_NAME: Mapping[str, str] = {
    "rsum/update": "summarize",
    "secom/continue": "segment",
    "theanine/explain": "link",
    "creem/first": "blend",
}


@dataclass(frozen=True, slots=True)
class About:
    """Where a trace comes from and how it was made. `choices` are log-probabilities of a choice's options.

    An option that is not among them is impossible: JSON has no number for that. `source` is the file, with its
    checksum, that an answer was taken from rather than recorded; `gold` is the answer that people give, where they do.
    `whole`: every message of the assistant is to be learned, not the last alone.
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
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer of a teacher; the last message is the assistant's."""

    messages: tuple[Message, ...]
    metadata: About
    id: str = field(default="")

    @property
    def asked(self) -> tuple[Message, ...]:
        """What the teacher was shown."""
        return self.messages[:-1]

    @property
    def answer(self) -> str:
        """What it answered."""
        return self.messages[-1].content


@dataclass(frozen=True, slots=True)
class Teacher:
    """Who answers, by name and the checksum of its weights, and under which chat template; "" where nobody knows."""

    name: str
    sha256: str = ""
    template_sha256: str = ""


_FORM: TypeAdapter[Trace] = TypeAdapter(Trace)


def stage_of(prompt: str) -> str:
    """The stage that a prompt belongs to: respond, summarize, segment, link, refine, blend, operation, judge, …"""
    system, _, task = prompt.partition("/")
    if system == "judge":
        return "judge"
    return _BY_NAME.get(prompt, "respond" if task.startswith("respond") else task)


def trace_of(prompt: Prompt, completion: Completion, digest: str, teacher: Teacher, work: Work) -> Trace:
    """What was asked and answered, as a trace; `digest` is that of the prompt's file."""
    form = prompt.format
    about = About(
        prompt=prompt.name,
        prompt_sha256=digest,
        teacher=teacher.name,
        teacher_sha256=teacher.sha256,
        template_sha256=teacher.template_sha256,
        work=work,
        schema=form.schema if isinstance(form, JsonSchema) else None,
        options=form.options if isinstance(form, Choice) else (),
        choices=None if completion.choices is None else _finite(completion.choices),
        temperature=prompt.temperature,
        seed=prompt.seed,
        max_tokens=prompt.max_tokens,
        finish=completion.finish,
        stop=prompt.stop,
    )
    return Trace((*prompt.messages, Message("assistant", completion.text)), about, id_of(prompt.name, prompt.messages))


def id_of(prompt: str, asked: Sequence[Message]) -> str:
    """The same for the same words under the same prompt name, whoever is asked and whenever."""
    said = [[message.role, message.content] for message in asked]
    return sha256(dumps([prompt, said]).encode()).hexdigest()[:16]


def traces_in(folder: Path, stage: str) -> JsonlLog[Trace]:
    """The file of a stage, to be opened with `with` and written to."""
    return JsonlLog(folder / f"{stage}.jsonl", _FORM)


def read_traces(path: Path) -> list[Trace]:
    """Every trace of a file. Raises BadInput with file and line."""
    return list(read_log(path, _FORM))


def write_traces(path: Path, traces: Sequence[Trace]) -> None:
    """In place of what the file held. Raises BadInput."""
    write_atomic(path, (_FORM.dump_json(trace) + b"\n" for trace in traces), "choose another folder")


def _finite(choices: Mapping[str, float]) -> dict[str, float]:
    return {option: value for option, value in choices.items() if isfinite(value)}
