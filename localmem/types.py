"""The plain data that all of localmem speaks: turns, sessions, units, changes, prompts, replies.

Values only: frozen, comparable, and able to read themselves, no more. They know no model, file or clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `time` is aware; `speaker` is the name shown in prompts, `role` the side of the dialogue."""

    id: str
    role: Role
    speaker: str
    text: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Session:
    """One sitting: its turns in the order they were said."""

    id: str
    turns: tuple[Turn, ...] = ()

    def exchanges(self) -> tuple["Exchange", ...]:
        """The turns paired up: a user turn opens an exchange, an assistant's turn joins the open one."""
        pairs: list[Exchange] = []
        for turn in self.turns:
            last = pairs[-1] if pairs else None
            if turn.role == "assistant" and last and last.reply is None:
                pairs[-1] = Exchange(last.user, turn)
            else:
                pairs.append(Exchange(turn, None) if turn.role == "user" else Exchange(None, turn))
        return tuple(pairs)


@dataclass(frozen=True, slots=True)
class Unit:
    """A retrievable item of a bank.

    `text` is shown to the model, `key` is indexed. `speaker` is whom it is about ("" for both sides). `sources` are the
    ids of the turns it came from, `time` is when the event took place, `learned` when the system came to know it.
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


@dataclass(frozen=True, slots=True)
class Link:
    """A labelled edge between two units, older to newer; `probability` is the labeller's, if it gave one."""

    source: str
    target: str
    relation: str
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class AddUnit:
    """A unit enters the bank. Adding the same unit again changes nothing."""

    unit: Unit
    time: datetime
    type: Literal["add_unit"] = "add_unit"


@dataclass(frozen=True, slots=True)
class RetireUnit:
    """A unit leaves recall and stays in history. `by` is the unit that supersedes it, or the step that retired it."""

    unit: str
    by: str
    reason: str
    time: datetime
    type: Literal["retire_unit"] = "retire_unit"


@dataclass(frozen=True, slots=True)
class AddLink:
    """An edge enters the bank."""

    link: Link
    time: datetime
    type: Literal["add_link"] = "add_link"


@dataclass(frozen=True, slots=True)
class SetNote:
    """A named text is written anew (for example the recursive summary)."""

    name: str
    text: str
    time: datetime
    type: Literal["set_note"] = "set_note"


@dataclass(frozen=True, slots=True)
class MarkUnit:
    """A number is kept beside a unit (for example how often it was recalled)."""

    unit: str
    mark: str
    value: float
    time: datetime
    type: Literal["mark_unit"] = "mark_unit"


Change = AddUnit | RetireUnit | AddLink | SetNote | MarkUnit


@dataclass(frozen=True, slots=True)
class Hit:
    """A unit that a search found, with its score (higher is better)."""

    unit: Unit
    score: float


@dataclass(frozen=True, slots=True)
class Recall:
    """What is worth knowing now.

    `text` goes into the prompt ("" when there is nothing to say). `hits` are the units behind it, in the order shown.
    `proposed` are changes that recall worked out and that `observe` may commit once the reply was given.
    """

    text: str = ""
    hits: tuple[Hit, ...] = ()
    proposed: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user turn and its reply (either may be missing in a read log), and what the reply's recall saw."""

    user: Turn | None
    reply: Turn | None
    recall: Recall | None = None

    def turns(self) -> tuple[Turn, ...]:
        return tuple(turn for turn in (self.user, self.reply) if turn is not None)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt, as chat models take them."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class FreeText:
    """No constraint on the answer."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer is exactly one of the options (at least two, all different)."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer is a JSON text that satisfies the schema."""

    schema: Mapping[str, object]


Format = FreeText | Choice | JsonSchema


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to an LLM. `name` is `<system>/<task>`: metering, capture, routing and fakes all key on it.

    `extra` holds further sampling fields of an OpenAI-style request; a server backend passes them on as they are.
    A `background` prompt is one that no user waits for: it is scheduled behind the others.
    `inputs` are the values that the prompt file was rendered with, by input name. They are a record for whoever learns
    from the prompt: no backend sends them, and two prompts that differ in them alone are equal.
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
    inputs: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one completion; `cached` of the input tokens came from the prefix cache where the backend tells."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer.

    `choices` holds log-probabilities, normalised over a Choice's options. `trimmed` counts the tokens that were cut
    from the prompt to make it fit.
    """

    text: str
    finish: Literal["stop", "length"] = "stop"
    usage: Usage = Usage()
    choices: Mapping[str, float] | None = None
    trimmed: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """The agent's answer to one user turn, with everything that led to it."""

    turn: Turn
    recall: Recall
    prompt: Prompt
    completion: Completion
