"""Training a reranker: the upper layers of an encoder learn to read a question and an exchange together.

A listwise loss lifts each right exchange above the question's wrong ones; a pointwise loss makes the score a
probability, so that a floor can be set. An outdated exchange ranks below the current one and above the rest. Afterwards
scale and shift of the score are fitted on the held-out people (Platt, 1999). Does not depend on how lessons are made.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from finetune.reranker_lessons import (
    OUTDATED,
    RIGHT,
    WRONG,
    Lesson,
    hold_out_people,
    read_lessons,
    replacement_lessons,
    sample_texts,
)
from finetune.run_folder import Card, save_run
from finetune.trainers import training
from finetune.trainers.training import TrainingJob, TrainingRecipe, TrainingResult
from localmem.errors import BadInput
from localmem.retrieval.base import Retriever
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.encoder import SentenceEncoder
from localmem.retrieval.hybrid import HybridRetriever
from localmem.retrieval.numpy_pairs import PairShape
from localmem.retrieval.pair_network import PairNetwork, float_linear, new_head
from localmem.retrieval.split_reranker import (
    PairTokenizer,
    RerankerSettings,
    base_weights,
    read_reranker,
    save_reranker,
)
from localmem.weights.folder import checksum

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import DataCollatorWithPadding, PreTrainedModel

BEST = "recall@5"
NO_LABEL = -100  # the label of a place without a text, as transformers pads labels


class LessonRecipe(TrainingRecipe):
    """What the recipes of both stages of a reranker have."""

    data: tuple[Path, ...] = ()
    """Folders of scenarios or of contrasts, and files of LongMemEval's evidence (.jsonl)."""
    hold_out: tuple[str, ...] = ()
    """Authors or people that are held out; default: every tenth person."""
    sentences: bool = False
    """Learn from sentences, for a reader, instead of whole exchanges."""
    depth: int = Field(30, ge=5)
    """Exchanges that the search finds for a question: what is chosen from, and what is reranked when measuring."""
    pointwise_weight: float = Field(0.3, ge=0)
    """Weight of the pointwise loss."""
    absent_rival: bool = False
    """Let a further wrong text at logit 0 stand for "not there": a reader's sentence must beat it to be quoted."""


class RerankerRecipe(LessonRecipe):
    """Recipe of `localmem finetune reranker`."""

    start: Path | None = None
    """Reranker whose upper layers to begin with, in place of those of --base."""
    average: Path | None = None
    """Reranker with which to average: the finished weights are the mean of the trained ones and of its own."""
    split_layers: int = Field(3, ge=1)
    """Lower layers that read each text by itself; they stay as they are."""
    negatives: int = Field(7, ge=2)
    """Wrong exchanges of a question."""
    query_window: int = Field(32, ge=8)
    """Tokens of a question that are read."""
    text_window: int = Field(96, ge=8)
    """Tokens of an exchange that are read."""
    dropped_tokens: float = Field(0.1, ge=0, lt=1)
    """Share of the tokens that are left out while training, at random."""
    replacements: bool = False
    """Learn as well which sentences one replaces, so that a reader can leave those out. For `sentences`."""
    epochs: float = Field(2.0, gt=0)
    """Passes over the training data, at most."""
    batch_size: int = Field(4, ge=1)
    """Questions in a batch."""
    learning_rate: float = Field(1e-4, gt=0)
    """Peak learning rate."""


def train(job: TrainingJob[RerankerRecipe]) -> TrainingResult:
    """Train on the recipe's data, measure on the held-out people, and write the run's folder. Raises BadInput."""
    from transformers import set_seed

    recipe = job.recipe
    training.check_checkpoints(job)
    base = training.base_folder(recipe.base)
    settings = RerankerSettings(
        recipe.base,
        checksum(base / "model.safetensors"),
        recipe.split_layers,
        recipe.query_window,
        recipe.text_window,
    )
    shape, weights = base_weights(base, recipe.split_layers)
    if recipe.start:
        weights |= read_reranker(recipe.start, settings)
    average = read_reranker(recipe.average, settings) if recipe.average else {}
    learned, checked = divide_lessons(recipe, base)
    learned += replacement_lessons(learned, recipe.seed) if recipe.replacements else []
    job.notify(f"{len(learned)} training questions, {len(checked)} validation questions from other people")
    set_seed(recipe.seed)
    learner = PairLearner(shape, weights, recipe, average)
    tokenizer = PairTokenizer(base, settings)
    examples = [_encode(tokenizer, sample_texts(lesson, recipe.negatives, recipe.seed)) for lesson in learned]
    collate = cast("DataCollatorWithPadding", collate_lessons)
    checks = [_encode(tokenizer, lesson) for lesson in checked]
    measures = Measures()
    result = training.fit(job, cast("PreTrainedModel", learner), examples, checks, collate, measures, BEST)
    learner.settings = {**asdict(settings), **measures.calibrate()}
    results = {"found": measures(*_as_found(checked)), "learned": len(learned), "checked": len(checked)}
    save_run(job, cast("PreTrainedModel", learner), None, _card(recipe, base), result, results, "reranker")
    return result


