"""The memory as tools and resources of the Model Context Protocol, by the official SDK.

The same functions as the page and the API. Whose memory it is about is up to `current_user`, which whoever serves the
protocol sets: for each request by its key, or once for a process. Needs the extra `mcp`; no transport here.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime, tzinfo
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, ValidationError

from localmem.bank import Bank
from localmem.chat.quarantine import withheld_signs
from localmem.errors import BadInput, LocalmemError
from localmem.retrieval.base import Scope
from localmem.runtime import Runtime
from localmem.runtime.inspection import recall_text
from localmem.server.errors import describe_invalid, describe_missing
from localmem.server.memory_editor import MemoryEditor
from localmem.server.page.memory_views import Filter, detail_of
from localmem.server.page.overview import Overview
from localmem.server.request_times import Moment, in_request_zone
from localmem.server.session_manager import SessionManager
from localmem.text.dialogue import transcript
from localmem.text.provenance import origin_of
from localmem.types import Unit

Clock = Callable[[], datetime]
ZoneFinder = Callable[[], tzinfo | None]
P = ParamSpec("P")
Result = TypeVar("Result")

current_user: ContextVar[str] = ContextVar("mcp_user")
may_change: ContextVar[bool] = ContextVar("mcp_may_change", default=True)

_INSTRUCTIONS = (
    "A person's long-term memory. Call recall before you answer anything that may depend on what the person told "
    "earlier, and remember when they tell something lasting. Times are ISO 8601."
)
_MOST = 200  # memories of one list
_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
_DESTROYS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)


class MemoryItem(BaseModel):
    """A memory. `origin` is whose words it holds. `in_use` is false for what was hidden, withheld or replaced.

    `quarantined` is the sign by which it is withheld until a person releases it. `score` is that of a search.
    """

    id: str
    text: str
    time: datetime
    kind: str
    origin: str
    session: str
    in_use: bool = True
    quarantined: str = ""
    score: float | None = None


class Recalled(BaseModel):
    """What a model should be shown for a message, "" for nothing, and the memories it is made of."""

    text: str
    memories: list[MemoryItem]


class MemoryList(BaseModel):
    """Memories, the newest first; `has_more` says that the limit cut the list."""

    memories: list[MemoryItem]
    has_more: bool


class HistoryStep(BaseModel):
    """What happened to a memory; `undone` if it was taken back."""

    what: str
    time: datetime
    session: str
    undone: bool


class History(BaseModel):
    """How a memory came to be: the messages it came from and what happened to it, oldest first."""

    memory: MemoryItem
    sources: list[str]
    steps: list[HistoryStep]


class Forgotten(BaseModel):
    """What was hidden, or erased for good: rows by table, and how many pieces of it the files still hold."""

    id: str
    erased: bool
    rows: dict[str, int] = {}
    remaining: int | None = None


def _say_errors(
    kind: type[ToolError | ResourceError],
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Our errors reach the client in one line; any other stays on the server."""

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> Result:
            try:
                return function(*args, **kwargs)
            except LocalmemError as error:
                raise kind(str(error)) from error

        return run

    return decorate


