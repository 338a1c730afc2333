"""Training a retriever: an encoder learns to place a question closer to its answer than to other texts.

Keep Me Updated, appendix B.3: triplet loss over cosine with margin 0.2, 20 epochs with early stopping, learning rate
3e-5. Differs from the paper: question and memory share one encoder (the paper trains one for each), pooled as the
encoder was made (the paper takes [CLS]), and wrong texts, which come from other sessions, also come from BM25. The data
are data sets whose questions name their evidence, and our own JSONL.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from finetune.run_folder import Card, save_run
from finetune.trainers import training
from finetune.trainers.training import TrainingJob, TrainingRecipe, TrainingResult
from localmem.errors import BadInput
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.datasets.readers import UNDATED, Record, file_sha256, read_records
from localmem.evaluation.episodes import Dataset, Episode, Half, Probe, half_of
from localmem.evaluation.evidence_retrieval import (
    Builder,
    KeyForm,
    MeasureOptions,
    RetrievalMethod,
    RetrievalResult,
    apply_key_form,
    build_exchanges,
    build_turns,
    measure_retrieval,
    merge_results,
    probes_with_evidence,
)
from localmem.llm.device import resolve_device
from localmem.reporting.intervals import Estimate, difference
from localmem.retrieval.base import Side
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
from localmem.types import Session, Turn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer


PAIRS = "pairs"  # the name of our own JSONL: query, positive, group, and optionally negatives
LICENCES: Mapping[str, str] = {
    "locomo": "LoCoMo, CC BY-NC 4.0",
    "longmemeval": "LongMemEval, MIT",
    "mtbenchplus": "MT-Bench+, MIT",
}
SOURCES = (*LICENCES, PAIRS)

_VALIDATION = 10  # one question in this many is held out


class Triplet(NamedTuple):
    """A question, a text that should be close to it, and one that should be farther away."""

    query: str
    positive: str
    negative: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """A data set, how its units are built, and the wrong texts that the file itself lists for a probe."""

    dataset: Dataset
    units: Builder
    negatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def select(self, half: Half) -> "Corpus":
        """The episodes of one half."""
        return replace(self, dataset=self.dataset.select(half))

    def count_questions(self) -> int:
        """How many questions have evidence."""
        return sum(len(probes_with_evidence(episode, "turns")) for episode in self.dataset.episodes)


class _Pair(Record):
    query: str = Field(min_length=1)
    positive: str = Field(min_length=1)
    negatives: tuple[str, ...] = ()
    group: str = Field(min_length=1)


def read_corpus(name: str, path: Path, unit: Literal["turn", "exchange"]) -> Corpus:
    """A data set with its turns or exchanges as units, or our own pairs, whose units are texts. Raises BadInput."""
    if name == PAIRS:
        return _read_pairs(path)
    if name not in SOURCES:
        raise BadInput(f"a retriever cannot learn from the data set {name!r}; use one of {', '.join(SOURCES)}")
    # Speakers in the keys, as the memory systems index the units.
    build, form = build_turns if unit == "turn" else build_exchanges, KeyForm("speaker")
    return Corpus(read_dataset(name, path), lambda sessions: apply_key_form(build(sessions), sessions, form))


def hold_out_questions(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Hold out one question of ten for early stopping; it is searched for among the same units as the others."""
    ids = [probe.id for episode in corpus.dataset.episodes for probe in probes_with_evidence(episode, "turns")]
    held_out = set(ids[::-_VALIDATION] if len(ids) < _VALIDATION else ids[_VALIDATION - 1 :: _VALIDATION])
    learned = _filter_probes(corpus, lambda probe: probe.id not in held_out)
    return learned, _filter_probes(corpus, lambda probe: probe.id in held_out)


