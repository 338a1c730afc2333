"""LocalMem: the Python interface to a store of memories and the models behind it; AsyncLocalMem for asyncio programs.

    with LocalMem() as memory:
        memory.add("My sister Clara lives in Lyon.", user="ana")
        print(memory.recall("Where does my sister live?", user="ana").text)

One LocalMem owns one store, one backbone and one encoder, which load when they are first needed and serve all users. It
reads the clock where a call gives no time. For many threads.
"""

import asyncio
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from localmem.chat.conversation import Conversation, not_before_last
from localmem.config import Settings, load_settings
from localmem.errors import BadInput, LLMError, NotFound
from localmem.llm.base import drain
from localmem.runtime import Runtime
from localmem.store import Receipt, SessionInfo, UnitHistory
from localmem.store.serialization import check_text, to_micros
from localmem.store.turns import require_name
from localmem.times.zones import in_zone
from localmem.turns.pins import recall_with_pins
from localmem.types import Hit, Message, Recall, Reply, Role, Session, Turn, Unit

if TYPE_CHECKING:
    from localmem.llm.base import LLM

Messages = str | Iterable[Message | Mapping[str, str]]
_ROLES = ("user", "assistant")

P = ParamSpec("P")
Result = TypeVar("Result")


class LocalMem:
    """Memories of any number of users. Use it as a context manager, or call `close`.

    `config` is a YAML file of settings; keyword arguments are settings that override it, nested as in YAML:
    `LocalMem(system="rsum", llm={"url": "http://127.0.0.1:8000"})`. `backbone` replaces the model, as in tests.
    Raises BadSettings, BadInput.
    """

    def __init__(self, config: str | Path | None = None, *, backbone: "LLM | None" = None, **settings: object) -> None:
        self._runtime = Runtime(load_settings(config, settings), llm=backbone)

    def __enter__(self) -> "LocalMem":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._runtime.close(wait=kind is None)

    def close(self) -> None:
        """Stop the backbone, if one was started, and close the store. Sessions that are open stay open.

        From then on its methods, and those of its agents, raise StoreError.
        """
        self._runtime.close()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._runtime.settings

    def agent(self, user: str | None = None) -> Conversation:
        """The user's agent, to chat with; by default the user of the settings. Raises BadInput for an empty user."""
        agent = self._runtime.agent(self._user(user))
        agent.writer.refresh()  # other processes may share the store
        return agent

    def chat(self, text: str, *, user: str | None = None, time: datetime | None = None) -> Reply:
        """The reply to one message, with memory. The session stays open until `end_session`. Raises BadInput.

        All of a long message is logged and remembered as with `add`; the model is shown what fits into its context.
        """
        return drain(self.stream(text, user=user, time=time))

    def stream(
        self, text: str, *, user: str | None = None, time: datetime | None = None
    ) -> Generator[str, None, Reply]:
        """What `chat` returns, piece by piece as the model writes it; the Reply is the generator's return value.

        The message is logged when the first piece is asked for. Of a generator that is closed early the pieces so far
        are logged.
        """
        agent = self.agent(user)
        _as_messages([Message("user", text)])
        return agent.stream(text, _moment(time) or not_before_last(self._now(), *agent.sessions))

    def end_session(self, session: str | None = None, *, user: str | None = None) -> str | None:
        """End a session, by default the current one, and remember it. Returns its id, None when none is open.

        Sessions that wait, as after a failed attempt, are remembered before it. Raises BadInput.
        """
        if session is not None:
            require_name("session", session)
        self._runtime.remember_all(self._user(user))
        return self.agent(user).end_session(session)

    def add(
        self, messages: Messages, *, user: str | None = None, session: str | None = None, time: datetime | None = None
    ) -> str:
        """Log a conversation that took place elsewhere and remember it. Returns its session id.

        `messages` is the user's text, or messages of both sides in order: Message objects or mappings with `role`
        ("user" or "assistant") and `content`. `session` names the new session. A name that the user has a session of is
        BadInput, as that one is over; but a repeated call with the same `time` changes nothing. Raises OutOfOrder, too.

        All of a long text is logged and indexed before the call returns, for 250 KB on two cores after a minute or two;
        calls for other users go in between.
        """
        agent = self.agent(user)
        name = uuid.uuid4().hex[:12] if session is None else require_name("session", session)
        moment = _moment(time) or self._now()
        names = dict(zip(_ROLES, agent.responder.speakers, strict=True))
        turns = tuple(
            Turn(f"{name}.{number}", cast("Role", message.role), names[message.role], message.content, moment)
            for number, message in enumerate(_as_messages(messages))
        )
        with suppress(NotFound):
            if self._runtime.store.session(self._user(user), name).turns != turns:
                raise BadInput(f"session {name!r} exists; give the new one another name, or leave `session` out")
        agent.writer.read([Session(name, turns)])
        return name

    def recall(self, text: str, *, user: str | None = None, time: datetime | None = None) -> Recall:
        """What would be shown to the model if the user said `text` now, and its memories. Raises BadInput."""
        agent = self.agent(user)
        check_text(text)
        turn = Turn("recall.0", "user", agent.responder.speakers.user, text, _moment(time) or self._now())
        return recall_with_pins(agent.memory, Session("recall", (turn,)))

    def search(self, query: str, *, user: str | None = None, limit: int = 10) -> list[Hit]:
        """At most `limit` memories nearest to the query, best first. Empty for a system that keeps no single units.

        Raises BadInput.
        """
        check_text(query)
        size: object = limit
        if not isinstance(size, int) or size < 1:
            raise BadInput(f"limit is {limit!r}; give a whole number of at least 1")
        return self.agent(user).memory.search(query, limit)

    def sessions(self, *, user: str | None = None) -> list[SessionInfo]:
        """The user's sessions without their text, in order; `forget` and `end_session` take their ids."""
        return [info for info in self._runtime.store.sessions(self._user(user)) if info.turns]

    def export(self, *, user: str | None = None) -> str:
        """All that is stored of a user, as JSON lines that `localmem import` reads. Raises NotFound."""
        return "".join(f"{line}\n" for line in self._runtime.store.export(self._user(user)))

    def memories(self, *, user: str | None = None, as_of: datetime | None = None) -> list[Unit]:
        """All memories of a user, oldest first, now or as they were at a moment. Raises BadInput."""
        return list(self._runtime.store.bank(self._user(user), self.settings.system, _moment(as_of)).live())

    def history(self, memory_id: str, *, user: str | None = None) -> UnitHistory:
        """How one memory came to be: its changes and the turns it came from. Raises BadInput, NotFound."""
        return self._runtime.store.history(self._user(user), self.settings.system, require_name("memory", memory_id))

    def forget(
        self,
        memory_id: str | None = None,
        *,
        user: str | None = None,
        session: str | None = None,
        everything: bool = False,
        with_sources: bool = False,
    ) -> Receipt:
        """Erase one memory, one session or everything of a user, for good. Returns what was removed.

        `with_sources` also erases the turns that the memory came from, and the replies that answer or quote them. Other
        sessions whose memory went with it are remembered again; where that fails, when the next session ends.
        Raises BadInput unless exactly one of the three is named, and for `everything` without a user; NotFound.
        """
        if [memory_id is not None, session is not None, everything].count(True) != 1:
            raise BadInput("forget needs exactly one of memory_id, session and everything=True")
        if everything and user is None:
            raise BadInput("everything=True needs a user, so that nobody is erased by default")
        if not everything:
            require_name("memory or session", memory_id if memory_id is not None else session)
        name, store = self._user(user), self._runtime.store
        try:
            if memory_id is not None:
                receipt = store.delete_units(name, self.settings.system, memory_id, sources=with_sources)
            else:
                receipt = store.delete_session(name, session) if session is not None else store.delete_user(name)
        finally:
            self._runtime.forget_agent(name)
        if self.settings.system in receipt.reread:
            with suppress(LLMError):  # logged; the erasure has succeeded all the same
                self._runtime.replay_waiting(name)
        return receipt

    def evaluate(
        self,
        datasets: Mapping[str, str | Path],
        out: str | Path,
        *,
        systems: Sequence[str] = (),
        limit: int | None = None,
        resume: bool = False,
    ) -> object:
        """Let memory systems answer the questions of data sets, into the folder `out`; see `localmem eval run`.

        `datasets` maps data set names to files. No `systems` means all. `limit` uses the first questions of each data
        set only. Users' memories are neither read nor changed. Raises BadInput, BadSettings.
        """
        from localmem.experiments.runs import EvaluationRecipe, evaluate

        recipe = EvaluationRecipe(systems=tuple(systems), limit=limit)
        paths = {name: Path(path) for name, path in datasets.items()}
        return evaluate(self.settings, recipe, datasets=paths, out=Path(out), resume=resume)

    def _now(self) -> datetime:
        return in_zone(datetime.now(UTC), self.settings.chat.zone)

    def _user(self, user: str | None) -> str:
        return require_name("user", self.settings.user if user is None else user)


