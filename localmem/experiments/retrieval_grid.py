"""The parts of `localmem eval retrieval`: units, keys and indexes as the options ask for them.

Everything loads when it is first needed: BM25 over turns needs no weights but a tokenizer.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import product
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
NONE = "none"  # no reranker

FUSION = ("weight", "constant", "depth")  # options of a hybrid alone

Kind = Literal["dense", "bm25", "hybrid"]
Reads = Literal["key", "text", "sentences", "both"]


@dataclass(frozen=True, slots=True)
class Way:
    """One way of retrieving. Those from `weight` on are a hybrid's: bm25's weight beside 1 for dense, and so on.

    `dense_reads` says of what there are vectors: of keys, of the texts that are shown, of a key's sentences, or, as two
    lists that are fused, of keys and of their sentences.
    """

    retriever: Kind
    unit: str
    key: "Form"
    before: int
    after: int
    rate: float
    rerank: str
    dense_reads: Reads
    weight: float
    constant: float
    depth: int

    def name(self, among: "Sequence[Way]") -> str:
        """The retriever, and whatever differs among the ways; what only a hybrid has differs among hybrids."""
        alike = [way for way in among if way.retriever == self.retriever]
        words = [str(getattr(self, one)) for one in ("unit", "key") if _varies(one, among)]
        told = [_told(one, getattr(self, one)) for one in ("before", "after", "rate", "rerank") if _varies(one, among)]
        fused = [_told(one, getattr(self, one)) for one in ("dense_reads", *FUSION) if _varies(one, alike)]
        return " ".join([self.retriever, *words, *told, *fused])


def _varies(name: str, ways: "Sequence[Way]") -> bool:
    return len({getattr(way, name) for way in ways}) > 1


def _told(name: str, value: object) -> str:
    words = name.removeprefix("dense_")
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"


def combined(options: "Mapping[str, Sequence[object]]") -> list[Way]:
    """Every combination of the options; what a retriever has no use for is not varied."""
    names = [one.name for one in fields(Way)]
    every = (dict(zip(names, values, strict=True)) for values in product(*(options[name] for name in names)))
    unused = {"hybrid": (), "dense": FUSION, "bm25": (*FUSION, "dense_reads")}
    ways = (one | {name: options[name][0] for name in unused[str(one["retriever"])]} for one in every)
    return list(dict.fromkeys(Way(**way) for way in ways))  # type: ignore[arg-type]  # checked by click


def shortener(name: str, seed: int) -> "Compressor":
    """The compressor of this name or in this folder, or the one that drops words at random."""
    from localmem.factory.parts import compressor
    from localmem.text.compress import RandomDrop

    return RandomDrop(seed) if name == RANDOM else compressor(name)


class _ListsOnce:
    """`inner`, asked once for a list of queries that many ways search for; a single query is encoded whenever it comes.

    So the ways share the work, and a search that is timed pays for its own encoding.
    """

    def __init__(self, inner: "Encoder") -> None:
        self.inner = inner
        self._kept: dict[tuple[str, ...], NDArray[np.float32]] = {}

    @property
    def identity(self) -> str:
        return self.inner.identity

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    def encode(self, texts: "Sequence[str]", side: "Side") -> "NDArray[np.float32]":
        """As the inner encoder's."""
        if side == "passage" or len(texts) == 1:
            return self.inner.encode(texts, side)
        asked = tuple(texts)
        if asked not in self._kept:
            self._kept[asked] = self.inner.encode(texts, side)
        return self._kept[asked]


