"""The parts of retrieval experiments: options, data, units, keys and indexes for a retrieval configuration.

Weights load when they are first needed: BM25 over turns needs none but a tokenizer.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from localmem.config import Settings, system_options
from localmem.errors import BadInput, BadSettings, LocalmemError, ModelMissing
from localmem.evaluation import evidence_retrieval
from localmem.evaluation.episodes import Dataset, Probe
from localmem.evaluation.evidence_retrieval import Gold, probes_with_evidence
from localmem.experiments.runs import ExperimentRecipe, Notify, Split, open_backbone, system_settings
from localmem.files import JsonlLog
from localmem.llm.base import LLM
from localmem.llm.wrappers import LazyLLM
from localmem.memory import Memory
from localmem.retrieval.base import Encoder, Match, Retriever, Scope, Side
from localmem.segmentation import Segmenter
from localmem.text.compress import Compressor, RandomDrop
from localmem.text.dialogue import Count
from localmem.text.parse import sentences
from localmem.types import Session, Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RANDOM = "random"  # the compressor that drops words at random
NO_RERANKER = "none"
HYBRID_FIELDS = ("weight", "constant", "depth")

Kind = Literal["dense", "bm25", "hybrid"]
Size = Literal["turn", "exchange", "segment", "session", "memory"]
DenseText = Literal["key", "text", "sentences", "both"]
Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, le=1)]


class SearchRecipe(ExperimentRecipe):
    """What every retrieval experiment can choose."""

    split: Split | None = None
    """Half of the data: choose (development) or report (test); both by default."""
    limit: Positive | None = None
    """Use only the first N questions."""
    encoder: str | None = None
    """Encoder in the manifest; that of the settings by default."""
    chunk: Positive = 3
    """Exchanges of an even segment."""
    seed: int = 0
    """Seed for random compression."""

    def apply(self, settings: Settings) -> Settings:
        """The settings with the recipe's encoder."""
        if not self.encoder:
            return settings
        retrieval = settings.retrieval.model_copy(update={"encoder": self.encoder})
        return settings.model_copy(update={"retrieval": retrieval})

    def select(self, dataset: Dataset, gold: Gold) -> tuple[Dataset, list[Probe]]:
        """The part of a data set to use, and its questions with evidence. Raises BadInput if there are none."""
        part = dataset.select(self.split, self.limit)
        probes = [probe for episode in part.episodes for probe in probes_with_evidence(episode, gold)]
        if not probes:
            split = f"split {self.split!r} of {dataset.name}" if self.split else dataset.name
            raise BadInput(f"{split} has no question with evidence; use another split or data set")
        return part, probes


def describe_data(dataset: Dataset, path: Path) -> dict[str, Any]:
    """What identifies the data of an experiment, for its report."""
    return {"name": dataset.name, "file": path.name, "sha256": dataset.sha256, "notes": list(dataset.notes)}


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """One configuration of units, keys and retriever; the fields are those of RetrievalGrid, one value each."""

    retriever: Kind
    unit: Size = "turn"
    key: evidence_retrieval.Form = "plain"
    before: int = 0
    after: int = 0
    rate: float = 1.0
    reranker: str = NO_RERANKER
    dense_text: DenseText = "key"
    weight: float = 1.0
    constant: float = 60.0
    depth: int = 50

    def name(self, among: Sequence["RetrievalConfig"]) -> str:
        """The retriever, and the fields that differ among the configurations; those of hybrids among hybrids only."""
        same_kind = [config for config in among if config.retriever == self.retriever]
        words = [str(getattr(self, option)) for option in ("unit", "key") if _varies(option, among)]
        words += [self._label(option) for option in ("before", "after", "rate", "reranker") if _varies(option, among)]
        words += [self._label(option) for option in ("dense_text", *HYBRID_FIELDS) if _varies(option, same_kind)]
        return " ".join([self.retriever, *words])

    def _label(self, option: str) -> str:
        name, value = option.replace("_", " "), getattr(self, option)
        return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _varies(option: str, configs: Sequence[RetrievalConfig]) -> bool:
    return len({getattr(config, option) for config in configs}) > 1


def load_compressor(name: str, seed: int) -> Compressor:
    """The compressor by name or folder, or the one that drops words at random."""
    from localmem.factory import compressor

    return RandomDrop(seed) if name == RANDOM else compressor(name)


class _QueryCache:
    """Encodes a list of queries once for all configurations; a single query is encoded every time.

    Configurations thus share the work, and a search that is timed includes its own encoding.
    """

    def __init__(self, inner: Encoder) -> None:
        self.inner = inner
        self.identity, self.dimension = inner.identity, inner.dimension
        self._vectors: dict[tuple[str, ...], NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str], side: Side) -> "NDArray[np.float32]":
        if side == "passage" or len(texts) == 1:
            return self.inner.encode(texts, side)
        queries = tuple(texts)
        if queries not in self._vectors:
            self._vectors[queries] = self.inner.encode(texts, side)
        return self._vectors[queries]


