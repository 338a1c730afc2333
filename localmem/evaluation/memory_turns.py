"""Memory turns: the replies of a data set that rest on its gold memory (Keep Me Updated, Table 4).

The authors had people mark the turns "annotated to use memory explicitly", 22.4 % of their test set; the published
files lack the marks. Here a reply uses a sentence of the memory if both share a word, by its root, that is no stop word
and that the dialogue before the reply does not hold. Depends on no model.
"""

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

from localmem.evaluation.episodes import Episode, Probe
from localmem.retrieval.bm25 import words
from localmem.retrieval.languages import detect_language, load_stop_words

if TYPE_CHECKING:
    from Stemmer import Stemmer

_HANGUL = re.compile("[\uac00-\ud7a3]")
_LETTERS = 4  # at the beginning of a Korean word: its root, as a rule, without particles and endings


def used_sentences(episode: Episode, probe: Probe) -> tuple[str, ...]:
    """The sentences of the memory before the reply that it uses; none for a question."""
    if probe.kind != "next":
        return ()
    memory = episode.golds.get(probe.after, episode.memories)
    before = _roots("\n".join([*(turn.text for turn in probe.dialogue), probe.question]))
    new = _roots(probe.answer) - before
    return tuple(unit.text for unit in memory if not new.isdisjoint(_roots(unit.text)))


def _roots(text: str) -> set[str]:
    tokens = words(text)
    language = detect_language(text, tokens)
    stop_words = load_stop_words("english") | (load_stop_words(language) if language == "korean" else frozenset())
    return {_root(token) for token in tokens if token not in stop_words and len(token) > 1}


def _root(word: str) -> str:
    if _HANGUL.match(word):
        return unicodedata.normalize("NFD", word)[:_LETTERS]
    return str(_stemmer().stemWord(word))


@cache
def _stemmer() -> "Stemmer":
    from Stemmer import Stemmer

    return Stemmer("english")
