"""Models that learn labelled pairs: an encoder with a new head, or a T5 that answers with a digit.

Both are trained by transformers' Trainer with a weight for each label. A T5 may be randomly initialised, as in Keep Me
Updated (appendix B.4). Does not depend on what the labels mean; `localmem.classification.pair_classifier` decides how a
pair is written and which token a digit is.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from finetune.operation_pairs import Fold
from finetune.trainers import training
from finetune.trainers.training import Measure, TrainingJob, TrainingRecipe, TrainingResult
from localmem.classification import pair_classifier
from localmem.classification.pair_classifier import LABELS, SPLIT_LAYERS, is_t5, t5_input
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import LabelledPair
from localmem.llm.device import quiet_loading
from localmem.retrieval.encoder_part import NOTES, save_part

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, T5ForConditionalGeneration
    from transformers.modeling_outputs import ModelOutput

    Loss = Callable[["ModelOutput", "torch.Tensor", "torch.Tensor | None"], "torch.Tensor"]

FRESH = "t5:"  # prefix of a base: `t5:tiny` is a randomly initialised T5; any other base is a name or a folder

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_SPECIAL = ("<pad>", "</s>", "<unk>")  # in the order of the numbers that T5 gives them


class Size(NamedTuple):
    """Width, layers on each side, heads, width of the feed-forward layers, vocabulary size."""

    width: int
    layers: int
    heads: int
    inner: int
    pieces: int


SIZES: Mapping[str, Size] = {
    "tiny": Size(128, 2, 4, 512, 2000),
    "mini": Size(256, 4, 4, 1024, 4000),
    "small": Size(512, 6, 8, 2048, 8000),  # t5-small
}


class PairLearner:
    """A model in training, its tokenizer, and the labels in the order of their numbers.

    An encoder has a head with one number for each label. A T5 learns to write one digit out of its whole vocabulary,
    and only the logits of the allowed digits are judged.
    """

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", labels: Sequence[str], window: int
    ) -> None:
        self.model, self.tokenizer, self.labels, self._window = model, tokenizer, tuple(labels), window
        self._is_t5 = is_t5(model.config.to_dict())
        if self._is_t5:
            setattr(model.config, NOTES, {LABELS: list(labels)})
            self._digits = pair_classifier.digit_tokens(tokenizer, len(labels))

    def encode(self, pairs: Sequence[LabelledPair]) -> list[dict[str, object]]:
        """Each pair as input of the model, with the number of its label."""
        options: dict[str, object] = {"truncation": True, "max_length": self._window}
        more: dict[str, object] = {}
        if self._is_t5:
            more["decoder_input_ids"] = [self.model.config.decoder_start_token_id]
        elif pair_classifier.split_layers_of(self.model.config.to_dict()):
            options["return_token_type_ids"] = True
        return [
            {**self.tokenizer(*self._texts(pair), **options), **more, "labels": self.labels.index(pair.label)}
            for pair in pairs
        ]

    def label_logits(self, logits: "torch.Tensor | tuple[torch.Tensor, ...]") -> "torch.Tensor":
        """The logits that decide, (n, labels), out of the model's output."""
        scores = logits[0] if isinstance(logits, tuple) else logits
        return scores[:, 0, self._digits] if self._is_t5 else scores

    def loss(self, output: "ModelOutput", targets: "torch.Tensor") -> "torch.Tensor":
        """The unweighted loss of each example, (n,)."""
        import torch
        from torch.nn.functional import cross_entropy

        if not self._is_t5:
            return cross_entropy(output["logits"].float(), targets, reduction="none")
        tokens = torch.tensor(self._digits, device=targets.device)[targets]
        return cross_entropy(output["logits"][:, 0].float(), tokens, reduction="none")

    def _texts(self, pair: LabelledPair) -> tuple[str, ...]:
        return (t5_input(pair.first, pair.second),) if self._is_t5 else (pair.first, pair.second)


def make_learner(
    base: str, labels: Sequence[str], window: int, pairs: Sequence[LabelledPair], split_layers: int = 0
) -> PairLearner:
    """A learner on a model's folder or name, or on a randomly initialised T5 whose tokenizer is built from `pairs`.

    A head that was trained for other labels is replaced by a new one; a T5 has none to replace. With `split_layers`,
    that many layers of a BERT read the two texts separately. Raises BadInput.
    """
    from transformers import AutoTokenizer

    fresh = base.startswith(FRESH)
    folder = Path() if fresh else training.base_folder(base)
    config = {} if fresh else pair_classifier.config_of(folder)
    if split_layers and config.get("model_type") != "bert":
        raise BadInput(
            f"only the layers of a BERT can read the texts of a pair separately, and {base} is not a BERT; leave out "
            "split_layers"
        )
    if fresh:
        return PairLearner(*new_t5(base, pairs), labels, window)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **_LOCAL)
        with quiet_loading():
            model = _load_model(folder, labels, split_layers, t5=is_t5(config))
    except (OSError, ValueError) as error:
        training.reject_base(folder, "an encoder or a T5", error)
    return PairLearner(model, tokenizer, labels, window)


