"""Responder: answers a dialogue from memory. Recalls, lays out the prompt, and streams the backbone's reply.

Writes nothing and keeps no log: the conversation that uses it does. Loads no weights before the first reply, so looking
at a memory costs no backbone.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from localmem.chat.prompt_layout import ShownMemory
from localmem.llm.base import LLM, alternate
from localmem.memory import Memory
from localmem.prompts import load
from localmem.text.dialogue import day
from localmem.types import Completion, Message, Prompt, Recall, Reply, Session, Turn

# Tokens of memory that one session's dialogue may hold, and no more than half of the context: a server caches them all.
_SHOWN_TOKENS = 4096


class Speakers(NamedTuple):
    """What the two sides are called in prompts and in the log."""

    user: str = "User"
    assistant: str = "Assistant"


class PreparedReply(NamedTuple):
    """All that a reply needs before the backbone is asked. `content` is the prompt's last message."""

    recall: Recall
    prompt: Prompt
    content: str


class Responder:
    """One user's responder, for any number of threads.

    `pending` returns the turns of sessions that are over and not yet remembered; they precede the dialogue, so that a
    user can refer to what was just said. `memory_position` says where recalled memory is placed: in the system message,
    or last, before the user's turn. In the last position it stays in the dialogue while the session lasts, and later
    turns show only what is new: each prompt then begins with the previous one, which a server's prefix cache holds.
    `shown` keeps track of that.
    """

    def __init__(
        self,
        *,
        memory: Memory,
        llm: LLM,
        speakers: Speakers = Speakers(),  # noqa: B008  # an immutable value
        instructions: str = "",
        memory_position: str = "last",
        pending: Callable[[Session], Sequence[Turn]] = lambda _dialogue: (),
    ) -> None:
        self.memory = memory
        self.speakers = speakers
        self._llm = llm
        self._instructions = instructions
        self._in_system = memory_position == "system"
        self._pending = pending
        self.shown = ShownMemory(llm.count_tokens, lambda: min(_SHOWN_TOKENS, llm.context_length // 2))

    def prepare(
        self, dialogue: Session, instructions: str | None = None, recall: Recall | None = None
    ) -> PreparedReply:
        """The recalled memory and the prompt for the dialogue's last turn. Changes nothing and asks no backbone.

        `instructions` replace the responder's own; a `recall` given by the caller replaces the search.
        """
        # Pending sessions are read before the bank: a session remembered in between then appears twice, never not at
        # all.
        pending = self._pending(dialogue)
        recall = self.memory.recall(dialogue) if recall is None else recall
        return PreparedReply(recall, *self._compose(dialogue, recall, instructions, pending))

    def stream(self, dialogue: Session, prepared: PreparedReply) -> Generator[str, None, Completion]:
        """The reply piece by piece; the generator returns the whole Completion."""
        completion = yield from self._llm.stream(prepared.prompt)
        if completion.trimmed:
            self.shown.forget(dialogue.id)
        elif not self._in_system:
            new = self.shown.select_new(dialogue, prepared.recall.text)
            self.shown.record(dialogue, new, prepared.content)
        return completion

    def answer(self, dialogue: Session) -> Reply:
        """The reply to a dialogue that is logged nowhere: nothing changes, so many may be asked of one memory."""
        recall, prompt, _ = self.prepare(dialogue)
        (completion,) = self._llm.generate([prompt])
        last = dialogue.turns[-1]
        turn = Turn(
            f"{dialogue.id}.{next_number(dialogue)}", "assistant", self.speakers.assistant, completion.text, last.time
        )
        return Reply(turn, recall, prompt, completion)

    def _compose(
        self, dialogue: Session, recall: Recall, instructions: str | None, pending: Sequence[Turn]
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
        in_system = recall.text if self._in_system else ""
        in_turn = "" if self._in_system else self.shown.select_new(dialogue, recall.text)
        content = f"{file.section('memory', memory=in_turn, **values)}\n\n{last.text}" if in_turn else last.text
        earlier = (*pending, *dialogue.turns[:-1])
        messages = (
            Message("system", file.section("system", memory=in_system, **values)),
            *(Message(turn.role, self.shown.content(dialogue.id, turn)) for turn in earlier),
            Message("user", content),
        )
        prompt = Prompt(
            name=file.name,
            messages=alternate(messages),
            max_tokens=file.max_tokens,
            temperature=file.temperature,
            stop=file.stop,
            inputs=values | {"memory": recall.text},
        )
        return prompt, content


def next_number(session: Session) -> int:
    """The number of the session's next turn: one past the last, as an erasure may have left gaps."""
    name, _, number = session.turns[-1].id.rpartition(".") if session.turns else ("", "", "")
    return int(number) + 1 if name == session.id and number.isdecimal() else len(session.turns)
