"""Import of chats in JSONL as traces of a stage, in the forms that files for fine-tuning have.

A line holds `messages`, whose contents are texts or lists of parts; a ShareGPT `conversations` list; or `prompt` and
`completion`, each a text or messages. The last message is the assistant's, and what a line says of itself
(conversation, options, gold, …) is on the same level or in `metadata`. Does not depend on any model or system.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import AliasChoices, BaseModel, Field, field_validator

from finetune.traces.trace import ADAPTER, Trace, TraceMetadata, check_stage, identify, question_id, stage_of
from localmem.errors import BadInput, BadSettings
from localmem.evaluation.answers import Work
from localmem.files import parse, read_lines
from localmem.prompts import load
from localmem.types import Message

FORM = 'write {"messages": [{"role": …, "content": …}, …]}, ending with the assistant\'s message'


_SAME_FIELDS = ("options", "choices", "temperature", "seed", "finish", "stop", "gold", "inputs", "session", "time")
_SHAREGPT = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


class _ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, content: object) -> object:
        """The text of content parts; a part without text, such as an image, cannot be learned and stays wrong."""
        if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
            return "\n".join(str(part["text"]) for part in content)
        return content


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
    session: str = ""
    time: datetime | None = None


def import_chats(path: Path, stage: str, teacher: str | None = None) -> list[Trace]:
    """The file's lines as traces of the stage; a line without a conversation is a conversation of its own.

    A line without the name of one of our prompts gets the stage's name. Other answers to the same question are further
    samples. Raises BadInput with file and line.
    """
    check_stage(stage)
    lines = list(read_lines(path, "give JSONL with one chat per line"))
    if not lines:
        raise BadInput(f"{path} holds no line; {FORM}")
    file = {"source": path.name, "source_sha256": sha256(path.read_bytes()).hexdigest()}
    return _number_samples(_import_line(place, line, stage, teacher or path.stem, file) for place, line in lines)


def _number_samples(traces: Iterable[Trace]) -> list[Trace]:
    """Traces with one id and different answers, as samples 0, 1 and so on."""
    answers: defaultdict[str, list[str]] = defaultdict(list)
    numbered = []
    for trace in traces:
        earlier = answers[trace.id]
        if trace.answer not in earlier:
            earlier.append(trace.answer)
        sample = trace.metadata.sample or earlier.index(trace.answer)
        numbered.append(identify(replace(trace, metadata=replace(trace.metadata, sample=sample))))
    return numbered


def _as_messages(value: object) -> object:
    """A line in one of the other forms as one with `messages`; anything else as it is."""
    if not isinstance(value, dict) or "messages" in value:
        return value
    turns = value.get("conversations")
    if isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns):
        roles = ((str(turn.get("from")), turn.get("value")) for turn in turns)
        messages = [{"role": _SHAREGPT.get(role, role), "content": text} for role, text in roles]
        return {**{name: own for name, own in value.items() if name != "conversations"}, "messages": messages}
    if "prompt" in value and "completion" in value:
        pairs = (("user", value["prompt"]), ("assistant", value["completion"]))
        messages = [
            message
            for role, content in pairs
            for message in (content if isinstance(content, list) else [{"role": role, "content": content}])
        ]
        remaining = {name: own for name, own in value.items() if name not in ("prompt", "completion")}
        return {**remaining, "messages": messages}
    return value


def _import_line(place: str, text: str, stage: str, teacher: str, file: Mapping[str, Any]) -> Trace:
    try:
        value = _as_messages(json.loads(text))
    except ValueError as error:
        raise BadInput(f"{place} is not JSON ({error}); {FORM}") from error
    line = parse(place, value, _Line, FORM)
    if "work" in line.metadata:  # a line of another collection
        trace = parse(place, value, ADAPTER, FORM)
        trace = identify(trace)
    else:
        metadata = parse(place, {**cast("Mapping[str, object]", value), **line.metadata}, _LineMetadata, FORM)
        if line.messages[-1].role != "assistant":
            raise BadInput(f"{place}: the last message has the role {line.messages[-1].role!r}; {FORM}")
        messages = tuple(Message("system" if m.role == "developer" else m.role, m.content) for m in line.messages)
        prompt, digest, tokens = _find_prompt(place, metadata.prompt, stage)
        question = question_id(prompt, messages[:-1])
        conversation = question if metadata.conversation is None else str(metadata.conversation)
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
        trace = identify(Trace(messages, about))
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
