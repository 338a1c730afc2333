"""Overlap of a text with reference texts (BLEU, ROUGE, F1) or of a memory with gold memory, and variety (Distinct).

Counted by maintained libraries: sacrebleu, rouge-score, nltk's stemmer. A gold text may be one or several equally right
ones. BLEU is on sacrebleu's scale of 0 to 100, all others are from 0 to 1. Does not depend on a model, nor on a data
set except for LoCoMo's rules for its own categories.

The papers report BLEU-1, 2 and 4 and ROUGE without naming their code. sacrebleu is used because it fixes the tokens
(its "13a"), so that figures of two runs can be compared; ROUGE is without stems, as in Hugging Face's `evaluate`, which
SeCom uses.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from localmem.errors import BadInput, requires
from localmem.evaluation.metrics.replies import abstains

if TYPE_CHECKING:
    import numpy as np
    from nltk.stem import PorterStemmer
    from numpy.typing import NDArray
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

Kind = Literal["rouge1", "rouge2", "rougeL"]
KINDS: tuple[Kind, ...] = ("rouge1", "rouge2", "rougeL")
Order = Literal[1, 2, 3, 4]
Gold = str | Sequence[str]
MATCH_THRESHOLD = 0.5  # the ROUGE-L from which two sentences count as saying the same

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LOCOMO_DROPPED = re.compile(r"\b(a|an|the|and)\b")
_ABSTENTIONS = ("no information available", "not mentioned")
_OTHER_SCRIPT = re.compile(r"[^\W\d_\u0000-\u024f\u1e00-\u1eff]")  # a letter that is not Latin
_ANY_WORD = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+")  # each Chinese character is a word


class Overlap(NamedTuple):
    """The share of one text or set that is in another, the other way round, and their harmonic mean."""

    precision: float
    recall: float
    f1: float


class Bleu(NamedTuple):
    """BLEU of all texts together, and of each alone; 0 to 100."""

    corpus: float
    each: list[float]


def bleu(texts: Sequence[str], golds: Sequence[Gold], order: Order = 4) -> Bleu:
    """BLEU over n-grams up to `order`, by sacrebleu (Papineni et al., 2002; Post, 2018).

    For a single text it uses only the orders that the text is long enough for, as `sacrebleu.sentence_bleu` does.
    Raises MissingExtra without sacrebleu.
    """
    references = _gold_lists(texts, golds)
    if not texts:
        return Bleu(0.0, [])
    width = max(map(len, references))
    streams = [[row[place] if place < len(row) else "" for row in references] for place in range(width)]
    sentence = _bleu(order, alone=True)
    each = [sentence.sentence_score(text, row).score for text, row in zip(texts, references, strict=True)]
    return Bleu(_bleu(order, alone=False).corpus_score(list(texts), streams).score, each)


def rouge(
    texts: Sequence[str], golds: Sequence[Gold], kinds: Sequence[Kind] = KINDS, *, stem: bool = False
) -> dict[Kind, list[float]]:
    """ROUGE F1 of each text, by kind, against the closest gold text (Lin, 2004). Raises MissingExtra.

    rouge-score reads only Latin letters and digits; where a gold text has others, words are those of Unicode.
    """
    scores = []
    for text, row in zip(texts, _gold_lists(texts, golds), strict=True):
        any_script = any(map(_OTHER_SCRIPT.search, row))  # decided by text: no score depends on the other texts
        scores.append(_rouge(tuple(kinds), stem, any_script).score_multi(row, text))
    return {kind: [float(score[kind].fmeasure) for score in scores] for kind in kinds}


def token_f1(text: str, gold: str) -> float:
    """F1 of the words that two texts share, normalised as by ParlAI (LLM-Rsum).

    Lower case, no punctuation, no articles. 0 if one of them has no word, 1 if both have none.
    """
    return overlap(text, gold).f1


def overlap(text: str, gold: str) -> Overlap:
    """Precision, recall and F1 of the text's words against the gold text's, normalised as in `token_f1`."""
    ours, theirs = _words(text), _words(gold)
    if not ours or not theirs:
        score = float(not ours and not theirs)
        return Overlap(score, score, score)
    common = (Counter(ours) & Counter(theirs)).total()
    return Overlap(common / len(ours), common / len(theirs), 2 * common / (len(ours) + len(theirs)))


def locomo_f1(text: str, gold: str, category: str) -> float:
    """LoCoMo's score of an answer to a question of this category (its evaluation code; Maharana et al., 2024).

    Words are stemmed. For a multi-hop question each of several gold answers is matched with the best part of the text,
    and the mean counts; an open-domain gold ends at its first semicolon; an adversarial question is right if the text
    says that it does not know, in LoCoMo's two phrases or any other words.
    """
    if category == "adversarial":
        return float(abstains(text) or any(phrase in text.lower() for phrase in _ABSTENTIONS))
    if category == "multi-hop":
        parts, golds = text.split(","), gold.split(",")
        return sum(max(_stem_f1(part, answer) for part in parts) for answer in golds) / len(golds)
    return _stem_f1(text, gold.partition(";")[0].strip() if category == "open-domain" else gold)


def shared_words(memories: Sequence[str], golds: Sequence[str]) -> Overlap:
    """Precision, recall and F1 of the words of a complete memory (LLM-Rsum, section 6.2 and Figure 4).

    The paper names neither tokens nor code; words are those of `token_f1`, its measure of replies.
    """
    return overlap("\n".join(memories), "\n".join(golds))


def match_sentences(similarities: "NDArray[np.float32]", threshold: float = MATCH_THRESHOLD) -> Overlap:
    """Precision, recall and F1 of sentences, from the similarity of each memory (row) to each gold memory (column).

    A sentence is correct if it is paired with a gold sentence of at least this similarity. Each is in one pair at most,
    and the number of pairs is the largest possible (Hopcroft and Karp, by scipy). Empty against empty is correct.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    if similarities.ndim != 2:
        raise BadInput(
            f"similarities have the shape {similarities.shape}; give one row per memory and one column per gold"
        )
    rows, columns = similarities.shape
    if not rows or not columns:
        score = float(rows == columns)
        return Overlap(score, score, score)
    pairs = int((maximum_bipartite_matching(csr_array(similarities >= threshold), perm_type="column") >= 0).sum())
    return Overlap(pairs / rows, pairs / columns, 2 * pairs / (rows + columns))