class MemoryTools:
    """The tools, for the users of one runtime. Their docstrings are what a model reads."""

    def __init__(self, runtime: Runtime, sessions: SessionManager, now: Clock, zone: ZoneFinder) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._now = now
        self._zone = zone

    def remember(self, text: str, time: Moment | None = None) -> MemoryItem:
        """Remember one statement about the person, in a full sentence. `time` is when it happened; default: now."""
        moment = in_request_zone(time, self._zone()) or self._now()
        unit = self._changing_editor().add(text, moment, self._now())
        return _item(unit, self._editor().bank)

    def recall(self, message: str) -> Recalled:
        """What the memory knows that matters for a message or question of the person."""
        if not message.strip():
            raise BadInput("the message is empty; give the question to recall for")
        with self._sessions.current_agent(current_user.get()) as agent:
            memory = agent.memory
        recall = recall_text(memory, message, Scope(now=self._now()), user_name=agent.responder.speakers.user)
        items = [_item(hit.unit, memory.bank, float(hit.score)) for hit in recall.hits]
        return Recalled(text=recall.text, memories=items)

    def list_memories(
        self,
        words: str = "",
        since: Moment | None = None,
        until: Moment | None = None,
        include_hidden: bool = False,
        limit: int = 50,
    ) -> MemoryList:
        """List memories, newest first: those that hold all the words, of events between two days (both included)."""
        if not 1 <= limit <= _MOST:
            raise BadInput(f"limit is {limit}; give 1 to {_MOST}")
        state = "all" if include_hidden else "current"
        selection = Filter(words, since and since.date(), until and until.date(), state=state)
        bank = self._editor().bank
        units = list(zip(Overview(bank).select(selection), range(limit + 1), strict=False))
        return MemoryList(memories=[_item(unit, bank) for unit, _ in units[:limit]], has_more=len(units) > limit)

    def update_memory(self, memory_id: str, text: str) -> MemoryItem:
        """Correct a memory: the new text replaces the old one, which stays in its history."""
        unit = self._changing_editor().edit(memory_id, text, self._now())
        return _item(unit, self._editor().bank)

    def forget(self, memory_id: str, erase: bool = False) -> Forgotten:
        """Hide a memory with the messages it came from, so that it is not recalled again; a person can undo that.

        With `erase` all of it is erased for good: only when the person asks for exactly that.
        """
        editor = self._changing_editor()
        if not erase:
            editor.forget(memory_id, self._now())
            return Forgotten(id=memory_id, erased=False)
        with _describe_missing_memory(memory_id):
            receipt = editor.erase(memory_id, sources=True)
        return Forgotten(id=memory_id, erased=True, rows=dict(receipt.rows), remaining=receipt.remaining)

    def history(self, memory_id: str) -> History:
        """How a memory came to be: the messages it came from and every change to it."""
        store, system = self._runtime.store, self._runtime.settings.system
        bank = self._editor().bank
        with _describe_missing_memory(memory_id):
            unit_history = store.history(current_user.get(), system, memory_id)
        detail = detail_of(unit_history, bank, self._now().date())
        steps = [
            HistoryStep(what=step.text, time=step.time, session=step.session, undone=step.is_undone)
            for step in detail.steps
        ]
        sources = [f"{turn.speaker}: {turn.text}" for turn in detail.sources]
        return History(memory=_item(detail.row.unit, bank), sources=sources, steps=steps)

    # -- resources -----------------------------------------------------------------------------------------------------

    def read_memories(self) -> str:
        """The newest memories, as JSON."""
        return self.list_memories(limit=_MOST).model_dump_json()

    def read_memory(self, memory_id: str) -> str:
        """One memory with its history, as JSON."""
        return self.history(memory_id).model_dump_json()

    def read_sessions(self) -> str:
        """The sessions, one a line: id, start, number of messages, state."""
        infos = self._runtime.store.sessions(current_user.get())
        return "\n".join(f"{info.id}\t{info.started.isoformat()}\t{info.turns}\t{info.state}" for info in infos)

    def read_session(self, session_id: str) -> str:
        """The text of one session, without what was hidden."""
        with describe_missing(f"session {session_id!r}", "localmem://sessions lists them"):
            session = self._runtime.store.session(current_user.get(), session_id)
        return transcript(self._editor().bank.visible(session).turns)

    def _editor(self) -> MemoryEditor:
        return MemoryEditor(self._runtime, self._sessions, current_user.get())

    def _changing_editor(self) -> MemoryEditor:
        if not may_change.get():
            raise BadInput("this key lacks the scope 'admin', so it changes no memory; use a key that has it")
        return self._editor()


def _describe_missing_memory(memory_id: str) -> AbstractContextManager[None]:
    return describe_missing(f"memory {memory_id!r}", "list_memories lists them")


class _Server(MCPServer):
    """The SDK's server, which says in one line what is wrong with arguments."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                message = describe_invalid(error.__cause__.errors()).message
                raise ToolError(f"{name}: {message}") from error.__cause__
            raise


def _strict_tool(function: Callable[..., BaseModel], annotations: ToolAnnotations) -> Tool:
    """A tool that refuses arguments which it does not have; the SDK's ignore them."""
    tool = Tool.from_function(_say_errors(ToolError)(function), annotations=annotations)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    return tool.model_copy(update={"parameters": arguments.model_json_schema()})


def new_server(runtime: Runtime, sessions: SessionManager, now: Clock, zone: ZoneFinder) -> MCPServer:
    """A server of the protocol over a runtime; the caller chooses the transport."""
    tools, root = MemoryTools(runtime, sessions, now, zone), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    strict_tools = [
        _strict_tool(tools.remember, _ADDS),
        _strict_tool(tools.recall, _READS),
        _strict_tool(tools.list_memories, _READS),
        _strict_tool(tools.update_memory, _DESTROYS),
        _strict_tool(tools.forget, _DESTROYS),
        _strict_tool(tools.history, _READS),
    ]
    server = _Server("localmem", instructions=_INSTRUCTIONS, log_level="WARNING", tools=strict_tools)
    root.handlers[:] = handlers  # the SDK configures the logging of the whole process
    root.setLevel(level)
    for address, read, kind in (
        ("localmem://memories", tools.read_memories, "application/json"),
        ("localmem://memories/{memory_id}", tools.read_memory, "application/json"),
        ("localmem://sessions", tools.read_sessions, "text/plain"),
        ("localmem://sessions/{session_id}", tools.read_session, "text/plain"),
    ):
        server.resource(address, mime_type=kind)(_say_errors(ResourceError)(read))
    return server


def _item(unit: Unit, bank: Bank, score: float | None = None) -> MemoryItem:
    in_use = bank.is_live(unit.id)
    return MemoryItem(
        id=unit.id,
        text=unit.text,
        time=unit.time,
        kind=unit.kind,
        origin=origin_of(unit),
        session=unit.session,
        in_use=in_use,
        quarantined="" if in_use else withheld_signs(bank).get(unit.id, ""),
        score=score,
    )
