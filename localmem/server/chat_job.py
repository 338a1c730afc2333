"""One chat request on a worker thread: what memory does with it, and the reply.

`write` logs the request and its reply, `read` recalls for it, `off` answers from its own messages alone. Nothing here
knows HTTP.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from time import perf_counter

from localmem.chat.conversation import log_and_prepare
from localmem.chat.forgetting_replies import replies_to
from localmem.chat.responder import Attachment, PreparedReply, Responder, say
from localmem.llm.base import LLM, tee_pieces
from localmem.llm.wrappers import ForUser
from localmem.server.client_tasks import find_task, split_message, split_messages
from localmem.server.dependencies import Services
from localmem.server.quota import check_quota
from localmem.server.reply_stream import Pieces, ReplyStream
from localmem.server.schemas import ChatInput, ChatRequest, MemoryMode, apply_options, check_backbone
from localmem.server.session_manager import MatchedRequest
from localmem.turns.forget_requests import read_forget_request
from localmem.turns.reminders import add_reminder, stream_with_reminder
from localmem.types import Completion, Message, Prompt, Recall, Reply, Turn


@dataclass(frozen=True, slots=True)
class ChatJob:
    """One parsed chat request.

    `header` is the mode that the client's header names, `time` the present by the user's clock, `start` a reading of
    perf_counter.
    """

    services: Services
    user: str
    body: ChatRequest
    input: ChatInput
    session_name: str | None
    header: MemoryMode | None
    time: datetime
    start: float

    @property
    def requested_mode(self) -> MemoryMode:
        """What memory is to do with the request, by what the client says."""
        return self.header or ("read" if self.body.store is False else "write")

    def note_unlogged(self) -> None:
        """Note the message of a request that is not to be stored, so that it is not either when it is sent again.

        For before the request waits for a thread: its client may leave meanwhile, and it was said all the same.
        Raises StoreError.
        """
        if self.requested_mode == "write" or self._find_task():
            return
        question = self.input.messages[-1]
        words = split_message(question, self.input.instructions or "").words or question.content
        self.services.sessions.unlogged.add(self.user, question, Message("user", words))

    def generate(self, stream: ReplyStream) -> Pieces:
        """The reply, piece by piece. A client's own task is answered without memory unless the header names a mode."""
        task = self._find_task()
        if task:
            self.services.metrics.client_tasks.labels(task).inc()
        stream.mode = "off" if task else self.requested_mode
        self.services.metrics.chats.labels(stream.mode).inc()
        try:
            check_backbone(self.body, self.input, self.services.runtime.llm)
            if stream.mode == "write":
                return (yield from self._reply(stream))
            return (yield from self._reply_unlogged(stream, is_task=task is not None))
        except BaseException:
            if stream.session or stream.mode != "write":  # otherwise nothing was logged
                self.services.metrics.broken_off.inc()
            raise
        finally:
            self.services.sessions.remove(self.user, stream)

    def _reply(self, stream: ReplyStream) -> Pieces:
        """Log the user's turn while memory is searched, then produce the reply, which is logged as well."""
        sessions, metrics = self.services.sessions, self.services.metrics
        check_quota(self.services.runtime, self.user, self.time)
        sent = split_messages(self.input, sessions.has_logged(self.user))

        def log_turns(announce: Callable[[MatchedRequest], None]) -> MatchedRequest:
            start = perf_counter()
            logged = sessions.log_turns(self.user, sent, self.session_name, self.time, stream, announce)
            metrics.turn_stored.observe(perf_counter() - start)
            return logged

        logged, prepared = log_and_prepare(log_turns, self._prepare)
        prepared = prepared or self._prepare(logged)
        stream.raise_if_stopped()
        pieces = list[str]()
        try:
            reply_pieces = logged.agent.reply(
                logged.dialogue.id, dialogue=logged.dialogue, adjust=self._adjust, prepared=prepared
            )
            reply = yield from tee_pieces(reply_pieces, pieces)
        finally:
            text = "".join((self.input.prefill, *pieces))
            if not prepared.may_be_logged(text):
                sessions.unlogged.add(self.user, Message("assistant", text))
        stream.alternatives = self._generate_alternatives(reply, prepared)
        return reply

    def _reply_unlogged(self, stream: ReplyStream, *, is_task: bool) -> Pieces:
        """Answer and store nothing. The reply is noted, so that it is not stored either when it is sent again."""
        sessions, llm = self.services.sessions, self._llm
        pieces = list[str]()
        if stream.mode == "read":
            sent = split_messages(self.input, sessions.has_logged(self.user))
            matched = sessions.look_up(self.user, sent, self.session_name, self.time, stream)
            prepared = self._prepare(matched)
        else:
            sessions.track(self.user, stream)
            matched = sessions.detach(self.user, self.input.messages, self.time)
            own = matched.agent.responder
            memoryless = Responder(memory=own.memory, llm=llm, speakers=own.speakers, sampling=own.sampling)
            instructions, attachments = self._instructions() or "", self._attachments()
            prepared = memoryless.prepare(matched.prompted, instructions, Recall(), attachments=attachments)
        prompt = self._adjust(prepared.prompt)
        try:
            text = self.input.messages[-1].content
            asks_to_forget = not is_task and read_forget_request(text)
            prepared = prepared._replace(prompt=prompt)
            stream.raise_if_stopped()
            ready = replies_to(text).not_changed if asks_to_forget or prepared.recall.reply else prepared.ready
            reply_pieces = say(ready) if ready else stream_with_reminder(llm.stream(prompt), prepared.addition)
            completion = yield from tee_pieces(reply_pieces, pieces)
        finally:
            if not is_task:
                sessions.unlogged.add(self.user, Message("assistant", "".join((self.input.prefill, *pieces))))
        last, speaker = matched.dialogue.turns[-1], matched.agent.responder.speakers.assistant
        turn = Turn(f"{uuid.uuid4().hex[:12]}.0", "assistant", speaker, completion.text, last.time)
        reply = Reply(turn, prepared.recall, prompt, completion)
        stream.alternatives = self._generate_alternatives(reply, prepared)
        return reply

    def _find_task(self) -> str | None:
        """The kind of task that the client set; none where the header names a mode."""
        has_logged = self.services.sessions.has_logged(self.user)
        return None if self.header else find_task(self.body, self.input, has_logged)

    def _prepare(self, matched: MatchedRequest) -> PreparedReply:
        responder = matched.agent.responder
        instructions, attachments = self._instructions(), self._attachments()
        prepared = responder.prepare(matched.prompted, instructions, query=matched.dialogue, attachments=attachments)
        return prepared._replace(unlogged=matched.unlogged)

    def _adjust(self, prompt: Prompt) -> Prompt:
        return apply_options(self.body, self.input, prompt)

    @property
    def _llm(self) -> LLM:
        return ForUser(self.services.runtime.llm, self.user)

    def _attachments(self) -> dict[int, Attachment]:
        """What the messages carry beside their words, by their place from the end."""
        size = len(self.input.messages)
        return {index - size: attachment for index, attachment in self.input.attachments.items()}

    def _generate_alternatives(self, reply: Reply, prepared: PreparedReply) -> tuple[Completion, ...]:
        """The other replies that the request asks for; they are stored nowhere. A ready reply has no others."""
        count, prepared = (self.body.n or 1) - 1, prepared._replace(prompt=reply.prompt)
        if not count or prepared.ready:
            return (reply.completion,) * count
        seed = reply.prompt.seed
        seeds = [None if seed is None else seed + number for number in range(1, count + 1)]
        completions = self._llm.generate([replace(reply.prompt, seed=seed) for seed in seeds])
        return tuple(add_reminder(completion, prepared.addition) for completion in completions)

    def _instructions(self) -> str | None:
        """The operator's instructions, then the client's. None leaves the agent its own, which are the operator's."""
        instructions, own = self.input.instructions, self.services.settings.chat.instructions
        return (own or None) if instructions is None else "\n\n".join(filter(None, (own, instructions)))
