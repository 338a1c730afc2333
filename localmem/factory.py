"""The factory: makes parts from settings, and memories from parts. Independent of users and conversations.

Heavy libraries load inside the functions that need them. Trained models are cached: all users share one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmem import systems
from localmem.backbones import Backbone, adapters, backbone, folder_backbone, remote_llm, require_package, wants_server
from localmem.bank import Bank
from localmem.chat.reader import Reader
from localmem.chat.responder import Sampling
from localmem.config import Settings, system_options
from localmem.errors import BadInput, BadSettings
from localmem.llm.adapters import require_proved
from localmem.llm.gpu_installation import require_gpu
from localmem.memory import Memory
from localmem.retrieval.base import QueryReader
from localmem.systems import (
    System,
    Wrap,
    all_memories,
    baselines,
    carecall,
    comedy,
    conditionmem,
    creem,
    evidence,
    memochat,
    memorybank,
    no_wrap,
    rsum,
    secom,
    summem,
    theanine,
)
from localmem.weights.folder import model_folder, model_path, model_state, shipped_reranker
from localmem.weights.manifest import Manifest, models_dir

if TYPE_CHECKING:
    from localmem.classification import PairClassifier
    from localmem.classification.pair_classifier import PairModel
    from localmem.llm.base import LLM
    from localmem.retrieval.base import EmbeddingCache, Encoder, Reranker, Retriever
    from localmem.retrieval.encoder import CachedEncoder
    from localmem.segmentation import Segmenter
    from localmem.summaries.grounded_stages import GroundedParts
    from localmem.text.compress import Compressor

__all__ = [
    "SYSTEMS",
    "Backbone",
    "Parts",
    "adapters",
    "backbone",
    "bare_encoder",
    "compressor",
    "encoder",
    "folder_backbone",
    "memory",
    "memory_position",
    "pair_classifier",
    "pair_model",
    "proved_classifier",
    "proved_segmenter",
    "reader",
    "remote_llm",
    "reranker",
    "retriever",
    "sampling",
    "stages",
    "trained_segmenter",
    "wants_server",
]

_OPERATIONS = "minilm-l6-v2-operations"  # decides for quotations what they do to those that are remembered
_FUSION_CONSTANT = 10.0  # better than 60 on LoCoMo and LongMemEval (localmem/evaluation/results/retrieval.md)


def memory_position(settings: Settings) -> str:
    """Where the prompt shows recalled memory: the user's choice, else the model's in the manifest."""
    if settings.chat.memory_position != "model":
        return settings.chat.memory_position
    model = Manifest.load().models.get(settings.model)  # a server may serve a model that the manifest does not list
    return model.memory_position if model else "last"


def sampling(settings: Settings) -> Sampling:
    """How replies are sampled: the user's choice; their length and repetitions, else as the manifest says."""
    chat, model = settings.chat, Manifest.load().models.get(settings.model)
    own = Sampling(chat.max_tokens, chat.temperature, chat.top_p, chat.repetition_penalty, chat.frequency_penalty)
    if model is None:
        return own
    return own.completed_by(Sampling(model.reply_tokens, None, None, model.repetition_penalty, model.frequency_penalty))


def reader_name(settings: Settings) -> str:
    """What scores the turns that `evidence` keeps as answers: the user's choice, else the model's; "" for nothing."""
    name = settings.chat.reader
    if name == "model":
        model = Manifest.load().models.get(settings.model)
        name = (model and model.reader) or "none"
    unused = name == "none" or settings.system != evidence.SYSTEM.name or settings.retrieval.retriever == "bm25"
    return "" if unused else name


def reader(settings: Settings) -> Reader | None:
    """What answers questions from the turns that `evidence` keeps, where the settings have it."""
    name = reader_name(settings)
    if not name:
        return None
    from localmem.retrieval.two_stage_reranker import TwoStageReranker

    scorer = reranker(name, settings.retrieval.device)
    # What one sentence replaces and which instructions matter, the first of two stages has learned.
    return Reader(scorer, scorer.first, scorer) if isinstance(scorer, TwoStageReranker) else Reader(scorer)