class TextRetriever:
    """Indexes the texts of units in place of their keys: for vectors of the words beside BM25 over wide keys.

    A unit without a text is indexed by its key.
    """

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner

    def add(self, units: Sequence[Unit]) -> None:
        self._inner.add([replace(unit, key=unit.text or unit.key) for unit in units])

    def remove(self, ids: Sequence[str]) -> None:
        self._inner.remove(ids)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        return self._inner.search(queries, k, scope)

    @property
    def memory(self) -> int:
        return self._inner.memory


class SentenceRetriever(TextRetriever):
    """Indexes each sentence of a unit's key separately; the score of a unit is that of its best sentence.

    One vector for a long turn about several things is near to none of them. Exact: the search is wide enough for `k`
    units, even if all matches of a unit come first.
    """

    def __init__(self, inner: Retriever) -> None:
        super().__init__(inner)
        self._counts: dict[str, int] = {}

    def add(self, units: Sequence[Unit]) -> None:
        parts: list[Unit] = []
        for unit in units:
            if unit.id not in self._counts:
                texts = sentences(unit.key) or [unit.key]
                self._counts[unit.id] = len(texts)
                parts += [replace(unit, id=f"{unit.id}#{number}", key=text) for number, text in enumerate(texts)]
        self._inner.add(parts)

    def remove(self, ids: Sequence[str]) -> None:
        self._inner.remove([f"{key}#{number}" for key in ids for number in range(self._counts.pop(key, 0))])

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        width = k * max(self._counts.values(), default=1)
        results: list[list[Match]] = []
        for matches in self._inner.search(queries, width, scope):
            scores: dict[str, float] = {}
            for match in matches:
                scores.setdefault(match.id.rpartition("#")[0], match.score)
            results.append([Match(key, score) for key, score in scores.items()][:k])
        return results


class SystemIndex:
    """A memory system as an index of exchanges: a hit stands for the exchange of its first source turn."""

    memory = 0

    def __init__(self, new_memory: Callable[[], Memory]) -> None:
        self._new_memory = new_memory
        self._exchange_of: dict[str, str] = {}

    def read(self, sessions: Sequence[Session]) -> list[Unit]:
        """Let a new memory read the sessions. Returns their exchanges."""
        self._system = self._new_memory()
        for session in sessions:
            self._system.apply(self._system.end_session(session))
        units = evidence_retrieval.build_exchanges(sessions)
        self._exchange_of = {turn: unit.id for unit in units for turn in unit.sources}
        return units

    def opened(self) -> "SystemIndex":
        """This index, which has read its sessions already."""
        return self

    def add(self, units: Sequence[Unit]) -> None:
        """Nothing: the system has read them."""

    def remove(self, ids: Sequence[str]) -> None:
        """Nothing: an episode is measured as a whole."""

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        results = [self._system.search(query, k, scope) for query in queries]
        names = [dict.fromkeys(self._exchange_of[hit.unit.sources[0]] for hit in hits) for hits in results]
        return [[Match(name, 1 / rank) for rank, name in enumerate(ranking, start=1)] for ranking in names]