def mine_triplets(corpus: Corpus, *, positives: int, hard: int, far: int, language: str, seed: int) -> list[Triplet]:
    """The triplets of all questions with evidence, in order; reproducible by seed.

    For each question at most `positives` right texts, and as wrong ones those that the file lists, `hard` from BM25 in
    `language`, and `far` from sessions without evidence.
    """
    triplets: list[Triplet] = []
    for episode in corpus.dataset.episodes:
        units = corpus.units(episode.sessions)
        by_id = {unit.id: unit for unit in units}
        probes = probes_with_evidence(episode, "turns")
        index = BM25Retriever(language=language)
        index.add(units)
        most = max((len(probe.evidence) for probe in probes), default=0)
        results = index.search([probe.question for probe in probes], hard + most)
        for probe, matches in zip(probes, results, strict=True):
            right = [unit for unit in units if not set(unit.sources).isdisjoint(probe.evidence)]
            near = [unit for match in matches if (unit := by_id[match.id]) not in right][:hard]
            elsewhere = [unit for unit in units if unit.session not in probe.sessions]
            rng = random.Random(f"{seed}/{probe.id}")  # noqa: S311  # not used for security
            wrong = [*near, *rng.sample(elsewhere, min(far, len(elsewhere)))]
            texts = dict.fromkeys([*corpus.negatives.get(probe.id, ()), *(unit.key for unit in wrong)])
            negatives = [text for text in texts if text not in {unit.key for unit in right}]
            triplets += [Triplet(probe.question, unit.key, text) for unit in right[:positives] for text in negatives]
    return triplets


def _filter_probes(corpus: Corpus, predicate: Callable[[Probe], bool]) -> Corpus:
    """Some of the questions; episodes without any are dropped."""
    episodes = (
        replace(episode, probes=tuple(probe for probe in probes_with_evidence(episode, "turns") if predicate(probe)))
        for episode in corpus.dataset.episodes
    )
    remaining = tuple(episode for episode in episodes if episode.probes)
    return replace(corpus, dataset=replace(corpus.dataset, episodes=remaining))


def _read_pairs(path: Path) -> Corpus:
    """Each group becomes an episode, each text a session."""
    groups: dict[str, list[_Pair]] = {}
    for _, pair in read_records(path, _Pair):
        groups.setdefault(pair.group, []).append(pair)
    negatives: dict[str, tuple[str, ...]] = {}
    episodes = tuple(_episode(name, pairs, negatives) for name, pairs in groups.items())
    dataset = Dataset(PAIRS, file_sha256(path), episodes)
    return Corpus(dataset, lambda sessions: apply_key_form(build_turns(sessions), sessions, KeyForm()), negatives)


def _episode(group: str, pairs: Sequence[_Pair], negatives: dict[str, tuple[str, ...]]) -> Episode:
    texts = dict.fromkeys(text for pair in pairs for text in (pair.positive, *pair.negatives))
    ids = {text: f"{group}/{number}" for number, text in enumerate(texts)}
    sessions = tuple(
        Session(ids[text], (Turn(f"{ids[text]}.0", "user", "User", text, UNDATED + timedelta(seconds=number)),))
        for number, text in enumerate(texts)
    )
    probes: list[Probe] = []
    for number, query in enumerate(dict.fromkeys(pair.query for pair in pairs)):
        own = [pair for pair in pairs if pair.query == query]
        name = f"{group}/q{number}"
        negatives[name] = tuple(dict.fromkeys(text for pair in own for text in pair.negatives))
        positive_ids = tuple(dict.fromkeys(ids[pair.positive] for pair in own))
        evidence = tuple(f"{session}.0" for session in positive_ids)
        probes.append(Probe(name, query, "", PAIRS, None, evidence, positive_ids))
    return Episode(group, half_of(group), sessions, tuple(probes))


MEASURES = ("recall@1", "recall@5", "recall@10", "mrr")
BEST = "mrr"

_BATCH = 32  # texts that are encoded together when measuring


class RetrieverRecipe(TrainingRecipe):
    """Recipe of `localmem finetune retriever`."""

    unit: Literal["exchange", "turn"] = "exchange"
    """What is to be found in a data set of conversations."""
    positives: int = Field(4, ge=1)
    """Right texts for a question, at most."""
    hard: int = Field(2, ge=0)
    """Wrong texts from BM25 for a question."""
    far: int = Field(1, ge=0)
    """Wrong texts for a question from sessions without evidence."""
    language: str = "english"
    """BM25's stems and stop words (`none` to disable)."""
    margin: float = Field(0.2, gt=0)
    """Margin of the triplet loss."""
    window: int | None = Field(None, ge=8)
    """Tokens of a text that are read while training; default: the encoder's own window."""
    limit: int | None = Field(None, ge=1)
    """Use only N random triplets."""
    batch_size: int = Field(16, ge=1)
    """Examples in a batch."""
    learning_rate: float = Field(3e-5, gt=0)
    """Peak learning rate."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One data set's measures before and after training, on the same questions; `gain` with its 95% interval."""

    data: str
    questions: int
    before: dict[str, float]
    after: dict[str, float]
    gain: dict[str, Estimate]


