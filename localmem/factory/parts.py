"""Settings become parts: the backbone, the encoder, an index. One small function a part.

Heavy libraries load inside the functions that need them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from localmem.config import Settings
from localmem.errors import BadInput, BadSettings, LocalmemError, MissingExtra
from localmem.weights.adapters import shipped_adapters
from localmem.weights.folder import model_path
from localmem.weights.loading import one_at_a_time
from localmem.weights.manifest import Manifest

if TYPE_CHECKING:
    from localmem.classification.pair_classifier import PairModel
    from localmem.llm.base import LLM
    from localmem.retrieval.base import Encoder, Reranker, Retriever
    from localmem.retrieval.encoder import EmbeddingCache
    from localmem.text.base import Compressor, PairClassifier, Segmenter

Progress = Callable[[str], None]
Part = TypeVar("Part")


class Around(Protocol):
    """What is put around a part when it is made, such as a stopwatch: gives what stands in the part's place."""

    def __call__(self, part: Part, /) -> Part: ...


def as_it_is(part: Part, /) -> Part:
    """Nothing around it."""
    return part


_CONSTANT = 10.0  # of the fusion; better than 60 on LoCoMo and LongMemEval (configs/eval/results/retrieval.md)


@dataclass(frozen=True, slots=True)
class Backbone:
    """The LLM, what to do when it is no longer needed, and whether it answers now (in process it always does)."""

    llm: "LLM"
    close: Callable[[], None]
    answers: Callable[[], bool] = lambda: True


def backbone(settings: Settings, progress: Progress) -> Backbone:
    """The LLM that the settings ask for; weights are loaded, or a server started or reached, when this returns."""
    return _vllm(settings, progress) if wants_vllm(settings) else _in_process(settings, progress)


def wants_vllm(settings: Settings) -> bool:
    """Whether vLLM serves the backbone."""
    if settings.llm.backend != "auto":
        return settings.llm.backend == "vllm"
    return settings.llm.url is not None or (find_spec("vllm") is not None and _cuda())


def adapters(settings: Settings) -> dict[str, Path]:
    """Which adapter answers which prompts: those that the settings name, over those that come with localmem."""
    named = {name: Path(folder) for name, folder in settings.llm.adapters.items()}
    if not settings.llm.shipped_adapters or settings.llm.url is not None:
        return named
    shipped = shipped_adapters(settings.model).items()
    return {name: folder for name, folder in shipped if name.partition("/")[0] not in named} | named


def memory_position(settings: Settings) -> str:
    """Where recalled memory stands in the prompt: the user's choice, else the model's in the manifest."""
    if settings.chat.memory_position != "model":
        return settings.chat.memory_position
    known = Manifest.load().models.get(settings.model)  # a server may serve a model that the manifest does not list
    return known.memory_position if known else "last"


def encoder(settings: Settings, cache: "EmbeddingCache") -> "Encoder":
    """The encoder with the store's cache around it."""
    from localmem.retrieval.encoder import CachedEncoder

    return CachedEncoder(bare_encoder(settings), cache)


def bare_encoder(settings: Settings) -> "Encoder":
    """The encoder that the settings name, keeping nothing. Its weights load when first needed."""
    _need("sentence_transformers", "cpu")
    from localmem.retrieval.encoder import SentenceEncoder

    model = Manifest.load().entry(settings.retrieval.encoder)
    return SentenceEncoder(
        model_path(model.name),
        name=model.name,
        prefixes={"query": model.prefixes.query, "passage": model.prefixes.passage},
        device=settings.retrieval.device,
    )


def retriever(
    settings: Settings,
    new_encoder: Callable[[], "Encoder"],
    file: Path | None = None,
    *,
    before: int = 0,
    around: Around = as_it_is,
) -> "Retriever":
    """An empty index for one bank. A graph or lists of vectors, where there are any, are kept in `file`.

    Beside vectors of the units' keys BM25 reads the keys, or, where `before` says so, each with those before it.

    Age and dates are weighed last, so that a reranker's scores fade as an index's do.
    """
    wanted, found = settings.retrieval, _index(settings, new_encoder, file, before)
    if wanted.rerank:
        from localmem.retrieval.rerank import Reranked

        reader, budget = around(reranker(wanted.rerank, wanted.device)), wanted.rerank_budget_ms / 1000
        found = Reranked(found, reader, depth=wanted.rerank_depth, budget_seconds=budget)
    if wanted.half_life_days or wanted.dates_in_query:
        from localmem.retrieval.recency import Timely

        if wanted.dates_in_query:
            _need("dateparser", "cpu")
        found = Timely(found, half_life=wanted.half_life_days, dates=wanted.dates_in_query)
    return around(found)


@cache
def reranker(name: str, device: str) -> "Reranker":
    """A reranker of the manifest or in a folder, one for all users. Its weights load at the first search."""
    _need("sentence_transformers", "cpu")
    from localmem.retrieval.rerank import CrossEncoderReranker

    folder = Path(name).expanduser()
    if folder.is_dir():
        return CrossEncoderReranker(folder, name=folder.name, device=device)
    model = Manifest.load().entry(name)
    if model.role != "reranker":
        raise BadSettings(f"{name} is of the role {model.role}; `localmem models list` shows the rerankers")
    return CrossEncoderReranker(model_path(name), name=name, device=device)


