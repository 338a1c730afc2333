"""Traces: what a teacher was asked and answered in one stage of a memory system, as JSONL that trainers read.

A line holds `messages` (the last one is the teacher's) and `metadata`: its origin, format and sampling, the values the
prompt was rendered with, and the probability of each choice. A collector writes everything that a teacher is asked
while a system reads conversations. Chats in JSONL, as files for fine-tuning hold them, are imported as traces of a
stage, whatever teacher wrote them: the last message is the assistant's, and what a line says of itself (conversation,
prompt, options, gold, …) is on the same level or in `metadata`. Does not depend on any model, system or data set.
"""

import json
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from json import dumps
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field, TypeAdapter

from localmem.errors import BadInput, BadSettings
from localmem.evaluation.answers import Work
from localmem.files import JsonlLog, parse, read_lines, read_log, write_atomic
from localmem.llm.base import LLM
from localmem.llm.wrappers import Recorder
from localmem.prompts import load
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
    from; `gold` is a human answer. `whole` means that every message of the assistant is learned, not only the last one.
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
    inputs: Mapping[str, str] | None = None


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
        )


@dataclass(frozen=True, slots=True)
class Teacher:
    """Name of the teacher, and the checksums of its weights and chat template, "" if unknown."""

    name: str
    sha256: str = ""
    template_sha256: str = ""


ADAPTER: TypeAdapter[Trace] = TypeAdapter(Trace)


def stage_of(prompt: str) -> str:
    """The stage of a prompt name: respond, summarize, segment, link, refine, blend, operation, judge, …"""
    system, _, task = prompt.partition("/")
    if system == "judge":
        return "judge"
    return _STAGES.get(prompt, "respond" if task.startswith("respond") else task)


def make_trace(prompt: Prompt, completion: Completion, digest: str, teacher: Teacher, work: Work) -> Trace:
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
    )
    messages = (*prompt.messages, Message("assistant", completion.text))
    return Trace(messages, metadata, trace_id(prompt.name, prompt.messages))


def trace_id(prompt: str, context: Sequence[Message]) -> str:
    """An id that is the same for the same words under the same prompt name, whoever is asked and whenever."""
    texts = [[message.role, message.content] for message in context]
    return sha256(dumps([prompt, texts]).encode()).hexdigest()[:16]


def read_traces(path: Path) -> list[Trace]:
    """Every trace of a file. Raises BadInput with file and line."""
    return list(read_log(path, ADAPTER))


def write_traces(path: Path, traces: Sequence[Trace]) -> None:
    """Replace the file by these traces. Raises BadInput."""
    write_atomic(path, (ADAPTER.dump_json(trace) + b"\n" for trace in traces), "choose another folder")


class Collector:
    """Writes traces into `folder`, one file for each stage; to be used with `with`. `stages`, if any, selects stages.

    What was collected before is not written again, so an interrupted collection can be repeated. `counts` gives
    the number of new traces by stage, and of those collected before as "STAGE: duplicate".
    """

    def __init__(self, folder: Path, teacher: Teacher, stages: Collection[str] = ()) -> None:
        self._folder, self._teacher, self._stages = folder, teacher, frozenset(stages)
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._logs: dict[str, JsonlLog[Trace]] = {}
        self._ids: dict[str, set[str]] = {}
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wrap(self, llm: LLM, work: Work) -> LLM:
        """The LLM with its answers recorded as traces of this work."""
        return Recorder(llm, partial(self._record, work))

    def add(self, stage: str, trace: Trace) -> None:
        """Write the trace unless it was collected before."""
        with self._lock:
            if stage not in self._logs:
                log = JsonlLog(self._folder / f"{stage}.jsonl", ADAPTER)
                self._logs[stage] = self._stack.enter_context(log)
                self._ids[stage] = {earlier.id for earlier in log.records}
            if trace.id in self._ids[stage]:
                self.counts[f"{stage}: duplicate"] += 1
                return
            self._ids[stage].add(trace.id)
            self._logs[stage].append(trace)
            self.counts[stage] += 1

    def _record(self, work: Work, prompt: Prompt, completion: Completion, _time: float) -> None:
        stage = stage_of(prompt.name)
        if not self._stages or stage in self._stages:
            self.add(stage, make_trace(prompt, completion, load(prompt.name).digest, self._teacher, work))