def train(
    job: TrainingJob[RetrieverRecipe], sources: Sequence[tuple[str, Path]]
) -> tuple[TrainingResult, list[Comparison]]:
    """Train on the half `choose` of the data sets, measure the half `report` before and after, write the run's folder.

    `sources` are data sets by name and file. Raises BadInput before the first step.
    """
    from transformers import set_seed

    recipe = job.recipe
    training.check_checkpoints(job)
    corpora = [read_corpus(name, path, recipe.unit) for name, path in sources]
    reported = [half for corpus in corpora if (half := corpus.select("report")).count_questions()]
    learned, checked = zip(*(hold_out_questions(corpus.select("choose")) for corpus in corpora), strict=True)
    for name, part in (("choose", learned), ("report", reported)):
        if not sum(map(Corpus.count_questions, part)):
            raise BadInput(
                f"no question with evidence falls into the half {name!r}, which is decided by ids; add data of more "
                "conversations or groups"
            )
    examples = _sample_triplets(recipe, learned)
    set_seed(recipe.seed)
    base = training.base_folder(recipe.base)
    model = _load_base(base)
    job.notify(
        f"{len(examples)} training triplets, {sum(map(Corpus.count_questions, checked))} validation questions, "
        f"{sum(map(Corpus.count_questions, reported))} test questions from other conversations"
    )
    before = _evaluate(model, reported, "before")
    result = _train_model(model, job, examples, [corpus for corpus in checked if corpus.count_questions()])
    after = _evaluate(model, reported, "after")
    comparisons = [_compare(*row) for row in zip(reported, before, after, strict=True)]
    card = Card(
        title="Retriever",
        what="An encoder for memories: a question is close to what answers it. Used as the setting "
        "`retrieval.encoder`, by the name under which it is registered. `run.json` holds, under `report`, its recall "
        "before and after on the held-out conversations.",
        base=base.name,
        data=[path for _, path in sources],
        settings={"loss": "triplet, cosine"},
    )
    licensed = job.with_recipe(training.update_recipe(recipe, licence=describe_licence(recipe, corpora)))
    results = {"triplets": len(examples), "report": [asdict(row) for row in comparisons]}
    save_run(licensed, model, model.tokenizer, card, result, results, "encoder")
    return result, comparisons


def describe_licence(recipe: RetrieverRecipe, corpora: Sequence[Corpus]) -> str:
    """The recipe's licence, completed by those of the data sets it was trained on."""
    licences = [LICENCES[corpus.dataset.name] for corpus in corpora if corpus.dataset.name in LICENCES]
    names = f" ({', '.join(licences)})" if licences else ""
    restriction = "; not for commercial use, and not to be shipped" if "NC" in names else ""
    return f"{recipe.licence}{names}{restriction}"


def comparison_table(comparisons: Sequence[Comparison]) -> str:
    """Recall before and after and the gain with its 95% interval, as text for a terminal."""
    from tabulate import tabulate

    lines: list[list[object]] = []
    for row in comparisons:
        for name, values in (("before", row.before), ("after", row.after)):
            lines.append([row.data, row.questions, name, *(f"{values[measure]:.3f}" for measure in MEASURES)])
        gains = [gain.as_text("+") for gain in row.gain.values()]
        lines.append([row.data, row.questions, "gain", *gains])
    return tabulate(lines, ["report half", "questions", "", *MEASURES], disable_numparse=True)


def _sample_triplets(recipe: RetrieverRecipe, corpora: Sequence[Corpus]) -> list[Triplet]:
    options = recipe.model_dump(include={"positives", "hard", "far", "language", "seed"})
    triplets = [triplet for corpus in corpora for triplet in mine_triplets(corpus, **options)]
    if not triplets:
        raise BadInput("no question has both a right and a wrong text; add sessions")
    if recipe.limit is not None:
        random.Random(recipe.seed).shuffle(triplets)  # noqa: S311  # not used for security
    return triplets[: recipe.limit]