def divide_lessons(recipe: LessonRecipe, base: Path) -> tuple[list[Lesson], list[Lesson]]:
    """The recipe's lessons to learn from and to measure on; their texts are found with the encoder in a folder.

    Raises BadInput.
    """
    if not recipe.data:
        raise BadInput("there is nothing to learn from; give --lessons FOLDER")
    lessons = [
        lesson
        for path in recipe.data
        for lesson in read_lessons(path, lambda: _new_index(base), recipe.depth, sentences=recipe.sentences)
    ]
    return hold_out_people(lessons, recipe.hold_out)


def _new_index(base: Path) -> Retriever:
    encoder = SentenceEncoder(base, name=base.name)
    return HybridRetriever([DenseRetriever(encoder), BM25Retriever(language="english")])


def list_files(data: Iterable[Path]) -> list[Path]:
    """The files of lessons, those of folders in their order."""
    return [file for path in data for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]


def _card(recipe: RerankerRecipe, base: Path) -> Card:
    return Card(
        title="Reranker",
        what="Scores how likely an exchange is to answer a question. Used as the option `reranker` of the system "
        "`evidence` or as the setting `retrieval.rerank`. `run.json` holds, under `found`, what the search alone gives "
        "for the held-out questions.",
        base=base.name,
        data=list_files(recipe.data),
        settings={"data": [str(path) for path in recipe.data]},
        measured_on="the held-out people",
    )


def _encode(tokenizer: PairTokenizer, lesson: Lesson) -> dict[str, object]:
    return {
        "query": tokenizer.queries([lesson.query])[0],
        "texts": tokenizer.texts(lesson.texts),
        "labels": list(lesson.labels),
    }


def collate_lessons(examples: Sequence[Mapping[str, object]]) -> dict[str, Tensor]:
    """(n, length) queries, (n, texts, length) texts and (n, texts) labels; 0 pads tokens, -100 labels."""
    queries = [torch.tensor(example["query"]) for example in examples]
    texts = [[torch.tensor(text) for text in cast("list[list[int]]", example["texts"])] for example in examples]
    labels = [torch.tensor(example["labels"]) for example in examples]
    count, width = max(map(len, texts)), max(len(text) for row in texts for text in row)
    tokens = torch.zeros(len(examples), count, width, dtype=torch.long)
    for number, row in enumerate(texts):
        for place, text in enumerate(row):
            tokens[number, place, : len(text)] = text
    pad = torch.nn.utils.rnn.pad_sequence
    return {
        "query": pad(queries, batch_first=True),
        "texts": tokens,
        "labels": pad(labels, batch_first=True, padding_value=NO_LABEL),
    }


