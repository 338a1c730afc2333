"""Responder: answers a dialogue from memory. Recalls, lays out the prompt, and streams the backbone's reply.

Writes nothing and keeps no log: the conversation that uses it does. Loads no weights before the first reply, so looking
at a memory costs no backbone.
"""

import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from localmem.chat.forgetting_replies import replies_to
from localmem.chat.reader import Reader
from localmem.grounding.injections import is_injected
from localmem.llm.base import LLM, alternate, required_abilities
from localmem.memory import Memory
from localmem.prompts import load
from localmem.text.dialogue import Count, day
from localmem.text.provenance import FOREIGN, origin_of
from localmem.turns.distinctive_words import find_distinctive_words
from localmem.turns.pins import recall_with_pins
from localmem.turns.reminders import add_reminder, stream_with_reminder
from localmem.types import CUT, Completion, FreeText, Hide, Message, Prompt, Recall, Reply, Session, Turn

# Tokens of memory that one session's dialogue may hold, and no more than half of the context: a server caches them all.
_SHOWN_TOKENS = 4096


class Speakers(NamedTuple):
    """What the two sides are called in prompts and in the log."""

    user: str = "User"
    assistant: str = "Assistant"


class Sampling(NamedTuple):
    """How replies are sampled. Without `max_tokens` a reply may take what the context leaves; without the others the
    prompt's own are used. Replies of a temperature differ from one time to the next."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None

    def completed_by(self, defaults: "Sampling") -> "Sampling":
        """These values, and those of `defaults` for what has none."""
        missing = {name: value for name, value in defaults._asdict().items() if getattr(self, name) is None}
        return self._replace(**missing)

    def apply(self, prompt: Prompt) -> Prompt:
        """The prompt with these values."""
        if self.temperature is not None:
            prompt = replace(prompt, temperature=self.temperature, seed=None)
        names = ("top_p", "repetition_penalty", "frequency_penalty")
        extra = {name: value for name in names if (value := getattr(self, name)) is not None}
        prompt = replace(prompt, extra={**prompt.extra, **extra})
        if self.max_tokens is None:
            return replace(prompt, open_ended=True)
        return replace(prompt, max_tokens=self.max_tokens)


class PreparedReply(NamedTuple):
    """All that a reply needs before the backbone is asked. `content` is the prompt's last message.

    A `reading` is the reader's reply, given in place of the backbone's wherever no more than free text is asked for, a
    `reminder` what the reader adds to the backbone's there. `unlogged` are the telling words of messages in the prompt
    that are not to be logged: a reply with one of them is not logged either.
    """

    recall: Recall
    prompt: Prompt
    content: str
    reading: str = ""
    reminder: str = ""
    unlogged: Set[str] = frozenset()

    def may_be_logged(self, reply: str) -> bool:
        """Whether a reply repeats nothing that is not to be logged; memory's own speaks of what is."""
        return bool(self.recall.reply) or not self.unlogged or self.unlogged.isdisjoint(find_distinctive_words(reply))

    @property
    def ready(self) -> str:
        """The reply that needs no backbone, "" without one."""
        return self.recall.reply or (self.reading if self._is_plain else "")

    @property
    def addition(self) -> str:
        """What is added to the backbone's reply, mostly nothing."""
        return self.reminder if self._is_plain else ""

    @property
    def _is_plain(self) -> bool:
        return isinstance(self.prompt.format, FreeText) and not required_abilities(self.prompt)


@dataclass(frozen=True, slots=True)
class Attachment:
    """What a turn has beside its words: `parts` such as images, and what tools were asked and answered after it."""

    parts: tuple[object, ...] = ()
    following: tuple[Message, ...] = ()

    def messages(self, turn: Message) -> tuple[Message, ...]:
        """The turn's message with its parts, and those that follow it."""
        return (replace(turn, fields={"parts": self.parts}) if self.parts else turn, *self.following)


_NOTHING = Attachment()


