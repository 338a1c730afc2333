"""A conversation of `localmem chat` in this process: memory and backbone are loaded here."""

import uuid
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from localmem.chat.conversation import Conversation, log_and_prepare, not_before_last
from localmem.chat.responder import PreparedReply, Responder
from localmem.cli.conversations import session_rows
from localmem.cli.local_server import Document
from localmem.cli.options import note
from localmem.cli.server_chat import Messages, explain_reply
from localmem.errors import BadInput
from localmem.runtime import Runtime
from localmem.runtime.inspection import memory_document, prompt_document, reply_document
from localmem.turns.forget_requests import request_about
from localmem.types import Completion, Prompt, Recall, Reply, Role, Session, Turn


class ProcessConversation:
    """One user's conversation with the runtime; it continues the latest open session that is not idle."""

    def __init__(self, runtime: Runtime, clock: Callable[[], datetime]) -> None:
        self.sampling: dict[str, float] = {}
        self._runtime, self._user, self._clock = runtime, runtime.settings.user, clock
        self._agent: Conversation = runtime.agent(self._user)
        self._last_reply: Reply | None = None
        self._asked_model = False  # for the last reply

    def resume(self) -> datetime | None:
        """Close idle sessions; the time of the last turn of a recent one, which continues."""
        idle = timedelta(minutes=self._runtime.settings.server.idle_minutes)
        for session in self._agent.sessions:
            if self._clock() - session.turns[-1].time > idle:
                self._agent.close(session.id)
        self._runtime.remember_in_background()
        return self._agent.sessions[-1].turns[-1].time if self._agent.sessions else None

    def say(self, text: str) -> Generator[str, None, int]:
        """The reply, logged and remembered; returns its tokens where it was cut at the limit, else 0."""
        try:
            session, prepared = self._log(text)
        except BadInput:  # another process logged a turn at the same moment
            session, prepared = self._log(text)
        prepared = prepared or self._agent.responder.prepare(session)
        self._last_reply = yield from self._agent.reply(
            session.id, dialogue=session, prepared=prepared, adjust=self._adjust
        )
        self._asked_model = not prepared.ready
        return _cut_after(self._last_reply.completion)

    def _log(self, text: str) -> tuple[Session, PreparedReply | None]:
        self._agent.writer.refresh()  # a server may share the store
        now = not_before_last(self._clock(), *self._agent.sessions)
        return log_and_prepare(
            lambda announce: self._agent.log_turns(text, now, None, announce), self._agent.responder.prepare
        )

    def say_incognito(self, dialogue: Messages, text: str) -> Generator[str, None, int]:
        """As `say`, without memory; both messages are added to `dialogue`."""
        own, llm, now = self._agent.responder, self._runtime.llm, self._clock()
        responder = Responder(memory=own.memory, llm=llm, speakers=own.speakers, sampling=own.sampling)
        dialogue.append({"role": "user", "content": text})
        name, turns = uuid.uuid4().hex[:12], list[Turn]()
        for message in dialogue:
            role: Role = "user" if message["role"] == "user" else "assistant"
            speaker = own.speakers.user if role == "user" else own.speakers.assistant
            turns.append(Turn(f"{name}.{len(turns)}", role, speaker, message["content"], now))
        instructions = self._runtime.settings.chat.instructions
        prepared = responder.prepare(Session(name, tuple(turns)), instructions, Recall())
        completion = yield from llm.stream(self._adjust(prepared.prompt))
        dialogue.append({"role": "assistant", "content": completion.text})
        return _cut_after(completion)

    def end(self) -> bool:
        """Close the session; False when none is open."""
        if self._agent.close() is None:
            return False
        self._runtime.nudge()
        return True

    def forget(self, text: str) -> str:
        """Hide what the text names; says what it is."""
        name = f"forget-{uuid.uuid4().hex[:12]}"
        turn = Turn(name, "user", self._agent.responder.speakers.user, text, self._clock())
        answer = self._agent.writer.forgetting.forget(request_about(text), turn, Session(name, (turn,)))
        self._agent.writer.forget(answer)
        return str(answer.reply)

    def list_sessions(self) -> list[dict[str, Any]]:
        """The latest sessions."""
        return session_rows(self._runtime, self._user, 20)

    def read_memory(self) -> Document:
        """The memory document."""
        return memory_document(self._runtime.store, self._user, self._runtime.settings.system, self._clock())

    def explain(self) -> Iterator[str]:
        """What the last reply recalled, and its prompt; nothing without a reply."""
        if self._last_reply:
            prompt = prompt_document(self._last_reply.prompt) if self._asked_model else None
            yield from explain_reply({**reply_document(self._last_reply), "prompt": prompt})

    def finish(self) -> None:
        """Remember closed sessions before leaving. If Ctrl-C interrupts this, the next start continues it."""
        waiting = len(self._runtime.waiting_jobs(self._user))
        if waiting:
            note(f"remembering {waiting} session{'s' if waiting > 1 else ''}")
            self._runtime.remember_all(self._user)

    def _adjust(self, prompt: Prompt) -> Prompt:
        return replace(prompt, **self.sampling)  # type: ignore[arg-type]  # /set checks names and types


def _cut_after(completion: Completion) -> int:
    return completion.usage.output if completion.finish == "length" else 0