def _on_thread(
    method: Callable[Concatenate[LocalMem, P], Result],
) -> Callable[Concatenate["AsyncLocalMem", P], Coroutine[Any, Any, Result]]:
    """The method as a coroutine that runs it on a thread, so that it cannot differ from the synchronous one."""

    async def run(self: "AsyncLocalMem", /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return update_wrapper(run, method)


class AsyncLocalMem:
    """LocalMem for asyncio: the same methods, each awaited while it runs on a thread, and `async for` over `stream`.

    `sync` is the LocalMem inside.
    """

    def __init__(self, config: str | Path | None = None, *, backbone: "LLM | None" = None, **settings: object) -> None:
        self.sync = LocalMem(config, backbone=backbone, **settings)

    async def __aenter__(self) -> "AsyncLocalMem":
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.sync.__exit__, *error)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.sync.settings

    async def stream(self, text: str, *, user: str | None = None, time: datetime | None = None) -> AsyncIterator[str]:
        """The pieces of LocalMem.stream; leaving the loop early closes it."""
        pieces = await asyncio.to_thread(self.sync.stream, text, user=user, time=time)
        busy = threading.Lock()  # a piece that is awaited no more is still being written

        def close() -> None:
            with busy:
                pieces.close()

        def next_piece() -> str | None:
            with busy:
                return next(pieces, None)

        try:
            while (piece := await asyncio.to_thread(next_piece)) is not None:
                yield piece
        finally:
            await asyncio.to_thread(close)

    close = _on_thread(LocalMem.close)
    agent = _on_thread(LocalMem.agent)
    chat = _on_thread(LocalMem.chat)
    end_session = _on_thread(LocalMem.end_session)
    add = _on_thread(LocalMem.add)
    recall = _on_thread(LocalMem.recall)
    search = _on_thread(LocalMem.search)
    sessions = _on_thread(LocalMem.sessions)
    export = _on_thread(LocalMem.export)
    memories = _on_thread(LocalMem.memories)
    history = _on_thread(LocalMem.history)
    forget = _on_thread(LocalMem.forget)
    evaluate = _on_thread(LocalMem.evaluate)


