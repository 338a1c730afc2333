"""Training a retriever: an encoder learns to put a question nearer to what answers it than to what does not.

Keep Me Updated, appendix B.3: triplet loss over cosine with margin 0.2, 20 epochs with early stopping, learning rate
3e-5. Differs from the paper: question and memory go through one encoder (the paper trains one for each), pooled as the
encoder was made (the paper takes [CLS]), and wrong texts also come from BM25.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.run_folder import About, save
from finetune.trainers.training import Plan, Trained, arguments, check_checkpoints, need, quietly, run
from finetune.triplets import LICENCES, Material, Mining, Triplet, check, divided, triplets
from localmem.errors import BadInput
from localmem.evaluation.evidence_retrieval import Measuring, Result, Run, joined, measure
from localmem.llm.device import resolve_device
from localmem.reporting.bootstrap import Estimate, difference
from localmem.retrieval.base import Side
from localmem.retrieval.dense import DenseRetriever

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

MARGIN = 0.2  # Keep Me Updated, appendix B.3
MEASURES = ("recall@1", "recall@5", "recall@10", "mrr")
BEST = "mrr"

_AT_ONCE = 32  # texts that are encoded at once when measuring


@dataclass(frozen=True, slots=True)
class Job:
    """What to train from what: the half `choose` of each material is learned from, the half `report` measured.

    `window` narrows, in tokens, what is read of a text while training. `limit` takes the first so many triplets of a
    shuffle.
    """

    base: Path
    materials: Sequence[Material]
    files: Sequence[Path]
    out: Path
    plan: Plan
    mining: Mining = field(default_factory=Mining)
    margin: float = MARGIN
    window: int | None = None
    limit: int | None = None
    command: str = "localmem finetune retriever"

    @property
    def licence(self) -> str:
        """What may be done with the weights, as their card says it."""
        known = [LICENCES[one.data.name] for one in self.materials if one.data.name in LICENCES]
        named = f" ({', '.join(known)})" if known else ""
        bound = "; not for commercial use, and not to be shipped" if "NC" in named else ""
        return f"that of the base model and of the training data{named}{bound}"


@dataclass(frozen=True, slots=True)
class Compared:
    """One data set's measures before and after, over the same questions; `gained` with its 95% interval."""

    data: str
    questions: int
    before: dict[str, float]
    after: dict[str, float]
    gained: dict[str, Estimate]


def train(job: Job, *, resume: bool = False, note: Callable[[str], None] = print) -> tuple[Trained, list[Compared]]:
    """Trains, measures the other half before and after, writes the run's folder. Raises BadInput before a step."""
    from transformers import set_seed

    check_checkpoints(job.out, resume=resume)
    reported = _asking(material.of("report") for material in job.materials)
    learned, checked = zip(*(divided(material.of("choose")) for material in job.materials), strict=True)
    check(learned, reported)
    examples = _examples(job, learned)
    set_seed(job.plan.seed)
    model = _fresh(job)
    note(
        f"{len(examples)} triplets to learn from; {sum(map(Material.questions, checked))} questions to stop early by, "
        f"{sum(map(Material.questions, reported))} of other conversations to measure"
    )
    before = _results(model, reported, "before")
    trained = _trained(model, job, examples, _asking(checked))
    after = _results(model, reported, "after")
    table = [_compared(*pair) for pair in zip(reported, before, after, strict=True)]
    more = {"triplets": len(examples), "report": [asdict(row) for row in table]}
    save(job.out, model, model.tokenizer, _about(job), job.plan, trained, more)
    return trained, table


def table(rows: Sequence[Compared]) -> str:
    """Recall before and after, and what was gained with its 95% interval, for a person at a terminal."""
    from tabulate import tabulate

    lines: list[list[object]] = []
    for row in rows:
        lines += [
            [row.data, row.questions, "before", *(f"{row.before[name]:.3f}" for name in MEASURES)],
            [row.data, row.questions, "after", *(f"{row.after[name]:.3f}" for name in MEASURES)],
            [row.data, row.questions, "gained", *map(_signed, row.gained.values())],
        ]
    return tabulate(lines, ["report half", "questions", "", *MEASURES], disable_numparse=True)


def _asking(materials: Iterable[Material]) -> list[Material]:
    """Those with a question to measure by."""
    return [material for material in materials if material.questions()]


def _signed(gained: Estimate) -> str:
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*gained)


def _examples(job: Job, learned: Sequence[Material]) -> list[Triplet]:
    import random

    found = [one for material in learned for one in triplets(material, job.mining, job.plan.seed)]
    if not found:
        raise BadInput("no question has both a text that answers it and one that does not; give more sessions")
    if job.limit is not None:
        random.Random(job.plan.seed).shuffle(found)  # noqa: S311  # no secret
    return found[: job.limit]


