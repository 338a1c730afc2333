"""How near a text's words are to what should have been said: BLEU, ROUGE, F1; and how varied texts are: Distinct.

Counted by kept libraries: sacrebleu, rouge-score, nltk's stemmer. A gold text may be one or several that are as right.
BLEU is on sacrebleu's scale of 0 to 100, all others are from 0 to 1. Knows no model, and no data set but LoCoMo's rules
for its own categories.

The papers give BLEU-1, 2 and 4 and ROUGE without naming their code. sacrebleu is taken because it fixes the tokens (its
"13a"), so that figures of two runs can be compared; ROUGE is without stems, as Hugging Face's `evaluate`, which SeCom
uses, has it.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

from localmem.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from nltk.stem import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

Kind = Literal["rouge1", "rouge2", "rougeL"]
KINDS: tuple[Kind, ...] = ("rouge1", "rouge2", "rougeL")
Order = Literal[1, 2, 3, 4]
Gold = str | Sequence[str]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LOCOMO_DROPPED = re.compile(r"\b(a|an|the|and)\b")
_NOT_SAID = ("no information available", "not mentioned")
_OTHER_SCRIPT = re.compile(r"[^\W\d_\u0000-\u024f\u1e00-\u1eff]")  # a letter that is not Latin
_ANY_WORD = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+")  # Chinese characters stand for themselves


class Overlap(NamedTuple):
    """How much of one text, or of one set, is in another."""

    precision: float
    recall: float
    f1: float


class Bleu(NamedTuple):
    """BLEU of all texts together, and of each by itself; 0 to 100."""

    corpus: float
    each: list[float]


def bleu(texts: Sequence[str], golds: Sequence[Gold], order: Order = 4) -> Bleu:
    """BLEU over n-grams up to `order`, as sacrebleu gives it (Papineni et al., 2002; Post, 2018).

    That of a single text takes only the orders that the text is long enough for, as `sacrebleu.sentence_bleu` does.
    Raises MissingExtra without sacrebleu.
    """
    accepted = _paired(texts, golds)
    if not texts:
        return Bleu(0.0, [])
    width = max(map(len, accepted))
    streams = [[one[place] if place < len(one) else "" for one in accepted] for place in range(width)]
    each = [_bleu(order, alone=True).sentence_score(text, one).score for text, one in zip(texts, accepted, strict=True)]
    return Bleu(_bleu(order, alone=False).corpus_score(list(texts), streams).score, each)


def rouge(
    texts: Sequence[str], golds: Sequence[Gold], kinds: Sequence[Kind] = KINDS, *, stem: bool = False
) -> dict[Kind, list[float]]:
    """ROUGE F1 of each text, by kind, by the gold text that is nearest (Lin, 2004). Raises MissingExtra.

    rouge-score knows only Latin letters and digits; where a gold text has others, words are what Unicode says they are.
    """
    accepted = _paired(texts, golds)
    others = any(_OTHER_SCRIPT.search(one) for one in chain.from_iterable(accepted))
    scorer = _rouge(tuple(kinds), stem, others)
    found = [scorer.score_multi(one, text) for text, one in zip(texts, accepted, strict=True)]
    return {kind: [float(one[kind].fmeasure) for one in found] for kind in kinds}


def token_f1(text: str, gold: str) -> float:
    """The harmonic mean of the shares of words in common of either text, as ParlAI normalises them (LLM-Rsum).

    Lower case, no punctuation, no articles. 0 where either has no word, unless both have none.
    """
    return overlap(text, gold).f1


def overlap(text: str, gold: str) -> Overlap:
    """The share of the text's words that the gold text has too, the other way round, and their harmonic mean."""
    ours, theirs = _words(text), _words(gold)
    if not ours or not theirs:
        alike = float(not ours and not theirs)
        return Overlap(alike, alike, alike)
    common = (Counter(ours) & Counter(theirs)).total()
    return Overlap(common / len(ours), common / len(theirs), 2 * common / (len(ours) + len(theirs)))