def stages(settings: Settings, llm: "LLM") -> "LLM":
    """What answers the stages of memory systems: the backbone, or quotations where it is too small to summarise."""
    name = settings.chat.stages
    if name == "model":
        model = Manifest.load().models.get(settings.model)
        name = (model and model.statements) or "none"
    if name == "none" or settings.retrieval.retriever == "bm25":
        return llm
    from localmem.summaries.grounded_stages import GroundedStages

    return GroundedStages(llm, lambda: _grounded_parts(name, settings.retrieval.device))


@cache
def _grounded_parts(name: str, device: str) -> "GroundedParts":
    from localmem.segmentation.texttiling import TextTiling
    from localmem.summaries.grounded_stages import GroundedParts
    from localmem.summaries.statements import StatementModel, StatementSelector

    model = StatementModel.load(model_folder(name))
    base, classifier = _base_encoder(model.base, device), _OPERATIONS
    return GroundedParts(
        base,
        StatementSelector(base, model),
        lambda pairs: [label.operation for label in pair_classifier(classifier, device).classify(pairs)],
        TextTiling(base).cut,
    )


def encoder(settings: Settings, cache: "EmbeddingCache") -> "CachedEncoder":
    """The encoder behind the store's cache of vectors."""
    from localmem.retrieval.encoder import CachedEncoder

    return CachedEncoder(bare_encoder(settings), cache)


def bare_encoder(settings: Settings, *, remembers: bool = True) -> "Encoder":
    """The encoder that the settings name, without a cache. Its weights load when first needed.

    It remembers the last texts unless told not to, as where the time of encoding is measured.

    Raises BadSettings on a GPU installation that sees no GPU, unless retrieval.device is cpu.
    """
    require_gpu("retrieval.device", settings.retrieval.device)
    require_package("sentence_transformers")
    from localmem.retrieval.encoder import QUERY_FOLDER, SentenceEncoder, TwoEncoders

    model = Manifest.load().entry(settings.retrieval.encoder)
    make = partial(
        SentenceEncoder,
        name=model.name,
        prefixes={"query": model.prefixes.query, "passage": model.prefixes.passage},
        device=settings.retrieval.device,
        remembers=remembers,
    )
    folder = model_path(model.name)
    passages = make(folder)
    return TwoEncoders(make(folder / QUERY_FOLDER), passages) if (folder / QUERY_FOLDER).is_dir() else passages


def retriever(
    settings: Settings,
    new_encoder: Callable[[], "Encoder"],
    file: Path | None = None,
    *,
    system: System[Any] | None = None,
    new_dense: "Callable[[], Retriever] | None" = None,
    wrap: Wrap = no_wrap,
) -> "Retriever":
    """An empty index for one bank. An approximate index (HNSW, IVF) is saved in `file`.

    `new_dense` makes the index of vectors, where that is not one in memory.

    What is indexed of a unit is up to the `system` that it is for; by default its key alone. Age and dates are applied
    last, so that a reranker's scores decay as an index's do.
    """
    options = settings.retrieval
    index = _index(settings, new_dense or (lambda: _dense(settings, new_encoder(), file)), system)
    if options.rerank:
        from localmem.retrieval.rerank import RerankingRetriever

        model, budget = wrap(reranker(options.rerank, options.device)), options.rerank_budget_ms / 1000
        index = RerankingRetriever(index, model, depth=options.rerank_depth, budget_seconds=budget)
    if options.half_life_days or options.dates_in_query:
        from localmem.retrieval.wrappers import RecencyRetriever

        if options.dates_in_query:
            require_package("dateparser")
        index = RecencyRetriever(index, half_life=options.half_life_days, dates=options.dates_in_query)
    return wrap(index)