def rouge_similarities(memories: Sequence[str], golds: Sequence[str]) -> "NDArray[np.float32]":
    """(memories, golds) float32: ROUGE-L with stems. A similarity of 1 means the same words in the same order."""
    import numpy as np

    pairs = [(memory, gold) for memory in memories for gold in golds]
    scores = rouge([memory for memory, _ in pairs], [gold for _, gold in pairs], ["rougeL"], stem=True)["rougeL"]
    return np.asarray(scores, dtype=np.float32).reshape(len(memories), len(golds))


def distinct(texts: Iterable[str], order: int) -> float:
    """The share of distinct n-grams among all n-grams of these texts (Li et al., 2016); 0 if there is none.

    The words are those of `token_f1`, as in ParlAI's inter-distinct.
    """
    grams = [gram for text in texts for gram in _grams(_words(text), order)]
    return len(set(grams)) / len(grams) if grams else 0.0


def check_pairs(texts: Sequence[str], golds: Sequence[Gold]) -> None:
    """Raises BadInput unless there is one gold text, or one list of them, for each text."""
    if len(texts) != len(golds):
        raise BadInput(f"{len(texts)} texts and {len(golds)} gold texts cannot be paired; give the same number of both")


def _gold_lists(texts: Sequence[str], golds: Sequence[Gold]) -> list[list[str]]:
    """The gold texts of each text, without empty ones. Raises BadInput if a text has none."""
    check_pairs(texts, golds)
    lists = [[text for text in ([gold] if isinstance(gold, str) else gold) if text.strip()] for gold in golds]
    if not all(lists):
        raise BadInput(f"text {lists.index([]) + 1} has no gold text; give each at least one")
    return lists


def _words(text: str) -> list[str]:
    bare = "".join(" " if character in string.punctuation else character for character in text.lower())
    return _ARTICLES.sub(" ", bare).split()


def _grams(words: Sequence[str], order: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(order)), strict=False)


def _stem_f1(text: str, gold: str) -> float:
    stem = _stemmer().stem
    ours, theirs = (Counter(stem(word) for word in _locomo_words(side)) for side in (text, gold))
    common = (ours & theirs).total()
    return 2 * common / (ours.total() + theirs.total()) if common else 0.0


def _locomo_words(text: str) -> list[str]:
    bare = "".join(character for character in text.replace(",", "").lower() if character not in string.punctuation)
    return _LOCOMO_DROPPED.sub(" ", bare).split()


class _AnyScriptTokenizer:
    """Words of any script, for rouge-score."""

    def tokenize(self, text: str) -> list[str]:
        return _ANY_WORD.findall(text.lower())


@cache
def _stemmer() -> "PorterStemmer":
    with requires("LoCoMo's F1 needs nltk", "eval"):
        from nltk.stem import PorterStemmer
    return PorterStemmer()


@cache
def _bleu(order: Order, *, alone: bool) -> "BLEU":
    with requires("BLEU needs sacrebleu", "eval"):
        from sacrebleu.metrics.bleu import BLEU
    return BLEU(max_ngram_order=order, effective_order=alone)


@cache
def _rouge(kinds: tuple[Kind, ...], stem: bool, any_script: bool) -> "RougeScorer":
    with requires("ROUGE needs rouge-score", "eval"):
        from rouge_score.rouge_scorer import RougeScorer
    return RougeScorer(list(kinds), use_stemmer=stem, tokenizer=_AnyScriptTokenizer() if any_script else None)
