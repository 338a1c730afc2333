"""How far a memory holds what it should: against gold memories, and among what was recalled.

Knows sentences, ids and numbers; no bank, no system, no model. `shared_words` is LLM-Rsum's measure; `matched` counts
sentences, by any similarity, for memories whose sentences say one thing each.
"""

from collections.abc import Collection, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from localmem.errors import BadInput
from localmem.evaluation.metrics.text import Overlap, overlap, rouge

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localmem.retrieval.base import Encoder

ALIKE = 0.5  # ROUGE-L from which two sentences are taken to say the same


class Accuracy(NamedTuple):
    """The share of cases that are right, and 1 or 0 for each."""

    share: float
    each: list[float]


def shared_words(memories: Sequence[str], golds: Sequence[str]) -> Overlap:
    """Precision, recall and F1 of the words of a whole memory (LLM-Rsum, section 6.2 and Figure 4).

    The paper names neither tokens nor code; words are those of `text.token_f1`, its measure of replies.
    """
    return overlap("\n".join(memories), "\n".join(golds))


def match_sentences(similarities: "NDArray[np.float32]", threshold: float = ALIKE) -> Overlap:
    """Precision, recall and F1 of sentences, out of the similarity of each of a memory (row) to each gold one (column).

    A sentence is right when it is paired with a gold one at least `threshold` alike; each stands in one pair at most,
    and the pairing is one with as many pairs as can be (Hopcroft and Karp, by scipy). Nothing against nothing is right.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    if similarities.ndim != 2:
        raise BadInput(f"similarities of shape {similarities.shape} are no table; give a row a memory, a column a gold")
    rows, columns = similarities.shape
    if not rows or not columns:
        alike = float(rows == columns)
        return Overlap(alike, alike, alike)
    pairs = int((maximum_bipartite_matching(csr_array(similarities >= threshold), perm_type="column") >= 0).sum())
    return Overlap(pairs / rows, pairs / columns, 2 * pairs / (rows + columns))


def rouge_similarities(memories: Sequence[str], golds: Sequence[str]) -> "NDArray[np.float32]":
    """Similarities by ROUGE-L with stems; a threshold of 1 asks for the same words in the same order."""
    import numpy as np

    pairs = [(memory, gold) for memory in memories for gold in golds]
    found = rouge([memory for memory, _ in pairs], [gold for _, gold in pairs], ["rougeL"], stem=True)["rougeL"]
    return np.asarray(found, dtype=np.float32).reshape(len(memories), len(golds))


def by_meaning(encoder: "Encoder", memories: Sequence[str], golds: Sequence[str]) -> "NDArray[np.float32]":
    """Similarities by the cosines of the encoder's vectors; which threshold suits depends on the encoder."""
    import numpy as np

    ours = encoder.encode(memories, "passage")
    return np.asarray(ours @ encoder.encode(golds, "passage").T, dtype=np.float32)


def golden_accuracy(
    recalled: Sequence[Collection[str]], golden: Sequence[Collection[str]]
) -> tuple[float, list[float]]:
    """The share of dialogues for which a golden memory was recalled, and 1 or 0 for each (Theanine, Table 3).

    Memories by their ids, or by their texts. Where a dialogue has several golden memories, one of them is enough.
    """
    if len(recalled) != len(golden) or not all(golden):
        raise BadInput(
            f"{len(recalled)} recalls and {len(golden)} lists of golden memories; give one memory each at least"
        )
    each = [float(not set(ours).isdisjoint(theirs)) for ours, theirs in zip(recalled, golden, strict=True)]
    return Accuracy(fmean(each) if each else 0.0, each)
