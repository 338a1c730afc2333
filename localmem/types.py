"""The plain data that all of localmem uses: turns, sessions, units, changes, prompts, replies.

Frozen values without behaviour. They do not depend on a model, a file or a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal, NamedTuple

Role = Literal["user", "assistant"]


CUT = "-cut"  # ends the id of a reply that was broken off: the log marks it without a column of its own


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `time` has a UTC offset; `speaker` is the name in prompts, `role` the side of the dialogue."""

    id: str
    role: Role
    speaker: str
    text: str
    time: datetime

    @property
    def is_cut(self) -> bool:
        """Whether it is a reply that was broken off: by its client, the backbone, or the end of its session."""
        return self.id.endswith(CUT)


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation: its turns in order."""

    id: str
    turns: tuple[Turn, ...] = ()

    def exchanges(self) -> tuple["Exchange", ...]:
        """The turns in pairs: a user turn opens an exchange, an assistant turn completes the open one."""
        pairs: list[Exchange] = []
        for turn in self.turns:
            last = pairs[-1] if pairs else None
            if turn.role == "assistant" and last and last.reply is None:
                pairs[-1] = Exchange(last.user, turn)
            else:
                pairs.append(Exchange(turn, None) if turn.role == "user" else Exchange(None, turn))
        return tuple(pairs)


class DateRange(NamedTuple):
    """Days from the first to the last, both included; a single day has both the same."""

    first: date
    last: date


Origin = Literal["user", "assistant", "dialogue", "document", "client", "api"]
"""Who a unit's words come from: the user, the assistant, both sides (or a model that read them), a text that the user
showed, a client's machinery, a program that wrote to the API."""

Precision = Literal["day", "week", "month", "season", "year"]
TimeRole = Literal["at", "since", "until", "for"]


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time that a text names, resolved by the day it was said on.

    `words` stand at character `at` of the text. There is one of `readings` where it is sure, several where it is
    ambiguous. `role` is "until" for "till June", "for" for "for six weeks". `repeats` is an RRULE (RFC 5545) of what
    recurs, "" for what does not; `readings` then hold its first occurrence.
    """

    words: str
    at: int
    readings: tuple[DateRange, ...]
    precision: Precision
    role: TimeRole = "at"
    repeats: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """A retrievable item of a bank.

    `text` is shown to the model, `key` is indexed. `speaker` is the person it is about ("" for both sides). `sources`
    are the ids of the turns it came from, `time` is the time of the event, `learned` the time the unit was added.
    `spans` are the times that its text names, None where nobody looked for them; they follow from the text, so they do
    not distinguish units. Neither does `origin`, None in a unit of before units had any: `text.provenance` derives it.
    """

    id: str
    text: str
    key: str
    kind: str
    speaker: str
    session: str
    sources: tuple[str, ...]
    time: datetime
    learned: datetime
    spans: tuple[TimeSpan, ...] | None = field(default=None, compare=False)
    origin: Origin | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Link:
    """A labelled edge from an older to a newer unit; `probability` is the label's, if there is one."""

    source: str
    target: str
    relation: str
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class AddUnit:
    """Adds a unit to the bank. Adding the same unit again changes nothing."""

    unit: Unit
    time: datetime
    type: Literal["add_unit"] = "add_unit"


@dataclass(frozen=True, slots=True)
class RetireUnit:
    """Removes a unit from recall, not from history. `by` is the unit that replaces it, or the step that retired it."""

    unit: str
    by: str
    reason: str
    time: datetime
    type: Literal["retire_unit"] = "retire_unit"


@dataclass(frozen=True, slots=True)
class AddLink:
    """Adds an edge to the bank."""

    link: Link
    time: datetime
    type: Literal["add_link"] = "add_link"


@dataclass(frozen=True, slots=True)
class SetNote:
    """Sets a named text, for example the recursive summary."""

    name: str
    text: str
    time: datetime
    type: Literal["set_note"] = "set_note"


@dataclass(frozen=True, slots=True)
class MarkUnit:
    """Sets a number of a unit, for example how often it was recalled."""

    unit: str
    mark: str
    value: float
    time: datetime
    type: Literal["mark_unit"] = "mark_unit"


@dataclass(frozen=True, slots=True)
class Hide:
    """Hides a turn, or a unit by its id, and every unit that came from it, now or whenever it is remembered again.

    `by` is the turn that asked for it. It may name what the bank does not hold: a rebuild reads it before the units.
    """

    item: str
    by: str
    time: datetime
    type: Literal["hide"] = "hide"