@dataclass(eq=False)
class RetrievalParts:
    """Makes units and indexes; loads each model once.

    `folder` stores vectors and sentences, `stack` closes what was opened. `segmenter` and `chunk` make segments,
    `compressor` compresses keys, with `seed` if it is random. `fallbacks` counts unusable answers of the backbone.
    """

    settings: Settings
    folder: Path
    stack: ExitStack
    notify: Notify
    chunk: int
    seed: int
    segmenter: Literal["even", "topics"] = "even"
    compressor: str = RANDOM
    fallbacks: Counter[str] = field(default_factory=Counter)

    @cached_property
    def encoder(self) -> _QueryCache:
        """The encoder of the settings; its vectors are stored in the folder."""
        from localmem import factory
        from localmem.retrieval.encoder import CachedEncoder
        from localmem.store import Store

        store = self.stack.enter_context(Store.open(self.folder))
        return _QueryCache(CachedEncoder(factory.bare_encoder(self.settings, remembers=False), store.embeddings))

    @cached_property
    def token_counter(self) -> tuple[str, Count]:
        """A model's name and its token counter: the backbone's if it is on this machine, else the encoder's."""
        from localmem.llm.tokenizer import ChatTokenizer
        from localmem.retrieval.encoder import CachedEncoder, SentenceEncoder
        from localmem.weights import model_path

        try:
            return self.settings.model, ChatTokenizer(model_path(self.settings.model)).count_tokens
        except LocalmemError:
            match self.encoder.inner:
                case CachedEncoder(inner=SentenceEncoder() as inner):
                    return inner.name, inner.count_tokens
        raise ModelMissing(f"no tokenizer to count tokens with; run `localmem models pull {self.settings.model}`")

    def describe(self, configs: Sequence[RetrievalConfig]) -> dict[str, object]:
        """The models and options that these configurations use, or systems where there are none."""
        sizes = {config.unit for config in configs}
        uses_encoder = not configs or any(config.retriever != "bm25" for config in configs)
        uses_backbone = "memory" in sizes or self.segmenter == "topics"
        return {
            "encoder": self.encoder.identity if uses_encoder else None,
            "segmenter": f"{self.segmenter}, {self.chunk} exchanges" if "segment" in sizes else None,
            "compressor": self.compressor if any(config.rate < 1 for config in configs) else None,
            "backbone": self.settings.model if uses_backbone else None,
            "fallbacks": dict(self.fallbacks),
        }

    def units(self, config: RetrievalConfig, sessions: Sequence[Session]) -> list[Unit]:
        """The units of an episode, with the keys of the configuration."""
        form = evidence_retrieval.KeyForm(config.key, config.before, config.after, config.rate)
        compressor = self._compressor if config.rate < 1 else None
        return evidence_retrieval.apply_key_form(self._builder(config.unit)(sessions), sessions, form, compressor)

    def retriever(self, config: RetrievalConfig) -> Retriever:
        """An empty index."""
        from localmem.factory import reranker
        from localmem.retrieval.hybrid import HybridRetriever
        from localmem.retrieval.rerank import RerankingRetriever

        dense = self._dense(config.dense_text) if config.retriever != "bm25" else []
        bm25 = [self._single("bm25")] if config.retriever != "dense" else []
        inner = [*dense, *bm25]
        weights = [1.0] * len(dense) + [config.weight] * len(bm25)
        retriever = inner[0]
        if len(inner) > 1:
            retriever = HybridRetriever(inner, weights=weights, constant=config.constant, depth=config.depth)
        if config.reranker == NO_RERANKER:
            return retriever
        options = self.settings.retrieval
        return RerankingRetriever(retriever, reranker(config.reranker, options.device), depth=options.rerank_depth)

    def options(self, name: str) -> Mapping[str, object]:
        """The options of a memory system, or of SYSTEM/VARIANT."""
        settings = system_settings(self.settings, name)
        return system_options(settings.system, settings.options)

    def system(self, name: str) -> SystemIndex:
        """A memory system, or SYSTEM/VARIANT, as an index of exchanges. Raises BadSettings for one without an index."""
        from localmem import factory

        settings = system_settings(self.settings, name)
        llm = LazyLLM(lambda: self._llm, self.token_counter[1])

        def new_memory() -> Memory:
            parts = factory.Parts(
                llm, lambda: factory.retriever(settings, lambda: self.encoder, system=factory.SYSTEMS[settings.system])
            )
            return factory.memory(settings, parts)

        if not new_memory().keeps_units:
            raise BadSettings(f"system {name!r} has no index to measure; choose one that retrieves single units")
        return SystemIndex(new_memory)

    def _dense(self, text: DenseText) -> list[Retriever]:
        if text == "text":
            return [TextRetriever(self._single("dense"))]
        keys = [] if text == "sentences" else [self._single("dense")]
        return keys if text == "key" else [*keys, SentenceRetriever(self._single("dense"))]

    def _single(self, kind: Literal["dense", "bm25"]) -> Retriever:
        from localmem import factory

        plain = {"retriever": kind, "rerank": None, "half_life_days": None, "dates_in_query": False}
        retrieval = self.settings.retrieval.model_copy(update=plain)
        return factory.retriever(self.settings.model_copy(update={"retrieval": retrieval}), lambda: self.encoder)

    def _builder(self, size: Size) -> evidence_retrieval.Builder:
        if size == "segment":
            return partial(evidence_retrieval.build_segments, segmenter=self._segmenter)
        if size == "memory":
            return partial(evidence_retrieval.build_memories, sentences=self._sentences)
        return {
            "turn": evidence_retrieval.build_turns,
            "exchange": evidence_retrieval.build_exchanges,
            "session": evidence_retrieval.build_sessions,
        }[size]

    @cached_property
    def _segmenter(self) -> Segmenter:
        from localmem.segmentation.segmenters import EvenSegmenter, LLMSegmenter

        if self.segmenter == "even":
            return EvenSegmenter(self.chunk)
        return LLMSegmenter(self._llm, chunk=self.chunk, fallbacks=self.fallbacks)

    @cached_property
    def _sentences(self) -> evidence_retrieval.SentenceCache:
        from localmem.summaries.summarize import Summarizer

        summarizer = Summarizer(self._llm)
        summarizer.fallbacks = self.fallbacks
        log = JsonlLog(self.folder / "memories.jsonl", TypeAdapter(evidence_retrieval.SessionSentences))
        return evidence_retrieval.SentenceCache(self.stack.enter_context(log), self.settings.model, summarizer)

    @cached_property
    def _compressor(self) -> Compressor:
        return load_compressor(self.compressor, self.seed)

    @cached_property
    def _llm(self) -> LLM:
        return open_backbone(self.settings, self.stack, self.notify)
