"""Training a retriever: an encoder learns to place a question closer to its answer than to other texts.

Keep Me Updated, appendix B.3: triplet loss over cosine with margin 0.2, 20 epochs with early stopping, learning rate
3e-5, an encoder for the dialogue and one for memory sentences, pooled at [CLS]; the recipe retriever-carecall.yaml has
all of it. Differs from the paper by default: question and memory share one encoder, pooled as it was made, and wrong
texts, which come from other sessions, also come from BM25. The data are in `retriever_corpora`.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from finetune.run_folder import Card, save_run
from finetune.trainers import training
from finetune.trainers.retriever_corpora import (
    LICENCES,
    Corpus,
    Triplet,
    hold_out_questions,
    mine_triplets,
    read_corpus,
)
from finetune.trainers.training import TrainingJob, TrainingRecipe, TrainingResult
from localmem.errors import BadInput
from localmem.evaluation.evidence_retrieval import (
    MeasureOptions,
    RetrievalMethod,
    RetrievalResult,
    measure_retrieval,
    merge_results,
)
from localmem.llm.device import quiet_loading, resolve_device
from localmem.reporting.intervals import Estimate, difference
from localmem.retrieval.base import Side
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.encoder import QUERY_FOLDER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer


MEASURES = ("recall@1", "recall@5", "recall@10", "mrr")
BEST = "mrr"

_BATCH = 32  # texts that are encoded together when measuring
_ROUTES = {"anchor": "query", "positive": "document", "negative": "document"}  # the encoder of each column


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
    encoders: Literal["one", "two"] = "one"
    """One encoder for both sides, or one for each."""
    pooling: Literal["own", "cls"] = "own"
    """How the tokens' vectors become one: as the encoder was made, or the first token's."""
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
    job = replace(job, data=tuple(path for _, path in sources))
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
    model = _load_model(base, recipe)
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
        data=job.data,
        settings={"loss": "triplet, cosine"},
    )
    licensed = job.with_recipe(training.update_recipe(recipe, licence=describe_licence(recipe, corpora)))
    results = {"triplets": len(examples), "report": [asdict(row) for row in comparisons]}
    passages = _towers(model).get("document", model)
    if passages is not model:
        with quiet_loading():
            _towers(model)["query"].save_pretrained(str(job.out / QUERY_FOLDER))
    save_run(licensed, passages, passages.tokenizer, card, result, results, "encoder")
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
    return tabulate(lines, ["test data", "questions", "training", *MEASURES], disable_numparse=True)


def _sample_triplets(recipe: RetrieverRecipe, corpora: Sequence[Corpus]) -> list[Triplet]:
    options = recipe.model_dump(include={"positives", "hard", "far", "language", "seed"})
    triplets = [triplet for corpus in corpora for triplet in mine_triplets(corpus, **options)]
    if not triplets:
        raise BadInput("no question has both a right and a wrong text; add sessions")
    if recipe.limit is not None:
        random.Random(recipe.seed).shuffle(triplets)  # noqa: S311  # not used for security
    return triplets[: recipe.limit]


def _load_model(base: Path, recipe: RetrieverRecipe) -> "SentenceTransformer":
    """The encoder to start from, or two of them that a query and a passage are routed to."""
    if recipe.encoders == "one":
        return _load_base(base, recipe.pooling)
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    query, document = (list(_load_base(base, recipe.pooling).children()) for _ in range(2))
    router = Router.for_query_document(query_modules=query, document_modules=document)
    return SentenceTransformer(modules=[router], device=resolve_device("auto"))


def _towers(model: "SentenceTransformer") -> "dict[str, SentenceTransformer]":
    """The encoders of a model of two, by side; none for a model of one."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    router = model[0]
    if not isinstance(router, Router):
        return {}
    return {side: SentenceTransformer(modules=list(own), device="cpu") for side, own in router.sub_modules.items()}


def _load_base(base: Path, pooling: Literal["own", "cls"]) -> "SentenceTransformer":
    """The encoder to start from; a plain transformers folder is mean-pooled, as everywhere in localmem."""
    training.require_modules("sentence_transformers", "datasets")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    try:
        if not any((base / name).is_file() for name in ("modules.json", "config.json")):
            raise FileNotFoundError("it holds neither modules.json nor config.json")
        with quiet_loading():
            options = {"local_files_only": True, "trust_remote_code": False, "model_kwargs": {"dtype": torch.float32}}
            model = SentenceTransformer(str(base), device=resolve_device("auto"), **options)
    except (OSError, ValueError) as error:
        training.reject_base(base, "an encoder", error)
    if pooling == "own":
        return model
    first = Pooling(int(model.get_embedding_dimension() or 0), "cls")
    return SentenceTransformer(modules=[model[0], first], device=resolve_device("auto"))


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
        args=SentenceTransformerTrainingArguments(
            **training.trainer_arguments(job, BEST), router_mapping=_ROUTES if job.recipe.encoders == "two" else None
        ),
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
        encode = self._model.encode_query if side == "query" else self._model.encode_document
        vectors: NDArray[np.float32] = encode(
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