class Parts:
    """What the ways are made of, each once. `folder` keeps vectors and sentences; `stack` closes what is opened."""

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
        self._segmenter, self._chunk, self._compressor, self._seed = segmenter, chunk, compressor, seed
        self._notify = notify
        self.fallbacks: Counter[str] = Counter()

    @cached_property
    def encoder(self) -> "_ListsOnce":
        """The encoder, with a store of vectors in the folder."""
        from localmem import factory
        from localmem.store import Store

        store = self._stack.enter_context(Store.open(self._folder))
        return _ListsOnce(factory.encoder(self._settings, store.embeddings))

    @cached_property
    def counter(self) -> "tuple[str, Count]":
        """Whose tokens are counted, and how: the backbone's where its folder is here, else the encoder's."""
        from localmem.llm.tokenizer import ChatTokenizer
        from localmem.retrieval.encoder import CachedEncoder, SentenceEncoder
        from localmem.weights import model_path

        try:
            return self._settings.model, ChatTokenizer(model_path(self._settings.model)).count_tokens
        except LocalmemError:
            match self.encoder.inner:
                case CachedEncoder(inner=SentenceEncoder() as inner):
                    return inner.name, inner.count_tokens
        raise ModelMissing(f"no tokenizer is here to count with; run `localmem models pull {self._settings.model}`")

    def told(self, ways: "Sequence[Way]") -> dict[str, object]:
        """What the parts were, as far as the ways have a use for them."""
        used = {way.unit for way in ways}
        dense = any(way.retriever != "bm25" for way in ways)
        return {
            "encoder": self.encoder.identity if dense else None,
            "segmenter": f"{self._segmenter}, {self._chunk} exchanges" if "segment" in used else None,
            "compressor": self._compressor if any(way.rate < 1 for way in ways) else None,
            "backbone": self._settings.model if "memory" in used or self._segmenter == "topics" else None,
            "fallbacks": dict(self.fallbacks),
        }

    def units(self, way: Way, sessions: "Sequence[Session]") -> "list[Unit]":
        """The units of an episode, with the way's keys."""
        from localmem.evaluation.unit_builders import KeyForm, keyed

        made = self._builder(way.unit)(sessions)
        form = KeyForm(way.key, way.before, way.after, way.rate)
        return keyed(made, sessions, form, self._shortener if way.rate < 1 else None)

    def retriever(self, way: Way) -> "Retriever":
        """An empty index."""
        from localmem.retrieval.hybrid import HybridRetriever

        dense = self._dense(way.dense_reads) if way.retriever != "bm25" else []
        bm25 = [self._single("bm25")] if way.retriever != "dense" else []
        weights = [1.0] * len(dense) + [way.weight] * len(bm25)
        found, *more = [*dense, *bm25]
        if more:
            found = HybridRetriever([found, *more], weights=weights, constant=way.constant, depth=way.depth)
        if way.rerank == NONE:
            return found
        from localmem.factory.parts import reranker
        from localmem.retrieval.rerank import RerankingRetriever

        wanted = self._settings.retrieval
        return RerankingRetriever(found, reranker(way.rerank, wanted.device), depth=wanted.rerank_depth)

    def _dense(self, reads: Reads) -> "list[Retriever]":
        from localmem.evaluation.retriever_wrappers import BestSentence, ReadsText

        if reads == "text":
            return [ReadsText(self._single("dense"))]
        if reads == "sentences":
            return [BestSentence(self._single("dense"))]
        return [self._single("dense"), *([BestSentence(self._single("dense"))] if reads == "both" else [])]

    def _single(self, kind: Literal["dense", "bm25"]) -> "Retriever":
        from localmem import factory

        plain = {"retriever": kind, "rerank": None, "half_life_days": None, "dates_in_query": False}
        retrieval = self._settings.retrieval.model_copy(update=plain)
        return factory.retriever(self._settings.model_copy(update={"retrieval": retrieval}), lambda: self.encoder)

    def _builder(self, unit: str) -> "Builder":
        from localmem.evaluation import unit_builders

        plain = {
            "turn": unit_builders.turns_of,
            "exchange": unit_builders.exchanges_of,
            "session": unit_builders.sessions_of,
        }
        if unit in plain:
            return plain[unit]
        if unit == "segment":
            return partial(unit_builders.segments_of, segmenter=self._cutter)
        return partial(unit_builders.sentences_of, sentences=self._sentences)

    @cached_property
    def _cutter(self) -> "Segmenter":
        from localmem.segmentation.segmenters import EvenSegmenter, LLMSegmenter

        if self._segmenter == "even":
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
    def _shortener(self) -> "Compressor":
        return shortener(self._compressor, self._seed)

    @cached_property
    def _llm(self) -> "LLM":
        from localmem import factory

        backbone = factory.backbone(self._settings, self._notify)
        self._stack.callback(backbone.close)
        return backbone.llm
