"""A T5 that learns pairs: as Keep Me Updated formats them (appendix B.4), from given weights or from nothing.

Knows no regime. How a pair is shown and which token a digit is, `localmem.text.pair_weights` decides.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from finetune.pairs import LabelledPair
from localmem.errors import BadInput
from localmem.text.pair_weights import question

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration

FRESH = "t5:"  # `t5:tiny` is a T5 from nothing; any other base is a name or a folder


class Size(NamedTuple):
    """Width, layers on either side, heads, width of the feed-forward part, pieces of the vocabulary."""

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


def fresh_t5(
    name: str, pairs: Iterable[LabelledPair], dropout: float = 0.1
) -> "tuple[T5ForConditionalGeneration, PreTrainedTokenizerBase]":
    """An untrained T5 of the size after FRESH, with a tokenizer that learned its pieces from the pairs."""
    from transformers import T5Config, T5ForConditionalGeneration

    size = SIZES.get(name.removeprefix(FRESH))
    if size is None:
        raise BadInput(f"there is no T5 of the size {name.removeprefix(FRESH)!r}; give {', '.join(SIZES)}")
    tokenizer = trained_tokenizer((question(pair.first, pair.second) for pair in pairs), size.pieces)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=size.width,
        d_kv=size.width // size.heads,
        d_ff=size.inner,
        num_layers=size.layers,
        num_heads=size.heads,
        dropout_rate=dropout,
        decoder_start_token_id=tokenizer.pad_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return T5ForConditionalGeneration(config), tokenizer


def trained_tokenizer(texts: Iterable[str], pieces: int) -> "PreTrainedTokenizerBase":
    """T5's kind of tokenizer (SentencePiece's unigrams) over these texts; every digit is a piece of its own."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import T5Tokenizer

    learner = Tokenizer(models.Unigram())
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    special = ["<pad>", "</s>", "<unk>"]
    learner.train_from_iterator(
        list(texts),
        trainers.UnigramTrainer(
            vocab_size=pieces,
            special_tokens=special,
            unk_token="<unk>",  # noqa: S106  # no password
            initial_alphabet=list("0123456789"),
            show_progress=False,
        ),
    )
    learned = json.loads(learner.to_str())["model"]["vocab"]
    tokenizer: PreTrainedTokenizerBase = T5Tokenizer(
        vocab=[(piece, score) for piece, score in learned], extra_ids=0, model_max_length=512
    )
    return tokenizer
