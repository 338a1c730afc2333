"""localmem: long-term memory for private chatbots, on the owner's machine alone.

The names below are the public Python interface. They load on first use, so importing the package costs nothing.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localmem.chat.agent import ChatAgent
    from localmem.memory import Memory
    from localmem.runtime import load_agent
    from localmem.types import Session, Turn

# OpenMP's threads wait for one another a hundred times in an embedding, and by default spin about a millisecond before
# they let go of the core. On cores that others use too, such as a vLLM server's on a CPU, one embedding in twenty then
# takes some hundred milliseconds in place of 25 (configs/bench/results/latency-cpu.md). It is read when the library
# loads, so it is set before that. A server that localmem starts on a CPU keeps OpenMP's own.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__all__ = ["ChatAgent", "Memory", "Session", "Turn", "load_agent"]

_HOMES = {
    "ChatAgent": "localmem.chat.agent",
    "Memory": "localmem.memory",
    "Session": "localmem.types",
    "Turn": "localmem.types",
    "load_agent": "localmem.runtime",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'localmem' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
