"""Training the larger network of a TwoStageReranker: an adapter over an encoder that reads a question with a text.

It learns by the losses of a reranker, mostly from the texts that the first reranker finds likeliest, for it is asked of
those alone. Beside them it learns which words of a sentence answer, or that none do. How much its output counts beside
the first reranker's score is fitted on the held-out people (Platt, 1999). Does not depend on how lessons are made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from finetune.reranker_lessons import RIGHT, Lesson, sample_texts
from finetune.run_folder import Card, save_run
from finetune.trainers import training
from finetune.trainers.reranker import (
    BEST,
    NO_LABEL,
    LessonRecipe,
    Measures,
    divide_lessons,
    fit_probability,
    lesson_loss,
    list_files,
)
from finetune.trainers.training import TrainingJob, TrainingResult
from localmem.factory import reranker
from localmem.retrieval.base import Reranker
from localmem.retrieval.two_stage_reranker import (
    DOWN,
    HEAD,
    UP,
    WORDS,
    PairTokenizer,
    TwoStageSettings,
    load_body,
    log_odds,
    read_pairs,
    save_two_stage,
    score_states,
    share_tokens,
)
from localmem.weights import model_path
from localmem.weights.folder import checksum

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from peft import PeftModel
    from transformers import DataCollatorWithPadding, PreTrainedModel

_SEARCH_BASE = "minilm-l6-v2"  # whose search finds the texts of a question
_LAYERS = r".*encoder\.layer\..*(attn\.[qkvo]|query|key|value|dense)"  # that gain factors, in BERT and MPNet
_WRONG_WEIGHT = 0.1  # of a wrong text in the loss of words: there are many, and they are easy
_DOUBLE = 2.0  # the gain of a layer's product, as LoRA's alpha of twice the rank gives


class SecondStageRecipe(LessonRecipe):
    """Recipe of `localmem finetune second-stage`."""

    base: str = "mpnet-base-v2"
    """Encoder to start from, by name or folder."""
    depth: int = Field(10, ge=5)
    """Exchanges that the search finds for a question."""
    absent_rival: bool = True
    """Let a further wrong text at logit 0 stand for "not there": a text must beat it to be the answer."""
    first: str = "minilm-l6-v2-reader"
    """Reranker that scores all texts, by name or folder."""
    count: int = Field(8, ge=2)
    """Texts that are scored again."""
    rank: int = Field(16, ge=1)
    """Rank of the adapter."""
    words_weight: float = Field(0.3, ge=0)
    """Weight of the loss that teaches which words of a sentence answer."""
    negatives: int = Field(6, ge=2)
    """Wrong texts of a question."""
    window: int = Field(112, ge=16)
    """Tokens of a question with a text that are read."""
    epochs: float = Field(1.0, gt=0)
    """Passes over the training data, at most."""
    batch_size: int = Field(8, ge=1)
    """Questions in a batch."""
    learning_rate: float = Field(4e-4, gt=0)
    """Peak learning rate."""


def train(job: TrainingJob[SecondStageRecipe]) -> TrainingResult:
    """Train on the recipe's data, measure on the held-out people, and write the run's folder. Raises BadInput."""
    from transformers import set_seed

    recipe = job.recipe
    training.check_checkpoints(job)
    training.require_modules("peft")
    base = training.base_folder(recipe.base)
    settings = TwoStageSettings(
        recipe.base, checksum(base / "model.safetensors"), recipe.first, recipe.count, recipe.window, _DOUBLE
    )
    first = reranker(recipe.first, "auto")
    learned, checked = divide_lessons(recipe, model_path(_SEARCH_BASE))
    job.notify(f"{len(learned)} training questions, {len(checked)} validation questions from other people")
    set_seed(recipe.seed)
    learner = SecondStageLearner(load_body(base), recipe)
    tokenize = PairTokenizer(base, recipe.window)
    ordered = [_order(lesson, first)[0] for lesson in learned]
    examples = [_encode(tokenize, sample_texts(lesson, recipe.negatives, recipe.seed)) for lesson in ordered]
    likeliest = [_keep_likeliest(*_order(lesson, first), recipe.count) for lesson in checked]
    likeliest = [(lesson, odds) for lesson, odds in likeliest if RIGHT in lesson.labels]
    checks = [_encode(tokenize, lesson) for lesson, _ in likeliest]
    collate = cast("DataCollatorWithPadding", collate_pairs)
    measures = Measures()
    result = training.fit(job, cast("PreTrainedModel", learner), examples, checks, collate, measures, BEST)
    odds = np.concatenate([odds for _, odds in likeliest])
    learner.settings = {**asdict(settings), **weigh(measures.logits, odds, measures.labels)}
    results = {"learned": len(learned), "checked": len(checks)}
    save_run(job, cast("PreTrainedModel", learner), None, _card(recipe, base), result, results, "reranker")
    return result


def _card(recipe: SecondStageRecipe, base: Path) -> Card:
    return Card(
        title="Reranker of two stages",
        what=f"Scores the likeliest texts of the reranker {recipe.first} again, by a larger network. Used as the "
        "setting `chat.reader` or as the option `reranker` of the system `evidence`.",
        base=base.name,
        data=list_files(recipe.data),
        settings={"data": [str(path) for path in recipe.data]},
        measured_on="the held-out people, of the texts that the first reranker finds likeliest",
    )


def _order(lesson: Lesson, first: Reranker) -> "tuple[Lesson, NDArray[np.float64]]":
    """The texts in the first reranker's order, with their log-odds."""
    odds = log_odds(first.score(lesson.query, lesson.texts))
    order = np.argsort(-odds, kind="stable")
    return lesson.select(order.tolist()), odds[order]