FORM = 'write {"messages": [{"role": …, "content": …}, …]}, ending with the assistant\'s message'


_SAME_FIELDS = ("options", "choices", "temperature", "seed", "finish", "stop", "gold", "inputs")


class _ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str


class _Line(BaseModel):
    messages: list[_ChatMessage] = Field(min_length=2)
    metadata: dict[str, object] = Field(default_factory=dict)


class _LineMetadata(BaseModel):
    """What a line says about itself. `system` is the memory system that asked, `source` the data set it read."""

    conversation: str | int | None = None
    source: str | None = None
    system: str = "given"
    prompt: str | None = None
    teacher: str | None = Field(None, validation_alias=AliasChoices("teacher", "model"))
    options: tuple[str, ...] = ()
    choices: Mapping[str, float] | None = None
    form: Mapping[str, object] | None = Field(None, validation_alias="schema")
    temperature: float = Field(0.0, ge=0)
    seed: int | None = None
    max_tokens: int | None = Field(None, ge=1)
    finish: str = Field("stop", validation_alias=AliasChoices("finish", "finish_reason"))
    stop: tuple[str, ...] = ()
    gold: str | None = None
    inputs: Mapping[str, str] | None = None


def import_chats(path: Path, stage: str, teacher: str | None = None) -> list[Trace]:
    """The file's lines as traces of the stage; a line without a conversation is a conversation of its own.

    A line without the name of one of our prompts gets the stage's name. Raises BadInput with file and line.
    """
    lines = list(read_lines(path, "give JSONL with one chat per line"))
    if not lines:
        raise BadInput(f"{path} holds no line; {FORM}")
    file = {"source": path.name, "source_sha256": sha256(path.read_bytes()).hexdigest()}
    return [_import_line(place, line, stage, teacher or path.stem, file) for place, line in lines]


def _import_line(place: str, text: str, stage: str, teacher: str, file: Mapping[str, Any]) -> Trace:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{place} is not JSON ({error}); {FORM}") from error
    line = parse(place, value, _Line, FORM)
    if "work" in line.metadata:  # a line of another collection
        trace = parse(place, value, ADAPTER, FORM)
        trace = replace(trace, id=trace_id(trace.metadata.prompt, trace.context))
    else:
        metadata = parse(place, {**value, **line.metadata}, _LineMetadata, FORM)
        if line.messages[-1].role != "assistant":
            raise BadInput(f"{place}: the last message has the role {line.messages[-1].role!r}; {FORM}")
        messages = tuple(Message("system" if m.role == "developer" else m.role, m.content) for m in line.messages)
        prompt, digest, tokens = _find_prompt(place, metadata.prompt, stage)
        identity = trace_id(prompt, messages[:-1])
        conversation = identity if metadata.conversation is None else str(metadata.conversation)
        about = TraceMetadata(
            prompt=prompt,
            prompt_sha256=digest,
            teacher=metadata.teacher or teacher,
            teacher_sha256="",
            template_sha256="",
            work=Work(metadata.system, metadata.source or file["source"], conversation),
            schema=metadata.form,
            # If unknown, twice what the answer can need: English has about four letters a token.
            max_tokens=metadata.max_tokens or max(tokens, len(messages[-1].content.encode()) // 2),
            **{name: getattr(metadata, name) for name in _SAME_FIELDS},
            **file,
        )
        trace = Trace(messages, about, identity)
    name = trace.metadata.prompt
    actual = stage_of(name) if "/" in name else name
    if actual != stage:
        raise BadInput(f"{place}: the prompt {name!r} belongs to the stage {actual!r}; use --stage {actual}")
    return trace


def _find_prompt(place: str, name: str | None, stage: str) -> tuple[str, str, int]:
    """Name, digest and token limit of the prompt; a prompt that is not ours has no digest."""
    if name is None:
        return stage, "", 64
    try:
        file = load(name)
    except BadSettings as error:
        raise BadInput(f"{place}: {error}; use one of these names, or omit `prompt`") from error
    return name, file.digest, file.max_tokens
