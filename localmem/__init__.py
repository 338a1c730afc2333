"""localmem: long-term memory for private chatbots, on the owner's machine alone.

    from localmem import LocalMem

    with LocalMem() as memory:
        agent = memory.agent("ana")

LocalMem owns a store and its models; AsyncLocalMem is the same for asyncio. `agent` returns a Conversation, formerly
ChatAgent. Memory is the contract of every memory system. Names load on first use: importing the package is quick
and changes nothing in the host process.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localmem.api import AsyncLocalMem, LocalMem, load_agent
    from localmem.chat.conversation import Conversation
    from localmem.chat.conversation import Conversation as ChatAgent
    from localmem.memory import Memory
    from localmem.types import Message, Session, Turn

__all__ = [
    "AsyncLocalMem",
    "ChatAgent",
    "Conversation",
    "LocalMem",
    "Memory",
    "Message",
    "Session",
    "Turn",
    "load_agent",
]

_SOURCES = {
    "AsyncLocalMem": ("localmem.api", "AsyncLocalMem"),
    "ChatAgent": ("localmem.chat.conversation", "Conversation"),
    "Conversation": ("localmem.chat.conversation", "Conversation"),
    "LocalMem": ("localmem.api", "LocalMem"),
    "Memory": ("localmem.memory", "Memory"),
    "Message": ("localmem.types", "Message"),
    "Session": ("localmem.types", "Session"),
    "Turn": ("localmem.types", "Turn"),
    "load_agent": ("localmem.api", "load_agent"),
}


def __getattr__(name: str) -> object:
    if name not in _SOURCES:
        raise AttributeError(f"module 'localmem' has no attribute {name!r}")
    module, attribute = _SOURCES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
