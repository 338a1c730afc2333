"""Parts become a memory: one small function a system, and the table of all of them.

Knows no settings but a system's own options, which come from configs/systems and the user.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from localmem.bank import Bank
from localmem.classification import PairClassifier
from localmem.classification.llm_classifier import LLMClassifier
from localmem.errors import BadSettings
from localmem.factory.options import (
    AllMemoriesOptions,
    CareCallOptions,
    ComedyOptions,
    ConditionMemOptions,
    CreemOptions,
    MemoChatOptions,
    MemoryBankOptions,
    Nearest,
    RsumOptions,
    SeComOptions,
    SessionRetrievalOptions,
    SumMemOptions,
    Values,
    read,
)
from localmem.factory.parts import Around, as_it_is, compressor, pair_classifier, trained_segmenter
from localmem.files import read_json
from localmem.llm.base import LLM
from localmem.memory import Memory
from localmem.retrieval.base import Retriever
from localmem.segmentation import Segmenter
from localmem.segmentation.rubric import Rubric
from localmem.segmentation.segmenters import EvenSegmenter, LLMSegmenter, WholeSegmenter
from localmem.systems import carecall
from localmem.systems.all_memories import AllMemories
from localmem.systems.comedy import Comedy
from localmem.systems.conditionmem import ConditionMem
from localmem.systems.creem import Creem
from localmem.systems.exchange_retrieval import ExchangeRetrieval
from localmem.systems.full_history import FullHistory
from localmem.systems.memochat import MemoChat
from localmem.systems.memory_retrieval import MemoryRetrieval
from localmem.systems.memorybank import MemoryBank
from localmem.systems.none import NoMemory
from localmem.systems.rebot import LLMSummarizer, ReBot
from localmem.systems.rsum import RecursiveSummary
from localmem.systems.secom import Continuation, IncrementalSeCom, SeCom
from localmem.systems.session_retrieval import SessionRetrieval
from localmem.systems.summem import SumMem
from localmem.systems.theanine import Theanine
from localmem.systems.theanine.options import Options as TheanineOptions
from localmem.systems.utterance_retrieval import UtteranceRetrieval
from localmem.text.summarize import Summarizer


@dataclass(frozen=True, slots=True)
class Parts:
    """What a memory is made of: the backbone, how to make its index, and one for texts that are compared once.

    `around` is put around the further parts that a system has.
    """

    llm: LLM
    new_retriever: Callable[[], Retriever]
    new_index: Callable[[], Retriever] | None = None
    around: Around = as_it_is


@dataclass(frozen=True, slots=True)
class System:
    """A memory system: how it is made, what it remembers, when it asks the model, what its units' vectors are of."""

    make: Callable[[Parts, Values, Bank | None], Memory]
    remembers: str
    calls: str
    before: int = 0


def _none(_parts: Parts, _values: Values, bank: Bank | None) -> Memory:
    return NoMemory(bank=bank)


def _full_history(parts: Parts, _values: Values, bank: Bank | None) -> Memory:
    return FullHistory(llm=parts.llm, bank=bank)