def _load_base(base: Path) -> "SentenceTransformer":
    """The encoder to start from; a plain transformers folder is mean-pooled, as everywhere in localmem."""
    training.require_modules("sentence_transformers", "datasets")
    import torch
    from sentence_transformers import SentenceTransformer

    try:
        if not any((base / name).is_file() for name in ("modules.json", "config.json")):
            raise FileNotFoundError("it holds neither modules.json nor config.json")
        with training.without_progress():
            options = {"local_files_only": True, "trust_remote_code": False, "model_kwargs": {"dtype": torch.float32}}
            return SentenceTransformer(str(base), device=resolve_device("auto"), **options)
    except (OSError, ValueError) as error:
        training.reject_base(base, "an encoder", error)


def _train_model(
    model: "SentenceTransformer",
    job: TrainingJob[RetrieverRecipe],
    examples: Sequence[Triplet],
    checked: Sequence[Corpus],
) -> TrainingResult:
    """Train with the recipe's window, then restore the model's own."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
    from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric, TripletLoss
    from transformers import EarlyStoppingCallback

    class ValidationMeasures(SentenceEvaluator):
        """The measures over all validation questions."""

        def __call__(self, model: "SentenceTransformer", *_: object, **__: object) -> dict[str, float]:
            return _mean_measures(merge_results(_evaluate(model, checked, "validation")))

    class WithoutLibraryCard(SentenceTransformerTrainer):
        """Writes no model card of the library's own."""

        def add_model_card_callback(self, default_args_dict: dict[str, object]) -> None:
            pass

    columns = dict(zip(("anchor", "positive", "negative"), zip(*examples, strict=True), strict=True))
    full, window = model.max_seq_length, job.recipe.window
    if window is not None:
        model.max_seq_length = min(window, full or window)
    trainer = WithoutLibraryCard(
        model=model,
        args=SentenceTransformerTrainingArguments(**training.trainer_arguments(job, BEST)),
        train_dataset=Dataset.from_dict(columns),
        loss=TripletLoss(model, distance_metric=TripletDistanceMetric.COSINE, triplet_margin=job.recipe.margin),
        evaluator=ValidationMeasures(),
        callbacks=[EarlyStoppingCallback(job.recipe.patience)],
    )
    result = training.run_trainer(trainer, job)
    model.max_seq_length = full
    return result


class _ModelInTraining:
    """The model in its current state, as an Encoder."""

    identity = "in training"

    def __init__(self, model: "SentenceTransformer") -> None:
        self._model = model

    @property
    def dimension(self) -> int:
        return int(self._model.get_embedding_dimension() or 0)

    def encode(self, texts: Sequence[str], side: Side) -> "NDArray[np.float32]":
        vectors: NDArray[np.float32] = self._model.encode(
            list(texts), batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False
        )
        return vectors


def _evaluate(model: "SentenceTransformer", corpora: Iterable[Corpus], name: str) -> list[RetrievalResult]:
    """For each corpus, the result of searching with the model in its current state."""
    how = MeasureOptions("turns", "question", 10, lambda texts: [len(text.split()) for text in texts])
    encoder = _ModelInTraining(model)
    return [
        merge_results(
            measure_retrieval(RetrievalMethod(name, corpus.units, lambda: DenseRetriever(encoder)), corpus.dataset, how)
        )
        for corpus in corpora
    ]


def _mean_measures(result: RetrievalResult) -> dict[str, float]:
    return {name: sum(_values(result, name)) / max(1, len(result.rows)) for name in MEASURES}


def _values(result: RetrievalResult, name: str) -> list[float]:
    return [row.measures[name] for row in result.rows]


def _compare(corpus: Corpus, before: RetrievalResult, after: RetrievalResult) -> Comparison:
    gain = {name: difference(_values(after, name), _values(before, name)) for name in MEASURES}
    return Comparison(corpus.dataset.name, len(after.rows), _mean_measures(before), _mean_measures(after), gain)