@cache
def trained_segmenter(name: str, device: str = "auto") -> "Segmenter":
    """A segmenter that `localmem finetune segmenter` trained, by its name or folder; one for all users."""
    from localmem.segmentation.boundary_classifier import BoundarySegmenter
    from localmem.segmentation.learned_texttiling import FILE, Learned, LearnedTiling

    folder = _folder(name)
    if not (folder / FILE).is_file():
        return BoundarySegmenter(pair_model(name, device))
    _need("sentence_transformers", "cpu")
    from localmem.retrieval.encoder import SentenceEncoder

    return LearnedTiling(SentenceEncoder(folder, name=name, device=device), Learned.load(folder))


@cache
def pair_classifier(name: str, device: str = "auto") -> "PairClassifier":
    """A classifier of operations that `localmem finetune operations` trained, or a model of inference, read as one.

    By its name or folder, one for all users; its config.json says which of them it is.
    """
    from localmem.classification.pair_weights import config_of, labels_of
    from localmem.classification.trained_classifier import classifier_of

    model = pair_model(name, device)
    try:
        return classifier_of(labels_of(config_of(_folder(name))), model)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from error


@cache
def pair_model(name: str, device: str = "auto") -> "PairModel":
    """A trained classifier of pairs, by its name or folder. Its weights load when first asked."""
    _need("transformers", "cpu")
    from localmem.classification.pair_classifier import PairModel

    return PairModel(_folder(name), device=device)


@cache
def compressor(name: str, device: str = "auto") -> "Compressor":
    """A compressor by its name in the manifest or its folder, one for all users. Its weights load when first needed."""
    from localmem.text.compress import LLMLingua2

    folder = Path(name).expanduser()
    return LLMLingua2(lambda: folder if folder.is_dir() else model_path(name), device=device)


def _folder(name: str) -> Path:
    """A folder as it is given, else that of the model of this name."""
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else model_path(name)


def _in_process(settings: Settings, progress: Progress) -> Backbone:
    _need("transformers", "cpu")
    path = model_path(settings.model)
    progress(f"loading {settings.model}")
    with one_at_a_time():
        from localmem.llm.transformers import TransformersLLM

        llm = TransformersLLM(
            path,
            name=settings.model,
            context_length=settings.llm.context_length,
            device=settings.llm.device,
            dtype=settings.llm.dtype,
            adapters=adapters(settings),
        )
    return Backbone(llm, lambda: None)


def _vllm(settings: Settings, progress: Progress) -> Backbone:
    from localmem.llm.vllm.llm import VllmLLM

    wanted = settings.llm
    if wanted.url is None:
        return _own_vllm(settings, progress)
    llm = VllmLLM(
        wanted.url,
        name=wanted.served_as or settings.model,
        tokenizer=_tokenizer(settings.model),
        context_length=wanted.context_length,
        api_key=wanted.api_key,
        priorities=wanted.priorities,
    )
    for name, folder in wanted.adapters.items():
        llm.load_adapter(name, folder)
    return Backbone(llm, llm.close, llm.answers)


class _Stages:
    """Tells of each stage of a start when it begins, and every ten seconds while it lasts."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._told: tuple[str, int] | None = None

    def __call__(self, stage: str, seconds: float) -> None:
        mark = stage, int(seconds) // 10
        if mark != self._told:
            self._told = mark
            self._progress(f"vLLM: {stage} ({seconds:.0f} s)")


def _own_vllm(settings: Settings, progress: Progress) -> Backbone:
    """A server that lives as long as this process."""
    if find_spec("vllm") is None:
        raise MissingExtra("the Python package 'vllm' is not installed; run scripts/setup, or give llm.url")
    from localmem.llm.vllm.llm import VllmLLM
    from localmem.llm.vllm.vllm_server import VllmServer, VllmSettings

    path = model_path(settings.model)
    settings.data.mkdir(parents=True, exist_ok=True)
    server = VllmServer(
        path,
        name=settings.model,
        log=settings.data / "vllm.log",
        settings=VllmSettings(
            context_length=settings.llm.context_length,
            dtype=settings.llm.dtype,
            lora=bool(adapters(settings)),
            arguments=settings.llm.arguments,
        ),
        progress=_Stages(progress),
    )
    server.start()
    llm = VllmLLM(server.url, name=settings.model, tokenizer=path, api_key=server.api_key, server=server)
    for name, folder in adapters(settings).items():
        llm.load_adapter(name, folder)
    return Backbone(llm, server.stop, llm.answers)


def _tokenizer(name: str) -> Path | None:
    """The model's folder if it is here, for counting tokens; else the server is asked."""
    try:
        return model_path(name)
    except LocalmemError:
        return None


def _index(settings: Settings, new_encoder: Callable[[], "Encoder"], file: Path | None, before: int) -> "Retriever":
    kind = settings.retrieval.retriever
    if kind == "bm25":
        return _bm25(settings, before)
    if kind == "dense":
        return _dense(settings, new_encoder(), file)
    from localmem.retrieval.hybrid import HybridRetriever

    return HybridRetriever([_dense(settings, new_encoder(), file), _bm25(settings, before)], constant=_CONSTANT)


def _dense(settings: Settings, encoder: "Encoder", file: Path | None) -> "Retriever":
    _need("faiss", "cpu")
    from localmem.retrieval.dense import DenseRetriever

    wanted = settings.retrieval
    return DenseRetriever(encoder, kind=wanted.index, file=file, half=wanted.index_half)


def _bm25(settings: Settings, before: int) -> "Retriever":
    _need("bm25s", "cpu")
    from localmem.retrieval.bm25 import BM25Retriever
    from localmem.retrieval.contextual import ReadsBefore

    plain = BM25Retriever(language=settings.retrieval.language)
    return ReadsBefore(plain, before=before) if before else plain


def _cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _need(module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise MissingExtra(f"the Python package {module!r} is not installed; run `pip install localmem[{extra}]`")