class Responder:
    """One user's responder, for any number of threads.

    `pending` returns the turns of sessions that are over and not yet remembered; they precede the dialogue, so that a
    user can refer to what was just said. `memory_position` says where recalled memory is placed: in the system message,
    or last, before the user's turn. A text that neither side said, or that reads like an instruction, is never in the
    system message. In the last position memory stays in the dialogue while the session lasts, and later turns show only
    what is new; `shown` keeps track of that. `own_recall` returns what memory itself replies to a dialogue, if
    anything; a `reader` answers from what is recalled. Without `sampling` a reply has the limit and temperature of its
    prompt file.
    """

    def __init__(
        self,
        *,
        memory: Memory,
        llm: LLM,
        speakers: Speakers = Speakers(),  # noqa: B008  # an immutable value
        instructions: str = "",
        memory_position: str = "last",
        sampling: Sampling | None = None,
        reader: Reader | None = None,
        pending: Callable[[Session], Sequence[Turn]] = lambda _dialogue: (),
        own_recall: Callable[[Session], Recall | None] = lambda _dialogue: None,
    ) -> None:
        self.memory = memory
        self.speakers = speakers
        self.sampling = sampling
        self._llm = llm
        self._reader = reader
        self._instructions = instructions
        self._in_system = memory_position == "system"
        self._pending = pending
        self._own_recall = own_recall
        self.shown = ShownMemory(llm.count_tokens, lambda: min(_SHOWN_TOKENS, llm.context_length // 2))

    def prepare(
        self,
        dialogue: Session,
        instructions: str | None = None,
        recall: Recall | None = None,
        *,
        query: Session | None = None,
        attachments: Mapping[int, Attachment] | None = None,
    ) -> PreparedReply:
        """The recalled memory and the prompt for the dialogue's last turn. Changes nothing and asks no backbone.

        `instructions` replace the responder's own; a `recall` given by the caller replaces the search. `query` is what
        memory is searched by, where the dialogue holds more than was said. `attachments` are by the place of
        their turn in the dialogue, -1 for the last.
        """
        # Pending sessions are read before the bank: a session remembered in between then appears twice, never not at
        # all.
        pending = self._pending(dialogue)
        if recall is None:
            recall = self._own_recall(query or dialogue) or recall_with_pins(self.memory, query or dialogue)
        hidden = self.memory.bank.hidden
        self.shown.clear_if_changed(hidden)
        reader = None if recall.reply else self._reader
        reading = reader.reply(dialogue, recall, hidden) if reader else ""
        reminder = reader.remind(dialogue, recall) if reader and not reading else ""
        composed = self._compose(dialogue, recall, instructions, pending, attachments or {})
        return PreparedReply(recall, *composed, reading, reminder)

    def stream(self, dialogue: Session, prepared: PreparedReply) -> Generator[str, None, Completion]:
        """The reply piece by piece; the generator returns the whole Completion. A ready one asks no backbone."""
        if prepared.ready:
            return (yield from say(prepared.ready))
        completion = yield from stream_with_reminder(self._llm.stream(prepared.prompt), prepared.addition)
        if completion.trimmed:
            self.shown.forget(dialogue.id)
        elif not self._in_system:
            new = self.shown.select_new(dialogue, prepared.recall.text)
            self.shown.record(dialogue, new, prepared.content)
        return completion

    def answer(self, dialogue: Session) -> Reply:
        """The reply to a dialogue that is logged nowhere: nothing changes, so many may be asked of one memory."""
        prepared = self.prepare(dialogue)
        recall, prompt = prepared.recall, prepared.prompt
        ready = replies_to(dialogue.turns[-1].text).not_changed if recall.reply else prepared.ready
        (completion,) = [Completion(ready)] if ready else self._llm.generate([prompt])
        completion = completion if ready else add_reminder(completion, prepared.addition)
        last = dialogue.turns[-1]
        turn = Turn(
            f"{dialogue.id}.{next_number(dialogue)}", "assistant", self.speakers.assistant, completion.text, last.time
        )
        return Reply(turn, recall, prompt, completion)

    def _compose(
        self,
        dialogue: Session,
        recall: Recall,
        instructions: str | None,
        pending: Sequence[Turn],
        attachments: Mapping[int, Attachment],
    ) -> tuple[Prompt, str]:
        """The prompt, and the content of its last message: the user's turn with the memory shown there."""
        file = load(self.memory.response_prompt)
        last = dialogue.turns[-1]
        values = {
            "today": day(last.time),
            "user": self.speakers.user,
            "assistant": self.speakers.assistant,
            "instructions": self._instructions if instructions is None else instructions,
        }
        is_in_system = self._in_system and _may_be_in_system(recall, self.speakers)
        in_system = recall.text if is_in_system else ""
        in_turn = "" if is_in_system else self.shown.select_new(dialogue, recall.text)
        content = f"{file.section('memory', memory=in_turn, **values)}\n\n{last.text}" if in_turn else last.text
        bank, before = self.memory.bank, (*pending, *dialogue.turns[:-1])
        visible = {turn.id for part in (pending, dialogue.turns) for turn in bank.visible_turns(part)}
        earlier = [(index - len(before) - 1, turn) for index, turn in enumerate(before) if turn.id in visible]
        past = [(place, Message(turn.role, self.shown.content(dialogue.id, turn))) for place, turn in earlier]
        messages = (
            Message("system", file.section("system", memory=in_system, **values)),
            *attachments.get(-len(before) - 2, _NOTHING).following,  # of a turn that nobody has any more
            *(
                message
                for place, own in (*past, (-1, Message("user", content)))
                for message in attachments.get(place, _NOTHING).messages(own)
            ),
        )
        prompt = Prompt(
            name=file.name,
            messages=alternate(messages),
            max_tokens=file.max_tokens,
            temperature=file.temperature,
            stop=file.stop,
            inputs=values | {"memory": recall.text},
        )
        return self.sampling.apply(prompt) if self.sampling else prompt, content


def _may_be_in_system(recall: Recall, speakers: Speakers) -> bool:
    """Whether a recall holds only what the two said, and nothing that reads like an instruction to a model."""
    label = re.compile(rf"^(?:[^:]{{1,40}}: )?(?:{re.escape(speakers.user)}|{re.escape(speakers.assistant)}): ")
    is_own = not any(origin_of(hit.unit) in FOREIGN for hit in recall.hits)
    return is_own and not any(is_injected(label.sub("", line)) for line in recall.text.splitlines())


def say(text: str) -> Generator[str, None, Completion]:
    """A reply that no backbone gives, as a stream of one piece."""
    yield text
    return Completion(text)


def next_number(session: Session) -> int:
    """The number of the session's next turn: one past the last, as an erasure may have left gaps."""
    name, _, number = session.turns[-1].id.removesuffix(CUT).rpartition(".") if session.turns else ("", "", "")
    return int(number) + 1 if name == session.id and number.isdecimal() else len(session.turns)


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn's text as the model saw it, the pieces of memory in it, and how many tokens those are."""

    content: str
    pieces: frozenset[str]
    tokens: int


class ShownMemory:
    """Keeps recalled memory where it was first shown, beside its turn; for many threads.

    A server caches what it has computed for the beginning of a prompt. If the memory shown with the previous turn were
    removed, everything after it would have to be computed again; as it stays in place, only the new text is.

    `budget` returns the most tokens of memory that one session's dialogue may hold. Past it the session starts afresh,
    so that what was recalled long ago does not crowd out the dialogue. It is asked only when memory has been shown,
    because counting needs the backbone.
    """

    def __init__(self, count: Count, budget: Callable[[], int]) -> None:
        self._count = count
        self._budget = budget
        self._lock = threading.Lock()
        self._turns: dict[str, dict[str, ShownTurn]] = {}  # by session, by turn
        self._hidden: Mapping[str, Hide] = {}

    def content(self, session_id: str, turn: Turn) -> str:
        """The turn's text, with the memory that was shown with it."""
        sent = self._turns.get(session_id, {}).get(turn.id)
        return sent.content if sent and sent.content.endswith(turn.text) else turn.text  # it may have been edited

    def select_new(self, dialogue: Session, text: str) -> str:
        """The parts of a recalled text that the dialogue does not hold already, with one of its earlier turns."""
        turns = self._turns.get(dialogue.id, {})
        earlier = {piece for turn in dialogue.turns[:-1] if turn.id in turns for piece in turns[turn.id].pieces}
        separator, pieces = _split(text)
        return separator.join(piece for piece in pieces if piece not in earlier)

    def record(self, dialogue: Session, memory: str, content: str) -> None:
        """Note that the dialogue's last turn was sent as `content`, with the text `memory` in it."""
        if not memory:
            return
        last = dialogue.turns[-1]
        sent = ShownTurn(content, frozenset(_split(memory)[1]), self._count([memory])[0])
        budget = self._budget()
        with self._lock:
            turns = {**self._turns.get(dialogue.id, {}), last.id: sent}
            if sum(turn.tokens for turn in turns.values()) <= budget:
                self._turns[dialogue.id] = turns
            else:
                self._turns.pop(dialogue.id, None)

    def clear_if_changed(self, hidden: Mapping[str, Hide]) -> None:
        """Show nothing again once the bank hides other things than at the last call: it may be among what was shown."""
        if hidden != self._hidden:
            self._hidden = hidden
            self.clear()

    def clear(self) -> None:
        """Nothing that was shown is shown again."""
        with self._lock:
            self._turns.clear()

    def forget(self, session_id: str) -> None:
        """The session is over, or its prompt no longer holds all of its turns."""
        with self._lock:
            self._turns.pop(session_id, None)


def _split(text: str) -> tuple[str, list[str]]:
    """The pieces of a recalled text, which are paragraphs where it has any, else lines; and their separator."""
    separator = "\n\n" if "\n\n" in text else "\n"
    return separator, [piece for piece in text.split(separator) if piece.strip()]
