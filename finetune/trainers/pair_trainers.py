"""A model that is about to learn labelled pairs: an encoder with a fresh head, or a T5 that answers with a digit.

Both are trained by transformers' Trainer under a `Plan`, with a weight for each label. Knows no regime.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.evaluation.datasets.labelled_pairs import LabelledPair
from finetune.trainers.t5 import FRESH, fresh_t5
from finetune.trainers.training import Measure, Plan, Trained, arguments, check_checkpoints, quietly, run
from localmem.classification.pair_weights import APART, LABELS, NOTES, apart_of, config_of, digits, is_t5, question
from localmem.errors import BadInput

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.modeling_outputs import ModelOutput

    Loss = Callable[["ModelOutput", "torch.Tensor", "torch.Tensor | None"], "torch.Tensor"]

_LOCAL = {"local_files_only": True, "trust_remote_code": False}


class Learner(ABC):
    """The model, its tokenizer, the labels in the order of their numbers, and how many tokens of a pair are read."""

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", labels: Sequence[str], window: int
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.labels = tuple(labels)
        self._window = window

    @abstractmethod
    def rows(self, pairs: Sequence[LabelledPair]) -> list[dict[str, object]]:
        """Each pair as the model reads it, with the number of its label."""

    @abstractmethod
    def of_labels(self, logits: "torch.Tensor | tuple[torch.Tensor, ...]") -> "torch.Tensor":
        """(n, labels): of what the model gives, what decides."""

    @abstractmethod
    def loss(self, made: "ModelOutput", wanted: "torch.Tensor") -> "torch.Tensor":
        """(n,), unweighted."""


class EncoderLearner(Learner):
    """An encoder with a head of one number a label."""

    def rows(self, pairs: Sequence[LabelledPair]) -> list[dict[str, object]]:
        more = {"return_token_type_ids": True} if apart_of(self.model.config.to_dict()) else {}
        return [
            {
                **self.tokenizer(pair.first, pair.second, truncation=True, max_length=self._window, **more),
                "labels": self.labels.index(pair.label),
            }
            for pair in pairs
        ]

    def of_labels(self, logits: "torch.Tensor | tuple[torch.Tensor, ...]") -> "torch.Tensor":
        return logits[0] if isinstance(logits, tuple) else logits

    def loss(self, made: "ModelOutput", wanted: "torch.Tensor") -> "torch.Tensor":
        from torch.nn.functional import cross_entropy

        return cross_entropy(made["logits"].float(), wanted, reduction="none")


class T5Learner(Learner):
    """T5 learns to write one digit, out of its whole vocabulary; it is judged by the allowed digits' logits."""

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", labels: Sequence[str], window: int
    ) -> None:
        super().__init__(model, tokenizer, labels, window)
        self._digits = digits(tokenizer, len(labels))

    def rows(self, pairs: Sequence[LabelledPair]) -> list[dict[str, object]]:
        start = [self.model.config.decoder_start_token_id]
        return [
            {
                **self.tokenizer(question(pair.first, pair.second), truncation=True, max_length=self._window),
                "decoder_input_ids": start,
                "labels": self.labels.index(pair.label),
            }
            for pair in pairs
        ]

    def of_labels(self, logits: "torch.Tensor | tuple[torch.Tensor, ...]") -> "torch.Tensor":
        return (logits[0] if isinstance(logits, tuple) else logits)[:, 0, self._digits]

    def loss(self, made: "ModelOutput", wanted: "torch.Tensor") -> "torch.Tensor":
        import torch
        from torch.nn.functional import cross_entropy

        targets = torch.tensor(self._digits, device=wanted.device)[wanted]
        return cross_entropy(made["logits"][:, 0].float(), targets, reduction="none")


