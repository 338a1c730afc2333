"""The parts of retrieval experiments: units, keys and indexes for a retrieval configuration.

Everything loads when it is first needed: BM25 over turns needs no weights but a tokenizer.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from localmem.errors import LocalmemError, ModelMissing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localmem.config import Settings
    from localmem.evaluation.unit_builders import Builder, Form, SentenceCache
    from localmem.experiments.runs import Notify
    from localmem.llm.base import LLM
    from localmem.retrieval.base import Encoder, Retriever, Side
    from localmem.segmentation import Segmenter
    from localmem.text.compress import Compressor
    from localmem.text.dialogue import Count
    from localmem.types import Session, Unit

RANDOM = "random"  # the compressor that drops words at random
NO_RERANKER = "none"

Kind = Literal["dense", "bm25", "hybrid"]
Size = Literal["turn", "exchange", "segment", "session", "memory"]
DenseText = Literal["key", "text", "sentences", "both"]


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """One configuration of units, keys and retriever; the fields are those of RetrievalGrid, one value each."""

    retriever: Kind
    unit: Size = "turn"
    key: "Form" = "plain"
    before: int = 0
    after: int = 0
    rate: float = 1.0
    reranker: str = NO_RERANKER
    dense_text: DenseText = "key"
    weight: float = 1.0
    constant: float = 60.0
    depth: int = 50

    def name(self, among: "Sequence[RetrievalConfig]") -> str:
        """The retriever, and the fields that differ among the configurations; those of hybrids among hybrids only."""
        same_kind = [config for config in among if config.retriever == self.retriever]
        words = [str(getattr(self, field)) for field in ("unit", "key") if _varies(field, among)]
        words += [self._label(field) for field in ("before", "after", "rate", "reranker") if _varies(field, among)]
        words += [self._label(field) for field in ("dense_text", *HYBRID_FIELDS) if _varies(field, same_kind)]
        return " ".join([self.retriever, *words])

    def _label(self, field: str) -> str:
        name, value = field.replace("_", " "), getattr(self, field)
        return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


HYBRID_FIELDS = ("weight", "constant", "depth")


def _varies(field: str, configs: "Sequence[RetrievalConfig]") -> bool:
    return len({getattr(config, field) for config in configs}) > 1


def load_compressor(name: str, seed: int) -> "Compressor":
    """The compressor by name or folder, or the one that drops words at random."""
    from localmem.factory.parts import compressor
    from localmem.text.compress import RandomDrop

    return RandomDrop(seed) if name == RANDOM else compressor(name)


class _QueryCache:
    """Encodes a list of queries once for all configurations; a single query is encoded every time.

    Configurations thus share the work, and a search that is timed includes its own encoding.
    """

    def __init__(self, inner: "Encoder") -> None:
        self.inner = inner
        self._vectors: dict[tuple[str, ...], NDArray[np.float32]] = {}

    @property
    def identity(self) -> str:
        return self.inner.identity

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    def encode(self, texts: "Sequence[str]", side: "Side") -> "NDArray[np.float32]":
        if side == "passage" or len(texts) == 1:
            return self.inner.encode(texts, side)
        queries = tuple(texts)
        if queries not in self._vectors:
            self._vectors[queries] = self.inner.encode(texts, side)
        return self._vectors[queries]


class RetrievalParts:
    """Makes units and indexes; loads each model once.

    `folder` stores vectors and sentences, `stack` closes what was opened. `segmenter` and `chunk` make segments,
    `compressor` compresses keys, with `seed` if it is random.
    """

    def __init__(
        self,
        settings: "Settings",
        folder: Path,
        stack: ExitStack,
        *,
        segmenter: Literal["even", "topics"],
        chunk: int,
        compressor: str,
        seed: int,
        notify: "Notify",
    ) -> None:
        self._settings, self._folder, self._stack = settings, folder, stack
        self._segmenter_name, self._chunk, self._compressor_name, self._seed = segmenter, chunk, compressor, seed
        self._notify = notify
        self.fallbacks: Counter[str] = Counter()

    @cached_property
    def encoder(self) -> "_QueryCache":
        """The encoder of the settings; its vectors are stored in the folder."""
        from localmem import factory
        from localmem.store import Store

        store = self._stack.enter_context(Store.open(self._folder))
        return _QueryCache(factory.encoder(self._settings, store.embeddings))

    @cached_property
    def token_counter(self) -> "tuple[str, Count]":
        """A model's name and its token counter: the backbone's if it is on this machine, else the encoder's."""
        from localmem.llm.tokenizer import ChatTokenizer
        from localmem.retrieval.encoder import CachedEncoder, SentenceEncoder
        from localmem.weights import model_path

        try:
            return self._settings.model, ChatTokenizer(model_path(self._settings.model)).count_tokens
        except LocalmemError:
            match self.encoder.inner:
                case CachedEncoder(inner=SentenceEncoder() as inner):
                    return inner.name, inner.count_tokens
        raise ModelMissing(f"no tokenizer to count tokens with; run `localmem models pull {self._settings.model}`")

    def describe(self, configs: "Sequence[RetrievalConfig]") -> dict[str, object]:
        """The models and options that these configurations use."""
        sizes = {config.unit for config in configs}
        uses_encoder = any(config.retriever != "bm25" for config in configs)
        uses_backbone = "memory" in sizes or self._segmenter_name == "topics"
        return {
            "encoder": self.encoder.identity if uses_encoder else None,
            "segmenter": f"{self._segmenter_name}, {self._chunk} exchanges" if "segment" in sizes else None,
            "compressor": self._compressor_name if any(config.rate < 1 for config in configs) else None,
            "backbone": self._settings.model if uses_backbone else None,
            "fallbacks": dict(self.fallbacks),
        }

    def units(self, config: RetrievalConfig, sessions: "Sequence[Session]") -> "list[Unit]":
        """The units of an episode, with the keys of the configuration."""
        from localmem.evaluation.unit_builders import KeyForm, apply_key_form

        form = KeyForm(config.key, config.before, config.after, config.rate)
        compressor = self._compressor if config.rate < 1 else None
        return apply_key_form(self._builder(config.unit)(sessions), sessions, form, compressor)

    def retriever(self, config: RetrievalConfig) -> "Retriever":
        """An empty index."""
        from localmem.retrieval.hybrid import HybridRetriever

        dense = self._dense(config.dense_text) if config.retriever != "bm25" else []
        bm25 = [self._single("bm25")] if config.retriever != "dense" else []
        weights = [1.0] * len(dense) + [config.weight] * len(bm25)
        retriever, *others = [*dense, *bm25]
        if others:
            retriever = HybridRetriever(
                [retriever, *others], weights=weights, constant=config.constant, depth=config.depth
            )
        if config.reranker == NO_RERANKER:
            return retriever
        from localmem.factory.parts import reranker
        from localmem.retrieval.rerank import RerankingRetriever

        options = self._settings.retrieval
        return RerankingRetriever(retriever, reranker(config.reranker, options.device), depth=options.rerank_depth)

    def _dense(self, text: DenseText) -> "list[Retriever]":
        from localmem.evaluation.retriever_wrappers import SentenceRetriever, TextRetriever

        if text == "text":
            return [TextRetriever(self._single("dense"))]
        if text == "sentences":
            return [SentenceRetriever(self._single("dense"))]
        return [self._single("dense"), *([SentenceRetriever(self._single("dense"))] if text == "both" else [])]

    def _single(self, kind: Literal["dense", "bm25"]) -> "Retriever":
        from localmem import factory

        plain = {"retriever": kind, "rerank": None, "half_life_days": None, "dates_in_query": False}
        retrieval = self._settings.retrieval.model_copy(update=plain)
        return factory.retriever(self._settings.model_copy(update={"retrieval": retrieval}), lambda: self.encoder)

    def _builder(self, size: Size) -> "Builder":
        from localmem.evaluation import unit_builders

        if size == "segment":
            return partial(unit_builders.build_segments, segmenter=self._segmenter)
        if size == "memory":
            return partial(unit_builders.build_memories, sentences=self._sentences)
        return {
            "turn": unit_builders.build_turns,
            "exchange": unit_builders.build_exchanges,
            "session": unit_builders.build_sessions,
        }[size]

    @cached_property
    def _segmenter(self) -> "Segmenter":
        from localmem.segmentation.segmenters import EvenSegmenter, LLMSegmenter

        if self._segmenter_name == "even":
            return EvenSegmenter(self._chunk)
        return LLMSegmenter(self._llm, chunk=self._chunk, fallbacks=self.fallbacks)

    @cached_property
    def _sentences(self) -> "SentenceCache":
        from pydantic import TypeAdapter

        from localmem.evaluation.unit_builders import SentenceCache, SessionSentences
        from localmem.files import JsonlLog
        from localmem.text.summarize import Summarizer

        summarizer = Summarizer(self._llm)
        summarizer.fallbacks = self.fallbacks
        log = JsonlLog(self._folder / "memories.jsonl", TypeAdapter(SessionSentences))
        return SentenceCache(self._stack.enter_context(log), self._settings.model, summarizer)

    @cached_property
    def _compressor(self) -> "Compressor":
        return load_compressor(self._compressor_name, self._seed)

    @cached_property
    def _llm(self) -> "LLM":
        from localmem import factory

        backbone = factory.backbone(self._settings, self._notify)
        self._stack.callback(backbone.close)
        return backbone.llm