def _all_memories(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    options = read(AllMemoriesOptions, values)
    return AllMemories(
        llm=parts.llm, summarize=Summarizer(parts.llm), each=options.each, longest=options.longest, bank=bank
    )


def _utterance_retrieval(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    return UtteranceRetrieval(retriever=parts.new_retriever(), bank=bank, k=read(Nearest, values).k)


def _session_retrieval(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    options = read(SessionRetrievalOptions, values)
    return SessionRetrieval(
        llm=parts.llm, retriever=parts.new_retriever(), k=options.k, tokens=options.tokens, bank=bank
    )


def _rebot(parts: Parts, _values: Values, bank: Bank | None) -> Memory:
    return ReBot(llm=parts.llm, summarizer=LLMSummarizer(parts.llm), bank=bank)


def _summem(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    return SumMem(llm=parts.llm, bank=bank, **read(SumMemOptions, values).model_dump())


def _memochat(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    return MemoChat(llm=parts.llm, bank=bank, **read(MemoChatOptions, values).model_dump())


def _memorybank(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    options = read(MemoryBankOptions, values).model_dump()
    return MemoryBank(llm=parts.llm, retriever=parts.new_retriever(), bank=bank, **options)


def _comedy(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    summarize = Summarizer(parts.llm, prompt="comedy/summarize")
    return Comedy(llm=parts.llm, summarize=summarize, bank=bank, **read(ComedyOptions, values).model_dump())


def _conditionmem(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    options = read(ConditionMemOptions, values).model_dump()
    return ConditionMem(llm=parts.llm, retriever=parts.new_retriever(), bank=bank, **options)


def _exchange_retrieval(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    return ExchangeRetrieval(retriever=parts.new_retriever(), bank=bank, k=read(Nearest, values).k)


def _memory_retrieval(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    summarize = Summarizer(parts.llm)
    return MemoryRetrieval(retriever=parts.new_retriever(), summarize=summarize, bank=bank, k=read(Nearest, values).k)


def _rsum(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    options = read(RsumOptions, values)
    return RecursiveSummary(
        llm=parts.llm,
        bank=bank,
        limit=options.limit,
        examples=options.examples,
        retriever=parts.new_retriever() if options.retrieve else None,
        retrieve=options.retrieve,
        long_context=options.long_context,
    )


def _theanine(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    return Theanine(
        llm=parts.llm,
        retriever=parts.new_retriever(),
        summarize=Summarizer(parts.llm, prompt="theanine/summarize"),
        options=TheanineOptions.of(values),
        bank=bank,
    )


def _carecall(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    options = read(CareCallOptions, values)
    new = parts.new_retriever
    match options.variant:
        case "without":
            return carecall.WithoutMemory(bank=bank)
        case "history":
            return carecall.HistoryAccumulate(llm=parts.llm, tokens=options.history_tokens, bank=bank)
        case "gold":
            return carecall.GoldMemory(
                retriever=new(), gold=_gold(options.gold), k=options.k, query_turns=options.query_turns, bank=bank
            )
    return carecall.CareCall(
        retriever=new(),
        summarize=Summarizer(parts.llm, prompt="carecall/summarize"),
        classifier=parts.around(_classifier(parts.llm, options)) if options.variant == "update" else None,
        k=options.k,
        query_turns=options.query_turns,
        bank=bank,
        roles=("user", "assistant") if options.speakers == "both" else ("user",),
        shortlist=options.shortlist,
        capacity=options.capacity,
        fuse=carecall.Fuser(parts.llm) if options.fusion else None,
    )


def _classifier(llm: LLM, options: CareCallOptions) -> PairClassifier:
    return pair_classifier(options.classifier) if options.classifier else LLMClassifier(llm)


def _secom(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    options = read(SeComOptions, values)
    counted: Counter[str] = Counter()
    shared = {
        "llm": parts.llm,
        "retriever": parts.new_retriever(),
        "segmenter": parts.around(_segmenter(parts.llm, options, counted)),
        "compressor": parts.around(compressor(options.compressor)) if options.compress == "llmlingua" else None,
        "bank": bank,
        "fallbacks": counted,
        **options.model_dump(include={"k", "tokens", "rate"}),
    }
    if options.incremental:
        return IncrementalSeCom(continuation=Continuation(parts.llm, fallbacks=counted), **shared)
    return SeCom(kind=options.granularity, **shared)


def _creem(parts: Parts, values: Values, bank: Bank | None) -> Memory:
    options = read(CreemOptions, values)
    return Creem(
        llm=parts.llm,
        retriever=parts.new_retriever(),
        new_index=parts.new_index or parts.new_retriever,
        summarize=Summarizer(parts.llm, prompt="creem/first", limit=options.first, longest=options.longest),
        bank=bank,
        roles=("user", "assistant") if options.speakers == "both" else ("user",),
        **options.model_dump(exclude={"speakers"}),
    )


def _segmenter(llm: LLM, options: SeComOptions, counted: Counter[str]) -> Segmenter:
    if options.granularity != "segment":
        if options.incremental:
            raise BadSettings(f"option 'incremental' needs segments, not granularity {options.granularity!r}; drop one")
        return EvenSegmenter(1) if options.granularity == "turn" else WholeSegmenter()
    if options.segmenter != "llm":
        return trained_segmenter(options.segmenter)
    rubric = Rubric.load(Path(options.rubric)) if options.rubric else None
    return LLMSegmenter(llm, rubric=rubric, chunk=options.chunk, fallbacks=counted)


def _gold(path: str | None) -> dict[str, list[str]]:
    """The file of gold memories: JSON, sentences by session id. Raises BadInput."""
    if path is None:
        raise BadSettings("option 'gold' is not set; the gold variant needs a JSON file {session id: [sentences]}")
    return read_json(Path(path), TypeAdapter(dict[str, list[str]]), "give JSON, {session id: [sentences]}")


SYSTEMS: Mapping[str, System] = {
    "none": System(_none, "nothing", "never"),
    "full_history": System(_full_history, "all past sessions word for word", "never"),
    "utterance_retrieval": System(_utterance_retrieval, "each turn as it was said", "never"),
    "session_retrieval": System(_session_retrieval, "whole sessions as they were held", "never"),
    "all_memories": System(_all_memories, "sentences drawn from each session, all shown", "once a session's end"),
    "rebot": System(_rebot, "a summary of each session, all shown", "once a session's end"),
    "exchange_retrieval": System(_exchange_retrieval, "the exchanges as they were said", "never", before=1),
    "memory_retrieval": System(_memory_retrieval, "sentences drawn from each session", "once a session's end"),
    "rsum": System(_rsum, "one summary, rewritten after each session", "once a session's end"),
    "theanine": System(_theanine, "a graph of events, recalled as timelines", "each reply; a session's end, per pair"),
    "secom": System(_secom, "topical segments of dialogue, as they were said", "a session's end, once"),
    "creem": System(_creem, "insights, each turn blended and refined", "each reply, twice; a first session's end"),
    "carecall": System(_carecall, "sentences kept up to date by operations", "a session's end, once and per pair"),
    "summem": System(_summem, "each turn, summarised anew for each request", "each reply"),
    "memochat": System(_memochat, "a memo of topics with their dialogue", "each reply; a session's end"),
    "memorybank": System(_memorybank, "days and a portrait; what is not recalled fades", "a session's end"),
    "comedy": System(_comedy, "portrait, relationship and events, compressed", "a session's end"),
    "conditionmem": System(
        _conditionmem, "a summary and the knowledge of each exchange", "each reply; a session's end, per exchange"
    ),
}