def learner(
    base: str | Path, labels: Sequence[str], window: int, texts: Sequence[LabelledPair], apart: int = 0
) -> Learner:
    """What is to learn: of a folder of weights, or a T5 from nothing whose tokenizer learns from `texts`.

    A head that was trained for other labels is replaced by a fresh one; a T5 has none to replace. With `apart` so many
    layers of a BERT read the two texts apart. Raises BadInput.
    """
    if apart and not (isinstance(base, Path) and config_of(base).get("model_type") == "bert"):
        raise BadInput(
            f"only a BERT's layers can read the texts of a pair apart, and {base} is none; leave out --apart"
        )
    if isinstance(base, str) and base.startswith(FRESH):
        model, tokenizer = fresh_t5(base, texts)
        return _t5(model, tokenizer, labels, window)
    folder = Path(base)
    return _of_folder(folder, labels, window, apart)


def _of_folder(folder: Path, labels: Sequence[str], window: int, apart: int) -> Learner:
    from transformers import AutoTokenizer

    t5 = is_t5(config_of(folder))
    named = {"id2label": dict(enumerate(labels)), "label2id": {name: n for n, name in enumerate(labels)}}
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **_LOCAL)
        with quietly():
            model = _weights(folder, {} if t5 else named, t5=t5, apart=apart)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{folder} is no model to start from: {reason}") from error
    return _t5(model, tokenizer, labels, window) if t5 else EncoderLearner(model, tokenizer, labels, window)


def _weights(folder: Path, named: Mapping[str, object], *, t5: bool, apart: int) -> "PreTrainedModel":
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

    if apart:
        from localmem.classification.split_bert import ApartBert

        config = AutoConfig.from_pretrained(str(folder), **named, **_LOCAL)
        setattr(config, NOTES, {APART: apart})
        more = {"config": config, "attn_implementation": "sdpa", "ignore_mismatched_sizes": True}
        split: PreTrainedModel = ApartBert.from_pretrained(str(folder), **more, **_LOCAL)
        return split
    kind = AutoModelForSeq2SeqLM if t5 else AutoModelForSequenceClassification
    plain: PreTrainedModel = kind.from_pretrained(str(folder), **named, ignore_mismatched_sizes=True, **_LOCAL)
    return plain


def _t5(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", labels: Sequence[str], window: int
) -> T5Learner:
    setattr(model.config, NOTES, {LABELS: list(labels)})
    return T5Learner(model, tokenizer, labels, window)


def teach(
    pupil: Learner,
    plan: Plan,
    train: Sequence[LabelledPair],
    valid: Sequence[LabelledPair],
    weights: Mapping[str, float],
    measure: Measure,
    out: Path,
    *,
    resume: bool,
) -> Trained:
    """Trains the pupil's model in place, to the weights of the epoch most accurate on `valid`."""
    from transformers import DataCollatorWithPadding, EarlyStoppingCallback, Trainer, TrainingArguments

    check_checkpoints(out, resume=resume)
    trainer = Trainer(
        model=pupil.model,
        args=TrainingArguments(**arguments(plan, "accuracy", out)),
        train_dataset=pupil.rows(train),
        eval_dataset=pupil.rows(valid),
        data_collator=DataCollatorWithPadding(pupil.tokenizer),
        compute_loss_func=_weighted(pupil, weights),
        preprocess_logits_for_metrics=lambda logits, _: pupil.of_labels(logits),
        compute_metrics=lambda predicted: measure(predicted.predictions, predicted.label_ids),
        callbacks=[EarlyStoppingCallback(plan.patience)],
    )
    return run(trainer, out)


def _weighted(pupil: Learner, weights: Mapping[str, float]) -> "Loss":
    """The mean over the examples of a step of the optimiser, each with its label's weight."""

    def loss(
        made: "ModelOutput", wanted: "torch.Tensor", num_items_in_batch: "torch.Tensor | None" = None
    ) -> "torch.Tensor":
        import torch

        each = torch.tensor([weights[label] for label in pupil.labels], device=wanted.device)
        number = len(wanted) if num_items_in_batch is None else num_items_in_batch
        return (pupil.loss(made, wanted) * each[wanted]).sum() / number

    return loss
