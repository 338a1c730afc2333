"""Outputs that a user has already, of whatever teacher: chats in JSONL, as files for fine-tuning hold them, become
traces of a stage.

Knows no model and asks nothing. A line holds `messages`, the last of them the assistant's; what it says of itself
(conversation, prompt, options, gold, …) stands beside them or in `metadata`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import AliasChoices, BaseModel, Field, TypeAdapter, ValidationError

from finetune.traces.trace import About, Trace, id_of, stage_of
from localmem.errors import BadInput, BadSettings
from localmem.evaluation.answers import Work
from localmem.files import one_line, parse_json, read_text
from localmem.prompts import load
from localmem.types import Message

FORM = 'give {"messages": [{"role": …, "content": …}, …]}, the assistant\'s last'


class Source(NamedTuple):
    """A file of outputs, and who made them where its lines do not say."""

    name: str
    sha256: str
    teacher: str


class _Said(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str


class _Line(BaseModel):
    messages: list[_Said] = Field(min_length=2)
    metadata: dict[str, object] = Field(default_factory=dict)


class _Told(BaseModel):
    """What a line says of itself. `system` is the memory system that asked, `source` the data set it read."""

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


_TRACE: TypeAdapter[Trace] = TypeAdapter(Trace)
_OBJECT: TypeAdapter[dict[str, object]] = TypeAdapter(dict[str, object])


def read_given(path: Path, stage: str, teacher: str | None = None) -> list[Trace]:
    """The file's lines as traces of the stage; a line without a conversation is one of its own.

    Where a line names no prompt of ours, its prompt goes by the stage's name. Raises BadInput with file and line.
    """
    text = read_text(path, "give JSONL, one chat per line")
    source = Source(path.name, sha256(text.encode()).hexdigest(), teacher or path.stem)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise BadInput(f"{path} holds no line; {FORM}")
    return [_trace(f"{path}, line {number}", line, stage, source) for number, line in lines]


def _trace(place: str, text: str, stage: str, source: Source) -> Trace:
    value = parse_json(place, text, _OBJECT, FORM)
    try:
        line = _Line.model_validate(value)
        if "work" in line.metadata:  # a line of another collection
            trace = _TRACE.validate_python(value)
            return _of_stage(place, replace(trace, id=id_of(trace.metadata.prompt, trace.asked)), stage)
        told = _Told.model_validate({**value, **line.metadata})
    except ValidationError as error:
        raise BadInput(f"{place}: {one_line(error)}; {FORM}") from error
    if line.messages[-1].role != "assistant":
        raise BadInput(f"{place}: the last message is of the role {line.messages[-1].role!r}; {FORM}")
    messages = tuple(Message("system" if m.role == "developer" else m.role, m.content) for m in line.messages)
    about = _about(place, told, stage, source, messages)
    return _of_stage(place, Trace(messages, about, id_of(about.prompt, messages[:-1])), stage)


def _about(place: str, told: _Told, stage: str, source: Source, messages: Sequence[Message]) -> About:
    prompt, digest, tokens = _prompt(place, told.prompt, stage)
    name = id_of(prompt, messages[:-1]) if told.conversation is None else str(told.conversation)
    return About(
        prompt=prompt,
        prompt_sha256=digest,
        teacher=told.teacher or source.teacher,
        teacher_sha256="",
        template_sha256="",
        work=Work(told.system, told.source or source.name, name),
        schema=told.form,
        options=told.options,
        choices=told.choices,
        temperature=told.temperature,
        seed=told.seed,
        # Where nobody says, twice what the answer can need: English has four letters a token.
        max_tokens=told.max_tokens or max(tokens, len(messages[-1].content.encode()) // 2),
        finish=told.finish,
        stop=told.stop,
        source=source.name,
        source_sha256=source.sha256,
        gold=told.gold,
    )


def _prompt(place: str, name: str | None, stage: str) -> tuple[str, str, int]:
    """The prompt's name, its digest and its tokens; a prompt that is not ours has no digest."""
    if name is None:
        return stage, "", 64
    try:
        file = load(name)
    except BadSettings as error:
        raise BadInput(f"{place}: {error}; name one of them, or leave `prompt` away") from error
    return name, file.digest, file.max_tokens


def _of_stage(place: str, trace: Trace, stage: str) -> Trace:
    found = stage_of(trace.metadata.prompt) if "/" in trace.metadata.prompt else trace.metadata.prompt
    if found != stage:
        raise BadInput(f"{place}: the prompt {trace.metadata.prompt!r} is of the stage {found!r}; give --stage {found}")
    return trace
