"""A T5 that learns pairs: as Keep Me Updated formats them (appendix B.4), from given weights or from nothing.

Knows no regime. How a pair is shown and which token a digit is, `localmem.classification.pair_weights` decides.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple

from localmem.evaluation.datasets.labelled_pairs import LabelledPair
from localmem.classification.pair_weights import question
from localmem.errors import BadInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration

_SPECIAL = ("<pad>", "</s>", "<unk>")  # with the numbers that T5 gives them

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
    """T5's kind of tokenizer (SentencePiece's unigrams) over these texts; every digit is a piece of its own.

    The pieces are found by merging pairs (BPE) and scored by how often they then occur: the same texts always give the
    same tokenizer, which the library's own trainer of unigrams does not.
    """
    from transformers import T5Tokenizer

    read = list(texts)
    learner = _merged(read, pieces)
    found = Counter(piece for text in learner.encode_batch(read) for piece in text.tokens)
    learned = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    scores = [(piece, log((found[piece] or 0.5) / found.total())) for piece, _ in learned[len(_SPECIAL) :]]
    tokenizer: PreTrainedTokenizerBase = T5Tokenizer(
        vocab=[*((piece, 0.0) for piece in _SPECIAL), *scores], extra_ids=0, model_max_length=512
    )
    return tokenizer


def _merged(texts: Sequence[str], pieces: int) -> "Tokenizer":
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    learner.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=pieces,
            special_tokens=list(_SPECIAL),
            initial_alphabet=[*"0123456789"],
            show_progress=False,
        ),
    )
    return learner
