"""Models that learn labelled pairs: an encoder with a new head, or a T5 that answers with a digit.

Both are trained by transformers' Trainer with a weight for each label. Does not depend on what the labels mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.cross_validation import Fold
from finetune.trainers.t5 import FRESH, new_t5
from finetune.trainers.training import (
    Measure,
    TrainingJob,
    TrainingRecipe,
    TrainingResult,
    base_folder,
    fit,
    reject_base,
    without_progress,
)
from localmem.classification.pair_weights import (
    LABELS,
    NOTES,
    SPLIT_LAYERS,
    config_of,
    digit_tokens,
    is_t5,
    split_layers_of,
    t5_input,
)
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import LabelledPair

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.modeling_outputs import ModelOutput

    Loss = Callable[["ModelOutput", "torch.Tensor", "torch.Tensor | None"], "torch.Tensor"]

_LOCAL = {"local_files_only": True, "trust_remote_code": False}


class PairLearner(ABC):
    """A model in training, its tokenizer, the labels in the order of their numbers, and the window in tokens."""

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", labels: Sequence[str], window: int
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.labels = tuple(labels)
        self._window = window

    @abstractmethod
    def encode(self, pairs: Sequence[LabelledPair]) -> list[dict[str, object]]:
        """Each pair as input of the model, with the number of its label."""

    @abstractmethod
    def label_logits(self, logits: "torch.Tensor | tuple[torch.Tensor, ...]") -> "torch.Tensor":
        """The logits that decide, (n, labels), out of the model's output."""

    @abstractmethod
    def loss(self, output: "ModelOutput", targets: "torch.Tensor") -> "torch.Tensor":
        """The unweighted loss of each example, (n,)."""


class EncoderLearner(PairLearner):
    """An encoder whose head gives one number for each label."""

    def encode(self, pairs: Sequence[LabelledPair]) -> list[dict[str, object]]:
        more = {"return_token_type_ids": True} if split_layers_of(self.model.config.to_dict()) else {}
        return [
            {
                **self.tokenizer(pair.first, pair.second, truncation=True, max_length=self._window, **more),
                "labels": self.labels.index(pair.label),
            }
            for pair in pairs
        ]

    def label_logits(self, logits: "torch.Tensor | tuple[torch.Tensor, ...]") -> "torch.Tensor":
        return logits[0] if isinstance(logits, tuple) else logits

    def loss(self, output: "ModelOutput", targets: "torch.Tensor") -> "torch.Tensor":
        from torch.nn.functional import cross_entropy

        return cross_entropy(output["logits"].float(), targets, reduction="none")


class T5Learner(PairLearner):
    """A T5 that learns to write one digit out of its whole vocabulary; only the logits of allowed digits are judged."""

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", labels: Sequence[str], window: int
    ) -> None:
        super().__init__(model, tokenizer, labels, window)
        setattr(model.config, NOTES, {LABELS: list(labels)})
        self._digits = digit_tokens(tokenizer, len(labels))

    def encode(self, pairs: Sequence[LabelledPair]) -> list[dict[str, object]]:
        start = [self.model.config.decoder_start_token_id]
        return [
            {
                **self.tokenizer(t5_input(pair.first, pair.second), truncation=True, max_length=self._window),
                "decoder_input_ids": start,
                "labels": self.labels.index(pair.label),
            }
            for pair in pairs
        ]

    def label_logits(self, logits: "torch.Tensor | tuple[torch.Tensor, ...]") -> "torch.Tensor":
        return (logits[0] if isinstance(logits, tuple) else logits)[:, 0, self._digits]

    def loss(self, output: "ModelOutput", targets: "torch.Tensor") -> "torch.Tensor":
        import torch
        from torch.nn.functional import cross_entropy

        tokens = torch.tensor(self._digits, device=targets.device)[targets]
        return cross_entropy(output["logits"][:, 0].float(), tokens, reduction="none")


def make_learner(
    base: str, labels: Sequence[str], window: int, pairs: Sequence[LabelledPair], split_layers: int = 0
) -> PairLearner:
    """A learner on a model's folder or name, or on a randomly initialised T5 whose tokenizer is built from `pairs`.

    A head that was trained for other labels is replaced by a new one; a T5 has none to replace. With `split_layers`,
    that many layers of a BERT read the two texts separately. Raises BadInput.
    """
    if base.startswith(FRESH):
        if split_layers:
            _reject_split(base)
        model, tokenizer = new_t5(base, pairs)
        return T5Learner(model, tokenizer, labels, window)
    folder = base_folder(base)
    config = config_of(folder)
    if split_layers and config.get("model_type") != "bert":
        _reject_split(base)
    return _load_learner(folder, labels, window, split_layers, t5=is_t5(config))


def _reject_split(base: str) -> None:
    raise BadInput(f"only the layers of a BERT can read the texts of a pair separately, and {base} is not a BERT; "
                   "leave out split_layers")  # fmt: skip


def _load_learner(folder: Path, labels: Sequence[str], window: int, split_layers: int, *, t5: bool) -> PairLearner:
    from transformers import AutoTokenizer

    numbering = {"id2label": dict(enumerate(labels)), "label2id": {name: n for n, name in enumerate(labels)}}
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **_LOCAL)
        with without_progress():
            model = _load_model(folder, {} if t5 else numbering, split_layers, t5=t5)
    except (OSError, ValueError) as error:
        reject_base(folder, "an encoder or a T5", error)
    return (T5Learner if t5 else EncoderLearner)(model, tokenizer, labels, window)


def _load_model(folder: Path, numbering: Mapping[str, object], split_layers: int, *, t5: bool) -> "PreTrainedModel":
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

    if split_layers:
        from localmem.classification.split_bert import SplitBert

        config = AutoConfig.from_pretrained(str(folder), **numbering, **_LOCAL)
        setattr(config, NOTES, {SPLIT_LAYERS: split_layers})
        more = {"config": config, "attn_implementation": "sdpa", "ignore_mismatched_sizes": True}
        split_model: PreTrainedModel = SplitBert.from_pretrained(str(folder), **more, **_LOCAL)
        return split_model
    kind = AutoModelForSeq2SeqLM if t5 else AutoModelForSequenceClassification
    model: PreTrainedModel = kind.from_pretrained(str(folder), **numbering, ignore_mismatched_sizes=True, **_LOCAL)
    return model


def fit_pairs(
    learner: PairLearner,
    job: TrainingJob[TrainingRecipe],
    pairs: Fold,
    weights: Mapping[str, float],
    measure: Measure,
) -> TrainingResult:
    """Train the learner's model in place, to the weights of the epoch with the highest held-out accuracy."""
    from transformers import DataCollatorWithPadding

    return fit(
        job,
        learner.model,
        learner.encode(pairs.train),
        learner.encode(pairs.held_out),
        DataCollatorWithPadding(learner.tokenizer),
        measure,
        "accuracy",
        compute_loss_func=_weighted_loss(learner, weights),
        preprocess_logits_for_metrics=lambda logits, _: learner.label_logits(logits),
    )


def _weighted_loss(learner: PairLearner, weights: Mapping[str, float]) -> "Loss":
    """The mean loss over the examples of an optimiser step, each multiplied by its label's weight."""

    def loss(
        output: "ModelOutput", targets: "torch.Tensor", num_items_in_batch: "torch.Tensor | None" = None
    ) -> "torch.Tensor":
        import torch

        by_label = torch.tensor([weights[label] for label in learner.labels], device=targets.device)
        count = len(targets) if num_items_in_batch is None else num_items_in_batch
        return (learner.loss(output, targets) * by_label[targets]).sum() / count

    return loss
