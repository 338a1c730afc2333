"""How near an answer's words are to the gold answer's: token F1, LoCoMo's F1, ROUGE. Each for one text or a list.

ROUGE and stems come from rouge-score and nltk. Knows no model, and of data sets only LoCoMo's rules for its categories.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

from localmem.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from nltk.stem import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer

Kind = Literal["rouge1", "rouge2", "rougeL"]
KINDS: tuple[Kind, ...] = ("rouge1", "rouge2", "rougeL")

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LOCOMO_DROPPED = re.compile(r"\b(a|an|the|and)\b")
_NOT_SAID = ("no information available", "not mentioned")


def token_f1(text: str, gold: str) -> float:
    """The harmonic mean of the shares of words in common of either text, as ParlAI normalises them (LLM-Rsum).

    Lower case, no punctuation, no articles. 0 where either has no word, unless both have none.
    """
    return _f1(_words(text), _words(gold))


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


def rouge(texts: Sequence[str], golds: Sequence[str], kinds: Sequence[Kind] = KINDS) -> dict[Kind, list[float]]:
    """ROUGE F1 with stems for each pair, by kind. Raises MissingExtra without rouge-score."""
    if len(texts) != len(golds):
        raise BadInput(f"{len(texts)} texts and {len(golds)} gold texts cannot be paired; give as many of both")
    scorer = _rouge(tuple(kinds))
    found = [scorer.score(gold, text) for text, gold in zip(texts, golds, strict=True)]
    return {kind: [float(one[kind].fmeasure) for one in found] for kind in kinds}


def _words(text: str) -> list[str]:
    bare = "".join(" " if character in string.punctuation else character for character in text.lower())
    return _ARTICLES.sub(" ", bare).split()


def _f1(ours: Sequence[str], theirs: Sequence[str]) -> float:
    if not ours or not theirs:
        return float(not ours and not theirs)
    common = (Counter(ours) & Counter(theirs)).total()
    return 2 * common / (len(ours) + len(theirs))


def _stem_f1(text: str, gold: str) -> float:
    stem = _stemmer().stem
    ours, theirs = ([stem(word) for word in _locomo_words(one)] for one in (text, gold))
    return _f1(ours, theirs)


def _locomo_words(text: str) -> list[str]:
    bare = "".join(character for character in text.replace(",", "").lower() if character not in string.punctuation)
    return _LOCOMO_DROPPED.sub(" ", bare).split()


@cache
def _stemmer() -> "PorterStemmer":
    try:
        from nltk.stem import PorterStemmer
    except ImportError as error:
        raise MissingExtra("LoCoMo's F1 needs nltk; run `pip install 'localmem[eval]'`") from error
    return PorterStemmer()


@cache
def _rouge(kinds: tuple[Kind, ...]) -> "RougeScorer":
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise MissingExtra("ROUGE needs rouge-score; run `pip install 'localmem[eval]'`") from error
    return RougeScorer(list(kinds), use_stemmer=True)
