"""Import of chats in JSONL, as files for fine-tuning hold them, as traces of a stage, whatever teacher wrote them.

Does not use any model. A line holds `messages`, the last of them the assistant's; what it says about itself
(conversation, prompt, options, gold, …) is on the same level or in `metadata`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field

from finetune.traces.trace import ADAPTER, Trace, TraceMetadata, stage_of, trace_id
from localmem.errors import BadInput, BadSettings
from localmem.evaluation.answers import Work
from localmem.files import parse, read_lines
from localmem.prompts import load
from localmem.types import Message

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