@cache
def reranker(name: str, device: str) -> "Reranker":
    """A reranker by its name in the manifest or its folder. Its weights load at the first search."""
    from localmem.retrieval import two_stage_reranker
    from localmem.retrieval.split_reranker import SETTINGS, SplitReranker

    folder = shipped_reranker(name) or Path(name).expanduser()
    if not folder.is_dir():
        model = Manifest.load().entry(name)
        if model.role != "reranker":
            raise BadSettings(f"{name} is of the role {model.role}; `localmem models list` shows the rerankers")
        folder = model_path(name)
    if (folder / SETTINGS).is_file():
        require_package("torch")
        return SplitReranker(folder)
    if (folder / two_stage_reranker.SETTINGS).is_file():
        require_package("torch")
        first = reranker(two_stage_reranker.read_settings(folder).first, device)
        if not isinstance(first, QueryReader):
            raise BadSettings(f"{folder} begins with {type(first).__name__}, which does not read queries by themselves")
        return two_stage_reranker.TwoStageReranker(folder, first, device)
    require_package("sentence_transformers")
    from localmem.retrieval.rerank import CrossEncoderReranker

    return CrossEncoderReranker(folder, name=folder.name, device=device)


@cache
def trained_segmenter(name: str, device: str = "auto") -> "Segmenter":
    """A segmenter trained by `localmem finetune segmenter`, by its name or folder."""
    from localmem.segmentation.texttiling import FILE, BoundarySegmenter, LearnedTextTiling, TilingModel

    folder = model_folder(name)
    if not (folder / FILE).is_file():
        return BoundarySegmenter(pair_model(name, device))
    require_package("sentence_transformers")
    from localmem.retrieval.encoder import SentenceEncoder

    return LearnedTextTiling(SentenceEncoder(folder, name=name, device=device), TilingModel.load(folder))


@cache
def pair_classifier(name: str, device: str = "auto") -> "PairClassifier":
    """An operation classifier trained by `localmem finetune operations`, or a model of natural language inference.

    By its name or folder; its config.json says which of the two it is.
    """
    from localmem.classification.pair_classifier import base_of, classifier_of, config_of, labels_of
    from localmem.classification.related_pairs import RelatedPairClassifier

    model, config = pair_model(name, device), config_of(model_folder(name))
    try:
        classifier = classifier_of(labels_of(config), model)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from error
    base = base_of(config)
    return RelatedPairClassifier(classifier, _base_encoder(base, device)) if base else classifier


def proved_classifier(name: str, device: str = "auto") -> "PairClassifier":
    """The classifier for memory systems. Raises BadSettings where it was measured and failed."""
    require_proved(model_folder(name))
    return pair_classifier(name, device)


def proved_segmenter(name: str, device: str = "auto") -> "Segmenter":
    """The segmenter for memory systems. Raises BadSettings where it was measured and failed."""
    require_proved(model_folder(name))
    return trained_segmenter(name, device)


@cache
def _base_encoder(name: str, device: str) -> "Encoder":
    """The encoder that a shipped part is based on."""
    require_package("sentence_transformers")
    from localmem.retrieval.encoder import SentenceEncoder

    return SentenceEncoder(model_folder(name), name=name, device=device)


@cache
def pair_model(name: str, device: str = "auto") -> "PairModel":
    """A trained classifier of text pairs, by its name or folder. Its weights load when first needed."""
    require_package("transformers")
    from localmem.classification.pair_classifier import PairModel

    return PairModel(model_folder(name), device=device)


def installed_compressor() -> str | None:
    """The first compressor of the manifest that is on this machine, else the shipped one over an encoder that is."""
    manifest = Manifest.load()
    models = manifest.models
    bases = {name: name for name, model in models.items() if model.role == "compressor"}
    bases |= {part.name: part.base for part in manifest.parts if part.role == "compressor"}
    states = ((name, model_state(models[base], models_dir() / base)) for name, base in bases.items())
    return next((name for name, state in states if state == "present"), None)