def _load_model(folder: Path, labels: Sequence[str], split_layers: int, *, t5: bool) -> "PreTrainedModel":
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

    if t5:
        kind, options = AutoModelForSeq2SeqLM, dict[str, object]()
    else:
        kind = AutoModelForSequenceClassification
        options = {"id2label": dict(enumerate(labels)), "label2id": {name: n for n, name in enumerate(labels)}}
    if split_layers:
        from localmem.classification.split_bert import SplitBert

        config = AutoConfig.from_pretrained(str(folder), **options, **_LOCAL)
        setattr(config, NOTES, {SPLIT_LAYERS: split_layers})
        kind, options = SplitBert, {"config": config, "attn_implementation": "sdpa"}
    model: PreTrainedModel = kind.from_pretrained(str(folder), **options, ignore_mismatched_sizes=True, **_LOCAL)
    return model


def freeze_layers(model: "PreTrainedModel", count: int) -> None:
    """Leave an encoder's embeddings and its lower `count` layers as they are."""
    fixed = ("embeddings", *(f"layer.{number}" for number in range(count)))
    for name, weight in model.named_parameters():
        weight.requires_grad = not any(f".{part}." in f".{name}" for part in fixed)


class StoredPart:
    """A trained classifier that is saved without what it shares with its encoder."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self._model = model

    def save_pretrained(self, folder: str) -> None:
        """Write the part's folder."""
        save_part(Path(folder), self._model)

    def parameters(self) -> Iterator["torch.nn.Parameter"]:
        """The weights that learned."""
        return (weight for weight in self._model.parameters() if weight.requires_grad)


def fit_pairs(
    learner: PairLearner, job: TrainingJob[TrainingRecipe], pairs: Fold, weights: Mapping[str, float], measure: Measure
) -> TrainingResult:
    """Train the learner's model in place, to the weights of the epoch with the highest held-out accuracy."""
    from transformers import DataCollatorWithPadding

    examples, checked = learner.encode(pairs.train), learner.encode(pairs.held_out)
    collate = DataCollatorWithPadding(learner.tokenizer)
    options: dict[str, object] = {
        "compute_loss_func": _weighted_loss(learner, weights),
        "preprocess_logits_for_metrics": lambda logits, _: learner.label_logits(logits),
    }
    return training.fit(job, learner.model, examples, checked, collate, measure, "accuracy", **options)


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


def new_t5(name: str, pairs: Iterable[LabelledPair]) -> "tuple[T5ForConditionalGeneration, PreTrainedTokenizerBase]":
    """An untrained T5 of the size after `t5:`, with a tokenizer built from the pairs. Raises BadInput."""
    from transformers import T5Config, T5ForConditionalGeneration

    size = SIZES.get(name.removeprefix(FRESH))
    if size is None:
        raise BadInput(f"there is no T5 of size {name.removeprefix(FRESH)!r}; use one of {', '.join(SIZES)}")
    tokenizer = build_tokenizer((t5_input(pair.first, pair.second) for pair in pairs), size.pieces)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=size.width,
        d_kv=size.width // size.heads,
        d_ff=size.inner,
        num_layers=size.layers,
        num_heads=size.heads,
        dropout_rate=0.1,
        decoder_start_token_id=tokenizer.pad_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return T5ForConditionalGeneration(config), tokenizer


def build_tokenizer(texts: Iterable[str], pieces: int) -> "PreTrainedTokenizerBase":
    """A tokenizer of T5's kind (SentencePiece unigrams) over these texts, in which every digit is its own piece.

    The pieces come from byte-pair merges and are scored by how often they then occur. The library's own unigram trainer
    is not used because it does not give the same tokenizer for the same texts.
    """
    from transformers import T5Tokenizer

    corpus = list(texts)
    merges = _train_merges(corpus, pieces)
    counts = Counter(piece for text in merges.encode_batch(corpus) for piece in text.tokens)
    vocabulary = sorted(merges.get_vocab().items(), key=lambda item: item[1])
    scores = [(piece, log((counts[piece] or 0.5) / counts.total())) for piece, _ in vocabulary[len(_SPECIAL) :]]
    tokenizer: PreTrainedTokenizerBase = T5Tokenizer(
        vocab=[*((piece, 0.0) for piece in _SPECIAL), *scores], extra_ids=0, model_max_length=512
    )
    return tokenizer


def _train_merges(texts: Sequence[str], pieces: int) -> "Tokenizer":
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=pieces, special_tokens=list(_SPECIAL), initial_alphabet=[*"0123456789"], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