@dataclass(frozen=True, slots=True)
class Restore:
    """Takes back the retirement of a unit, or the hiding of a turn or unit."""

    item: str
    time: datetime
    type: Literal["restore"] = "restore"


RefusalReason = Literal[
    "placeholder", "loop", "copied from the prompt", "name", "number", "date", "duplicate", "PASS", "DELETE"
]


@dataclass(frozen=True, slots=True)
class RefuseText:
    """Records a model's text that did not become memory; it changes nothing that is recalled.

    `prompt` names the prompt it answered. `sources` are the ids of the turns it was made from. `detail` is the name,
    number or date that no source holds, or the memory by which an operation (PASS, DELETE) dropped the text.
    """

    text: str
    reason: RefusalReason
    prompt: str
    sources: tuple[str, ...]
    time: datetime
    detail: str = ""
    type: Literal["refuse_text"] = "refuse_text"


Change = AddUnit | RetireUnit | AddLink | SetNote | MarkUnit | RefuseText | Hide | Restore


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result: a unit, its score (higher is better), and the id of a later unit that corrects it, if any."""

    unit: Unit
    score: float
    corrected_by: str = ""


@dataclass(frozen=True, slots=True)
class Working:
    """What follows from what was said, such as a length of time, in words; and the ids of the turns with its parts."""

    text: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """What the reply should know.

    `text` goes into the prompt ("" for nothing). `hits` are the units it comes from, in the order shown. `proposed` are
    changes that recall computed and that `observe` may commit after the reply. A `reply` is memory's own: it is given
    instead of the backbone's, and what was `proposed` with it is committed before. `workings` are what was worked out
    for the question, which the text holds, too.
    """

    text: str = ""
    hits: tuple[Hit, ...] = ()
    proposed: tuple[Change, ...] = ()
    reply: str = ""
    workings: tuple[Working, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user turn and its reply (either may be missing in an imported log), and the recall that the reply saw."""

    user: Turn | None
    reply: Turn | None
    recall: Recall | None = None

    def turns(self) -> tuple[Turn, ...]:
        """The turns that are not missing."""
        return tuple(turn for turn in (self.user, self.reply) if turn is not None)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt, in the form of chat models.

    `fields` are further fields in OpenAI's form: the `tool_calls` of an assistant, the `tool_call_id` of a tool's
    result, and under `parts` what the content holds beside its text, such as images.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    fields: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class FreeText:
    """No constraint on the answer."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer is exactly one of the options (at least two, all different)."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer is JSON that satisfies the schema. One that its tokens run out for is an error, or as it is."""

    schema: Mapping[str, object]
    may_be_cut: bool = False


Format = FreeText | Choice | JsonSchema


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to an LLM. `name` is `<system>/<task>`: metering, tracing, routing to adapters and tests use it.

    `extra` holds further sampling fields of an OpenAI-style request; a server backend passes them on unchanged.
    A `background` prompt is one that no user waits for: it is scheduled behind the others.
    `inputs` are the values that the prompt file was rendered with, by input name. They are a record for whoever learns
    from the prompt: no backend sends them, and two prompts that differ in them alone are equal.
    `prefill` is how the answer begins; the model continues it, and the completion holds only what it adds.
    `user` is whose request it is: those of one user go to one server, where there are several.
    The answer to an `open_ended` prompt may be longer than `max_tokens`, which are kept free for it: as long as the
    context allows.
    """

    name: str
    messages: tuple[Message, ...]
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = 0
    stop: tuple[str, ...] = ()
    format: Format = field(default_factory=FreeText)
    extra: Mapping[str, object] = field(default_factory=dict)
    background: bool = False
    open_ended: bool = False
    prefill: str = ""
    user: str = field(default="", compare=False, repr=False)
    inputs: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one completion; `cached` of the input tokens came from the prefix cache, if the backend reports it."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer.

    `choices` holds log-probabilities, normalised over a Choice's options. `trimmed` is the number of tokens that were
    cut from the prompt to make it fit. `tool_calls`, and the `logprobs` of the tokens, are in OpenAI's form.
    `stop` is the stop string that ended it, where the backend says so.
    """

    text: str
    finish: Literal["stop", "length", "tool_calls"] = "stop"
    usage: Usage = Usage()
    choices: Mapping[str, float] | None = None
    trimmed: int = 0
    tool_calls: tuple[Mapping[str, object], ...] = ()
    logprobs: tuple[Mapping[str, object], ...] = ()
    stop: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one user turn, with the recall, prompt and completion that led to it."""

    turn: Turn
    recall: Recall
    prompt: Prompt
    completion: Completion