@cache
def compressor(name: str, device: str = "auto") -> "Compressor":
    """A compressor by its name in the manifest or its folder. Its weights load when first needed."""
    from localmem.text.compress import LLMLingua2

    return LLMLingua2(lambda: model_folder(name), device=device)


def trained_summarizer(name: str, llm: "LLM") -> "LLM":
    """A trained T5 or BART in place of the LLM, by its name in the manifest or its folder."""
    from localmem.summaries.trained_summaries import TrainedSummaries

    return TrainedSummaries(llm, lambda: model_folder(name))


def _index(settings: Settings, new_dense: "Callable[[], Retriever]", system: System[Any] | None) -> "Retriever":
    kind, context_turns = settings.retrieval.retriever, system.context_turns if system else 0
    if system and system.views:
        return _views(settings, new_dense)
    if kind == "bm25":
        return _bm25(settings, context_turns)
    if kind == "dense":
        return new_dense()
    from localmem.retrieval.hybrid import HybridRetriever

    return HybridRetriever([new_dense(), _bm25(settings, context_turns)], constant=_FUSION_CONSTANT)


def _views(settings: Settings, new_dense: "Callable[[], Retriever]") -> "Retriever":
    from localmem.retrieval.views import Indexes, ViewRetriever

    kind = settings.retrieval.retriever
    return ViewRetriever(
        Indexes(
            dense=new_dense() if kind != "bm25" else None,
            words=_bm25(settings, 0) if kind != "dense" else None,
            context=_bm25(settings, 1) if kind != "dense" else None,
        ),
        languages=Manifest.load().entry(settings.retrieval.encoder).languages,
    )


def _dense(settings: Settings, encoder: "Encoder", file: Path | None) -> "Retriever":
    require_package("faiss")
    from localmem.retrieval.dense import DenseRetriever

    options = settings.retrieval
    kind = "flat" if options.index == "pgvector" else options.index  # a memory without a store, such as an evaluation's
    return DenseRetriever(encoder, kind=kind, file=file, half=options.index_half, device=options.device)


def _bm25(settings: Settings, context_turns: int) -> "Retriever":
    require_package("bm25s")
    from localmem.retrieval.bm25 import BM25Retriever
    from localmem.retrieval.wrappers import ContextualRetriever

    plain = BM25Retriever(language=settings.retrieval.language)
    return ContextualRetriever(plain, context_units=context_turns) if context_turns else plain


_METHODS = (evidence, rsum, theanine, secom, creem, carecall, summem, memochat, memorybank, comedy, conditionmem)

SYSTEMS: Mapping[str, System[Any]] = {
    system.name: system
    for system in (*baselines.SYSTEMS, *all_memories.SYSTEMS, *(module.SYSTEM for module in _METHODS))
}


@dataclass(frozen=True, slots=True)
class Parts(systems.Parts):
    """Parts whose trained models are those of the manifest, or in folders."""

    load_classifier: "Callable[[str], PairClassifier]" = field(default=proved_classifier, kw_only=True)
    load_reranker: "Callable[[str], Reranker]" = field(default=lambda name: reranker(name, "auto"), kw_only=True)
    load_segmenter: "Callable[[str], Segmenter]" = field(default=proved_segmenter, kw_only=True)
    load_compressor: "Callable[[str], Compressor]" = field(default=compressor, kw_only=True)
    load_summarizer: "Callable[[str, LLM], LLM]" = field(default=trained_summarizer, kw_only=True)
    find_compressor: "Callable[[], str | None]" = field(default=installed_compressor, kw_only=True)


def memory(settings: Settings, parts: systems.Parts, bank: Bank | None = None) -> Memory:
    """A memory of the system that the settings name, over this bank (default: an empty one)."""
    options = system_options(settings.system, settings.options)
    if settings.retrieval.retriever == "bm25" and "reranker" in options:
        options["reranker"] = None  # who searches by words alone loads no encoder, which a reranker is made of
    return SYSTEMS[settings.system].new_memory(parts, options, bank)
