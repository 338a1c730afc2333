"""localmem: long-term memory for private chatbots, on the owner's machine alone.

The names below are the public Python interface. They load on first use, so importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localmem.agent import ChatAgent
    from localmem.memory import Memory
    from localmem.runtime import load_agent
    from localmem.types import Session, Turn

__all__ = ["ChatAgent", "Memory", "Session", "Turn", "load_agent"]

_HOMES = {
    "ChatAgent": "localmem.agent",
    "Memory": "localmem.memory",
    "Session": "localmem.types",
    "Turn": "localmem.types",
    "load_agent": "localmem.runtime",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'localmem' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
