"""The only place that chooses: settings become parts (`parts`), parts become a memory (`systems`).

Knows no users and no conversations; `runtime` does.
"""

from localmem.bank import Bank
from localmem.config import Settings, system_options
from localmem.factory.parts import (
    Around,
    Backbone,
    Progress,
    adapters,
    as_it_is,
    backbone,
    encoder,
    memory_position,
    reranker,
    retriever,
    wants_vllm,
)
from localmem.factory.systems import SYSTEMS, Parts, System
from localmem.memory import Memory

__all__ = [
    "SYSTEMS",
    "Around",
    "Backbone",
    "Parts",
    "Progress",
    "System",
    "adapters",
    "as_it_is",
    "backbone",
    "encoder",
    "memory",
    "memory_position",
    "reranker",
    "retriever",
    "wants_vllm",
]


def memory(settings: Settings, parts: Parts, bank: Bank | None = None) -> Memory:
    """A memory of the system that the settings name, over this bank."""
    options = system_options(settings.system, settings.options)
    return SYSTEMS[settings.system].make(parts, options, bank)