def _keep_likeliest(lesson: Lesson, odds: "NDArray[np.float64]", count: int) -> "tuple[Lesson, NDArray[np.float64]]":
    return lesson.select(range(len(odds))[:count]), odds[:count]


def _encode(tokenize: PairTokenizer, lesson: Lesson) -> dict[str, object]:
    """`answers` marks the tokens that answer: of a wrong text the first one, which stands for none of them."""
    pairs = tokenize([(lesson.query, text) for text in lesson.texts])
    answers = torch.zeros_like(pairs.may_answer)
    for row, (label, words) in enumerate(zip(lesson.labels, lesson.words or ((),) * len(lesson.labels), strict=True)):
        answers[row, 0] = label != RIGHT
        for token, (start, end) in enumerate(pairs.places[row]):
            answers[row, token] |= any(start < last and end > first for first, last in words)
    tensors = {"ids": pairs.ids, "mask": pairs.mask, "may_answer": pairs.may_answer, "answers": answers}
    return {**tensors, "labels": torch.tensor(lesson.labels)}


def collate_pairs(examples: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """(n, texts, longest) tokens and marks, (n, texts) labels; what is no text has the mask 0 and the label -100."""
    count, width = (max(example["ids"].shape[side] for example in examples) for side in (0, 1))
    batch = {
        name: torch.zeros(len(examples), count, width, dtype=values.dtype)
        for name, values in examples[0].items()
        if name != "labels"
    }
    labels = torch.full((len(examples), count), NO_LABEL)
    for number, example in enumerate(examples):
        rows, longest = example["ids"].shape
        for name, values in batch.items():
            values[number, :rows, :longest] = example[name]
        labels[number, :rows] = example["labels"]
    return {**batch, "labels": labels}


class SecondStageLearner(torch.nn.Module):
    """An encoder whose adapter and head learn. `settings` go into the finished folder."""

    def __init__(self, body: "PreTrainedModel", recipe: SecondStageRecipe) -> None:
        from peft import LoraConfig, get_peft_model

        super().__init__()
        width = body.config.hidden_size
        config = LoraConfig(r=recipe.rank, lora_alpha=round(_DOUBLE * recipe.rank), target_modules=_LAYERS)
        self.body: PeftModel = get_peft_model(body, config)
        self.dense = torch.nn.Linear(width, width)
        self.output = torch.nn.Linear(width, 1)
        self.words = torch.nn.Linear(width, 1)
        self._recipe = recipe
        self.settings: Mapping[str, object] = {}

    def forward(
        self, ids: Tensor, mask: Tensor, may_answer: Tensor, answers: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """The mean loss, and (n, texts) logits, -100 where there is no text."""
        present = labels != NO_LABEL
        states, head = read_pairs(self.body, ids[present], mask[present]), self.head()
        scores = score_states(head, states)
        logits = scores.new_full(labels.shape, float(NO_LABEL)).masked_scatter(present, scores)
        loss = lesson_loss(logits, labels, self._recipe.pointwise_weight, absent_rival=self._recipe.absent_rival)
        words = words_loss(share_tokens(head, states, may_answer[present]), answers[present])
        return {"loss": loss + self._recipe.words_weight * words / len(labels), "logits": logits}

    def head(self) -> dict[str, Tensor]:
        """The head's weights by their names in the finished folder."""
        parts = {"dense": self.dense, "output": self.output, "words": self.words}
        return {
            f"{HEAD}{name}.{kind}": weight for name, layer in parts.items() for kind, weight in layer.named_parameters()
        }

    def save_pretrained(self, folder: str) -> None:
        """Write the finished reranker, without what tells words where it learned none."""
        learned = {**self._factors(), **self.head()}
        if not self._recipe.words_weight:
            learned = {name: weight for name, weight in learned.items() if not name.startswith(WORDS)}
        save_two_stage(Path(folder), self.settings, learned)

    def _factors(self) -> dict[str, Tensor]:
        ends = {".lora_A.default.weight": DOWN, ".lora_B.default.weight": UP}
        return {
            name.removesuffix(end).rpartition("base_model.model.")[2] + own: weight
            for name, weight in self.body.named_parameters()
            for end, own in ends.items()
            if name.endswith(end)
        }


def words_loss(shares: Tensor, answers: Tensor) -> Tensor:
    """The summed loss of texts that have answers marked: minus the logarithm of what these share, of (n, longest)."""
    has_answer = answers.any(-1)
    losses = -shares[has_answer].masked_fill(~answers[has_answer], float("-inf")).logsumexp(-1)
    weights = torch.where(answers[has_answer][:, 0], _WRONG_WEIGHT, 1.0)
    return (weights * losses).sum()


def weigh(outputs: "NDArray[np.float32]", odds: "NDArray[np.float64]", labels: "NDArray[np.int64]") -> dict[str, float]:
    """The `scale`, `earlier` and `shift` that make a probability of the network's outputs and the first's log-odds."""
    weights = fit_probability([outputs, odds, np.ones_like(odds)], labels)
    return dict(zip(("scale", "earlier", "shift"), weights, strict=True))
