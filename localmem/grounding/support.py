"""What a statement of a reply rests on: the memory that shares its words, or a name or number that no text holds.

Words alone decide, without a model. A statement rests on the memory that holds most of its words, rare ones counting
more, if that is half of them at least. It is doubtful if it is about the listener, names what neither the memories nor
the dialogue hold, and shares few words with any memory; a number that two others make together is no such name. What
is neither is left alone: free words may well rest on a memory.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from localmem.grounding.sources import Sources
from localmem.retrieval.languages import STOP_WORDS, detect_language, load_stop_words
from localmem.text.parse import words
from localmem.turns.utterances import split_sentences

_ENOUGH = 0.5  # of the weight of a statement's words, to rest on a memory
_LITTLE = 0.3  # of it, for a name that nothing holds to be doubtful
_SHORT = 4  # words of a statement at least
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_LISTENER = frozenset(
    words("""
    you your yours you're you've you'll you'd du dein deine deinen deinem deiner dir dich ihr euch tu ton ta tes toi
    vous votre vos usted su sus tuyo ti te teu tua seu sua jij je jouw u uw
    """)
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of a reply; `memory` is the place of what supports it, `unsupported` an unsaid name or number."""

    text: str
    memory: int | None = None
    unsupported: str = ""


def read_statements(reply: str, memories: Sequence[str], context: str, days: Sequence[date]) -> list[Statement]:
    """The statements of a reply that rest on a memory or are doubtful, in order.

    `context` is all else that was shown to the model, `days` those on which any of it was said.
    """
    language = detect_language(reply, words(reply))
    stop_words = load_stop_words(language) if language in STOP_WORDS else frozenset[str]()
    contents = [_content(memory, stop_words) for memory in memories]
    counts = Counter(word for content in contents for word in content)
    sources = Sources("\n".join([*memories, context]), days)
    statements = []
    for sentence in split_sentences(reply):
        if len(words(sentence)) < _SHORT or sentence.endswith("?"):
            continue
        shares = _shares(_content(sentence, stop_words), contents, counts)
        best = max(range(len(shares)), key=shares.__getitem__, default=None)
        share = shares[best] if best is not None else 0.0
        if share >= _ENOUGH:
            statements.append(Statement(sentence, memory=best))
        elif memories and share <= _LITTLE and (unsupported := _find_unsupported(sentence, sources)):
            statements.append(Statement(sentence, unsupported=unsupported))
    return statements


def _content(text: str, stop_words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words(text) if len(word) > 2 and word not in stop_words)


def _shares(content: frozenset[str], memories: Sequence[frozenset[str]], counts: Counter[str]) -> list[float]:
    """For each memory, the share of the weight of these words that it holds."""
    weights = {word: math.log(1 + len(memories) / (1 + counts[word])) + 1 for word in content}
    total = sum(weights.values()) or 1.0
    return [sum(weights[word] for word in content & memory) / total for memory in memories]


def _find_unsupported(sentence: str, sources: Sources) -> str:
    """A name or number of a sentence about the listener that the sources do not hold, "" if there is none."""
    claim = sources.missing(sentence) if _LISTENER.intersection(words(sentence)) else None
    if claim is None or claim[0] == "date" or (claim[0] == "number" and _is_worked_out(sentence, claim[1], sources)):
        return ""
    return claim[1]


def _is_worked_out(sentence: str, claimed: str, sources: Sources) -> bool:
    """Whether a sentence gives the numbers it comes from, or the sources hold two that make it."""
    if len(_NUMBER.findall(sentence)) > 1:
        return True
    values = {float(match.replace(",", "")) for match in _NUMBER.findall(sources.text) if match.count(".") < 2}
    value = float(claimed.replace(",", "")) if claimed.count(".") < 2 else math.nan
    return any(
        other in values and other != number
        for number in values
        for other in (number + value, value - number, value / number if number else math.nan)
    )
