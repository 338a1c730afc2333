"""How much of the gold memory a memory contains, as precision, recall and F1 of words or of sentences.

Does not depend on a bank, a system or a model.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from localmem.errors import BadInput
from localmem.evaluation.metrics.text import Overlap, overlap, rouge

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MATCH_THRESHOLD = 0.5  # the ROUGE-L from which two sentences count as saying the same


def shared_words(memories: Sequence[str], golds: Sequence[str]) -> Overlap:
    """Precision, recall and F1 of the words of a complete memory (LLM-Rsum, section 6.2 and Figure 4).

    The paper names neither tokens nor code; words are those of `text.token_f1`, its measure of replies.
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