class PairLearner(torch.nn.Module):
    """A network in training: its upper layers and its head learn. `settings` go into the finished folder.

    It is measured and saved as the mean of what it learned and of the weights of `average`, where there are any.
    Computes where its weights are. What the lower layers read, and which tokens are left out, is decided on the CPU.
    """

    def __init__(
        self,
        shape: PairShape,
        weights: Mapping[str, Tensor],
        recipe: RerankerRecipe,
        average: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        weights = {**new_head(len(weights["embeddings.LayerNorm.weight"])), **weights}
        self._names = [name for name in weights if shape.reads_pairs(name)]
        self._fixed = [name for name in weights if name not in self._names]
        self._shape = shape
        self._recipe = recipe
        self.learned = torch.nn.ParameterDict({_key(name): torch.nn.Parameter(weights[name]) for name in self._names})
        for name in self._fixed:  # they move with the module, but no checkpoint holds them
            self.register_buffer(_key(name), weights[name], persistent=False)
        self._average = average or {}
        self.settings: Mapping[str, object] = {}

    def forward(self, query: Tensor, texts: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The mean loss, and (n, texts) logits, -100 where there is no text."""
        current = {name: self.get_buffer(_key(name)) for name in self._fixed}
        current |= {name: self.learned[_key(name)] for name in self._names} if self.training else self.mean_weights()
        network = PairNetwork(self._shape, current, float_linear(current))
        query, texts, present = query.cpu(), texts.cpu(), labels.cpu() != NO_LABEL
        owners = present.nonzero()[:, 0].tolist()
        with torch.no_grad():
            queries = network.read(_tokens(query))
            rows = network.read(_tokens(texts[present]))
        states = self._drop([part for owner, row in zip(owners, rows, strict=True) for part in (queries[owner], row)])
        scores = network.compare(list(zip(states[::2], states[1::2], strict=True))).float()
        labels, mask = labels.to(scores.device), present.to(scores.device)
        logits = scores.new_full(labels.shape, float(NO_LABEL)).masked_scatter(mask, scores)
        recipe = self._recipe
        loss = lesson_loss(logits, labels, recipe.pointwise_weight, absent_rival=recipe.absent_rival)
        return {"loss": loss, "logits": logits}

    def mean_weights(self) -> dict[str, Tensor]:
        """The weights as they are saved."""
        learned = {name: self.learned[_key(name)].detach() for name in self._names}
        return learned | {
            name: (learned[name] + weight.to(learned[name])) / 2 for name, weight in self._average.items()
        }

    def _drop(self, states: list[Tensor]) -> list[Tensor]:
        """The states without a share of their tokens, but with the first."""
        if not self.training or not self._recipe.dropped_tokens:
            return states
        masks = [torch.rand(len(each)) >= self._recipe.dropped_tokens for each in states]
        for mask in masks:
            mask[0] = True
        places = torch.cat(masks).nonzero()[:, 0].to(states[0].device)
        return list(torch.cat(states)[places].split([int(mask.sum()) for mask in masks]))

    def save_pretrained(self, folder: str) -> None:
        """Write the finished reranker."""
        save_reranker(Path(folder), self.settings, {name: weight.cpu() for name, weight in self.mean_weights().items()})


def _tokens(rows: Tensor) -> list[list[int]]:
    """The tokens of each row, without the padding."""
    return [[token for token in row if token] for row in rows.tolist()]


def _key(name: str) -> str:
    return name.replace(".", "/")


def lesson_loss(logits: Tensor, labels: Tensor, pointwise_weight: float, *, absent_rival: bool = False) -> Tensor:
    """The mean over the questions of the listwise and the weighted pointwise loss, of (n, texts) logits and labels."""
    losses = _listwise(logits, labels, absent_rival=absent_rival) + pointwise_weight * _pointwise(logits, labels)
    return losses.mean()


def _listwise(logits: Tensor, labels: Tensor, *, absent_rival: bool) -> Tensor:
    """Each right exchange against all wrong ones; half as much for an outdated one, which the right ones must beat."""
    right, outdated = labels == RIGHT, labels == OUTDATED
    wrong = logits.masked_fill(labels != WRONG, -torch.inf)
    rivals = torch.cat([wrong, torch.zeros_like(wrong[:, :1])], 1) if absent_rival else wrong
    lead = rivals.logsumexp(1, keepdim=True)
    newest = logits.masked_fill(~outdated, -torch.inf).amax(1, keepdim=True)
    loss = _mean_of(functional.softplus(lead - logits), right)
    if absent_rival:  # which is right where nothing else is
        loss = loss + (~right.any(1) * lead[:, 0])
    loss = loss + 0.5 * _mean_of(functional.softplus(lead - logits), outdated)
    return loss + 0.2 * _mean_of(functional.softplus(newest - logits), right)


def _pointwise(logits: Tensor, labels: Tensor) -> Tensor:
    right, outdated = labels == RIGHT, labels == OUTDATED
    targets = right.float() + 0.6 * outdated.float()
    weights = 1.0 + 2.0 * right.float() - 0.5 * outdated.float()
    losses = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return _mean_of(losses * weights, labels != NO_LABEL)


def _mean_of(values: Tensor, mask: Tensor) -> Tensor:
    """(n,) means over the places of the mask, 0 where a row has none."""
    return values.masked_fill(~mask, 0.0).sum(1) / mask.sum(1).clamp(min=1)


class Measures:
    """Recall at 5 and 10 and the mean reciprocal rank. `logits` and `labels` are those of the last texts measured."""

    def __call__(self, logits: "NDArray[np.float32]", labels: "NDArray[np.int64]") -> dict[str, float]:
        rows = []
        for scores, kinds in zip(logits, labels, strict=True):
            order = np.argsort(-scores[kinds != NO_LABEL], kind="stable")
            right = kinds[kinds != NO_LABEL][order] == RIGHT
            recalls = [right[:k].sum() / right.sum() for k in (5, 10)]
            rows.append((*recalls, 1 / (1 + right.argmax())))
        self.logits, self.labels = logits[labels != NO_LABEL], labels[labels != NO_LABEL]
        return dict(zip((BEST, "recall@10", "mrr"), np.mean(rows, axis=0).tolist(), strict=True))

    def calibrate(self) -> dict[str, float]:
        """The `scale` and `shift` that make the last logits probabilities."""
        scale, shift = fit_probability([self.logits, np.ones_like(self.logits)], self.labels)
        return {"scale": scale, "shift": shift}


def fit_probability(scores: "Sequence[NDArray[np.floating]]", labels: "NDArray[np.int64]") -> list[float]:
    """The weights of these scores of texts whose sum is the log-odds that a text is right (Platt, 1999)."""
    table, targets = torch.tensor(np.stack(scores, axis=1)).float(), torch.tensor(labels == RIGHT).float()
    weights = torch.eye(len(scores))[0].requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=50)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(table @ weights, targets)
        loss.backward()
        return loss

    optimizer.step(closure)
    return [float(weight) for weight in weights.detach()]


def _as_found(lessons: Sequence[Lesson]) -> "tuple[NDArray[np.float32], NDArray[np.int64]]":
    """The order of the search as logits, with the labels."""
    width = max(len(lesson.labels) for lesson in lessons)
    labels = np.array([[*lesson.labels, *[NO_LABEL] * (width - len(lesson.labels))] for lesson in lessons])
    return np.tile(-np.arange(width, dtype=np.float32), (len(lessons), 1)), labels
