"""The factory: makes parts from settings (`parts`) and memories from parts. Independent of users and conversations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from localmem import systems
from localmem.bank import Bank
from localmem.config import Settings, system_options
from localmem.factory.parts import (
    Backbone,
    adapters,
    backbone,
    compressor,
    encoder,
    memory_position,
    pair_classifier,
    reranker,
    retriever,
    trained_segmenter,
    wants_vllm,
)
from localmem.memory import Memory
from localmem.systems import (
    System,
    Wrap,
    all_memories,
    carecall,
    comedy,
    conditionmem,
    creem,
    full_history,
    memochat,
    memorybank,
    no_wrap,
    none,
    retrieval_baselines,
    rsum,
    secom,
    summem,
    theanine,
)

if TYPE_CHECKING:
    from localmem.classification import PairClassifier
    from localmem.segmentation import Segmenter
    from localmem.text.compress import Compressor

__all__ = [
    "SYSTEMS",
    "Backbone",
    "Parts",
    "System",
    "Wrap",
    "adapters",
    "backbone",
    "encoder",
    "memory",
    "memory_position",
    "no_wrap",
    "reranker",
    "retriever",
    "wants_vllm",
]

SYSTEMS: Mapping[str, System[Any]] = {
    system.name: system
    for system in (
        none.SYSTEM,
        full_history.SYSTEM,
        retrieval_baselines.UTTERANCES,
        retrieval_baselines.EXCHANGES,
        retrieval_baselines.SESSIONS,
        retrieval_baselines.MEMORIES,
        all_memories.SYSTEM,
        all_memories.REBOT,
        rsum.SYSTEM,
        theanine.SYSTEM,
        secom.SYSTEM,
        creem.SYSTEM,
        carecall.SYSTEM,
        summem.SYSTEM,
        memochat.SYSTEM,
        memorybank.SYSTEM,
        comedy.SYSTEM,
        conditionmem.SYSTEM,
    )
}


@dataclass(frozen=True, slots=True)
class Parts(systems.Parts):
    """Parts whose trained models are those of the manifest, or in folders."""

    load_classifier: "Callable[[str], PairClassifier]" = field(default=pair_classifier, kw_only=True)
    load_segmenter: "Callable[[str], Segmenter]" = field(default=trained_segmenter, kw_only=True)
    load_compressor: "Callable[[str], Compressor]" = field(default=compressor, kw_only=True)


def memory(settings: Settings, parts: systems.Parts, bank: Bank | None = None) -> Memory:
    """A memory of the system that the settings name, over this bank (default: an empty one)."""
    options = system_options(settings.system, settings.options)
    return SYSTEMS[settings.system].new_memory(parts, options, bank)