def locomo_f1(text: str, gold: str, category: str) -> float:
    """LoCoMo's score of an answer to a question of this category (its evaluation code; Maharana et al., 2024).

    Words are stemmed. Of several gold answers to a multi-hop question each is matched with the best of the answer's
    parts, and their mean is taken; an open-domain gold ends at its first semicolon; what was never said is right when
    the answer says so.
    """
    if category == "adversarial":
        return float(any(words in text.lower() for words in _NOT_SAID))
    if category == "multi-hop":
        parts, golds = text.split(","), gold.split(",")
        return sum(max(_stem_f1(part, one) for part in parts) for one in golds) / len(golds)
    return _stem_f1(text, gold.partition(";")[0].strip() if category == "open-domain" else gold)


def distinct(texts: Iterable[str], order: int) -> float:
    """How many of all n-grams of these texts together are different ones (Li et al., 2016); 0 where there is none.

    The words are those of `token_f1`, as in ParlAI's inter-distinct.
    """
    every = [gram for text in texts for gram in _grams(_words(text), order)]
    return len(set(every)) / len(every) if every else 0.0


def contains_answer(text: str, accepted: Sequence[str], rejected: Sequence[str] = ()) -> bool:
    """Whether the text contains one of the accepted answers, as whole words, and none of the rejected ones.

    Case, accents, punctuation and spaces are ignored.
    """
    words = _plain_words(text)
    return any(_plain_words(one) in words for one in accepted) and not any(
        _plain_words(one) in words for one in rejected
    )


def _paired(texts: Sequence[str], golds: Sequence[Gold]) -> list[list[str]]:
    """The gold texts of each text, without empty ones. Raises BadInput where one has none."""
    if len(texts) != len(golds):
        raise BadInput(f"{len(texts)} texts and {len(golds)} gold texts cannot be paired; give as many of both")
    accepted = [[gold for gold in ([one] if isinstance(one, str) else one) if gold.strip()] for one in golds]
    if not all(accepted):
        raise BadInput(f"text {accepted.index([]) + 1} has no gold text; give each at least one")
    return accepted


def _words(text: str) -> list[str]:
    bare = "".join(" " if character in string.punctuation else character for character in text.lower())
    return _ARTICLES.sub(" ", bare).split()


def _plain_words(text: str) -> str:
    """The words between single spaces, with one at either end, so that `in` compares whole words."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    letters = "".join(char for char in decomposed if not unicodedata.combining(char))
    words = re.findall(r"\w+", letters.replace("'", ""))
    return f" {' '.join(words)} "


def _grams(words: Sequence[str], order: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(order)), strict=False)


def _stem_f1(text: str, gold: str) -> float:
    stem = _stemmer().stem
    ours, theirs = (Counter(stem(word) for word in _locomo_words(one)) for one in (text, gold))
    common = (ours & theirs).total()
    return 2 * common / (ours.total() + theirs.total()) if common else 0.0


def _locomo_words(text: str) -> list[str]:
    bare = "".join(character for character in text.replace(",", "").lower() if character not in string.punctuation)
    return _LOCOMO_DROPPED.sub(" ", bare).split()


class _AnyScript:
    """Words of any script, for rouge-score."""

    def tokenize(self, text: str) -> list[str]:
        return _ANY_WORD.findall(text.lower())


@cache
def _stemmer() -> "PorterStemmer":
    try:
        from nltk.stem import PorterStemmer
    except ImportError as error:
        raise MissingExtra("LoCoMo's F1 needs nltk; run `pip install 'localmem[eval]'`") from error
    return PorterStemmer()


@cache
def _bleu(order: Order, *, alone: bool) -> "BLEU":
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtra("BLEU needs sacrebleu; run `pip install 'localmem[eval]'`") from error
    return BLEU(max_ngram_order=order, effective_order=alone)


@cache
def _rouge(kinds: tuple[Kind, ...], stem: bool, others: bool) -> "RougeScorer":
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise MissingExtra("ROUGE needs rouge-score; run `pip install 'localmem[eval]'`") from error
    return RougeScorer(list(kinds), use_stemmer=stem, tokenizer=_AnyScript() if others else None)