def _fresh(job: Job) -> "SentenceTransformer":
    """The encoder to start from; a plain transformers folder is mean-pooled, as everywhere."""
    need("sentence_transformers", "datasets")
    import torch
    from sentence_transformers import SentenceTransformer

    if not any((job.base / name).is_file() for name in ("modules.json", "config.json")):
        raise BadInput(f"{job.base} is no encoder to start from: it holds neither modules.json nor config.json")
    try:
        with quietly():
            return SentenceTransformer(
                str(job.base),
                device=resolve_device("auto"),
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": torch.float32},
            )
    except (OSError, ValueError) as error:
        raise BadInput(f"{job.base} is no encoder to start from: {' '.join(str(error).split())[:200]}") from error


def _trained(
    model: "SentenceTransformer", job: Job, examples: Sequence[Triplet], checked: Sequence[Material]
) -> Trained:
    """Runs the training; the window is narrow meanwhile."""
    whole = model.max_seq_length
    if job.window is not None:
        model.max_seq_length = min(job.window, whole or job.window)
    trained = run(_trainer(model, job, examples, checked), job.out)
    model.max_seq_length = whole
    return trained


def _trainer(
    model: "SentenceTransformer", job: Job, examples: Sequence[Triplet], checked: Sequence[Material]
) -> "SentenceTransformerTrainer":
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
    from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric, TripletLoss
    from transformers import EarlyStoppingCallback

    class Held(SentenceEvaluator):
        """The measures of the questions that are kept back, over all of them."""

        def __call__(self, model: "SentenceTransformer", *_: object, **__: object) -> dict[str, float]:
            return _measures(joined(_results(model, checked, "kept back")))

    class Plain(SentenceTransformerTrainer):
        """Leaves the library's own card out; ours is another."""

        def add_model_card_callback(self, default_args_dict: dict[str, object]) -> None:
            pass

    return Plain(
        model=model,
        args=SentenceTransformerTrainingArguments(**arguments(job.plan, BEST, job.out)),
        train_dataset=Dataset.from_dict(
            {
                "anchor": [one.query for one in examples],
                "positive": [one.positive for one in examples],
                "negative": [one.negative for one in examples],
            }
        ),
        loss=TripletLoss(model, distance_metric=TripletDistanceMetric.COSINE, triplet_margin=job.margin),
        evaluator=Held(),
        callbacks=[EarlyStoppingCallback(job.plan.patience)],
    )


class _Live:
    """The model in training, as an Encoder."""

    identity = "in training"

    def __init__(self, model: "SentenceTransformer") -> None:
        self._model = model

    @property
    def dimension(self) -> int:
        return int(self._model.get_embedding_dimension() or 0)

    def encode(self, texts: Sequence[str], side: Side) -> "NDArray[np.float32]":
        rows: NDArray[np.float32] = self._model.encode(
            list(texts), batch_size=_AT_ONCE, normalize_embeddings=True, show_progress_bar=False
        )
        return rows


def _results(model: "SentenceTransformer", materials: Sequence[Material], name: str) -> list[Result]:
    """For each material the result of searching with the model as it is now."""
    how = Measuring("turns", "question", 10, lambda texts: [len(text.split()) for text in texts])
    encoder = _Live(model)
    return [
        joined(measure(Run(name, material.units, lambda: DenseRetriever(encoder)), material.data, how))
        for material in materials
    ]


def _measures(result: Result) -> dict[str, float]:
    return {name: sum(_values(result, name)) / max(1, len(result.rows)) for name in MEASURES}


def _values(result: Result, name: str) -> list[float]:
    return [row.measures[name] for row in result.rows]


def _compared(material: Material, before: Result, after: Result) -> Compared:
    return Compared(
        material.data.name,
        len(after.rows),
        _measures(before),
        _measures(after),
        {name: difference(_values(after, name), _values(before, name)) for name in MEASURES},
    )


def _about(job: Job) -> About:
    return About(
        title="Retriever",
        what=(
            "An encoder for memories: a question is near to what answers it. Used with the setting "
            "`retrieval.encoder`, by the name it was registered under. `run.json` holds, under `report`, its recall "
            "before and after on the conversations that were kept out."
        ),
        command=job.command,
        base=job.base.name,
        data=job.files,
        licence=job.licence,
        settings={
            **asdict(job.mining),
            "margin": job.margin,
            "window": job.window,
            "limit": job.limit,
            "loss": "triplet, cosine",
        },
    )
