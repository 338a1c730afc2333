"""A randomly initialised T5 and its tokenizer, for learning pairs as Keep Me Updated formats them (appendix B.4).

Does not depend on the training regime. `localmem.classification.pair_weights` decides how a pair is written and which
token a digit is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple

from localmem.classification.pair_weights import t5_input
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import LabelledPair

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration

FRESH = "t5:"  # prefix of a base: `t5:tiny` is a randomly initialised T5; any other base is a name or a folder

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


def new_t5(
    name: str, pairs: Iterable[LabelledPair], dropout: float = 0.1
) -> "tuple[T5ForConditionalGeneration, PreTrainedTokenizerBase]":
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
        dropout_rate=dropout,
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