def load_agent(user: str | None = None, config: str | Path | None = None, **settings: object) -> Conversation:
    """One user's agent for a short program; its LocalMem is closed when the program ends.

    A program with several users, or one that must free the models earlier, uses LocalMem. Raises as LocalMem does.
    """
    memory = LocalMem(config, **cast("dict[str, Any]", settings))
    agent = memory.agent(user)
    weakref.finalize(agent, memory.close)
    return agent


def _moment(time: datetime | None) -> datetime | None:
    """The time that a caller gives, if any. Raises BadInput for one without a UTC offset, and for what is no time."""
    if time is not None:
        to_micros(time)
    return time


def _as_messages(messages: Messages) -> list[Message]:
    if isinstance(messages, str):
        messages = [Message("user", messages)]
    if not isinstance(messages, Iterable):
        raise BadInput(f"{messages!r} is no conversation; give the user's text or a list of messages")
    converted = [message if isinstance(message, Message) else _from_mapping(message) for message in messages]
    if not converted:
        raise BadInput("there are no messages to add; give the user's text or a list of messages")
    for message in converted:
        if message.role not in _ROLES:
            raise BadInput(f"a message has the role {message.role!r}; add messages of user and assistant only")
        content: object = message.content
        if not isinstance(content, str) or not content.strip():
            raise BadInput(f"a message has the content {content!r}; give a text that is not empty")
    return converted


def _from_mapping(message: Mapping[str, str]) -> Message:
    try:
        return Message(cast("Any", message["role"]), message["content"])
    except (KeyError, TypeError) as error:
        raise BadInput(f"{message!r} is not a message; write {{'role': 'user', 'content': '...'}}") from error
