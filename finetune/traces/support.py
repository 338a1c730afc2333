"""Whether a source holds a text's statements, and does not contradict them, by words alone.

That all words of a statement occur somewhere in the source proves nothing: "you live in Porto" can be made of "my
brother moved to Porto" and "I live in Lisbon". So where sentences of the source say most of it, one of them must hold
its names and numbers, be denied where it is, and have the same subject. In a reply only statements about people are
looked at: admitting not to know, asking, advising and general knowledge need no source. The words that tell these apart
are English, and a few of German and French. A falsehood in other words passes: only human answers or a judge find it.
Does not depend on any model.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from localmem.evaluation.metrics.replies import abstains
from localmem.grounding.sources import Sources
from localmem.text.parse import fold, sentences, words

COVERED = 0.3  # share of a statement's words that the source must hold
ALIKE = 0.5  # share of its plain words that a sentence holds which says the same, or contradicts it

_SPEAKER = re.compile(r"^\s*(?:[-*•]\s*)?(?:\[[^\]]*\]\s*|\([^)]*\)\s*)*([^\W\d_][\w .'-]{0,30}?):\s+")
_DENIED = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|without|cannot|nor)\b|n['’]t\b|\bnicht\b|\bkein|\bpas\b", re.IGNORECASE
)
_PERSONAL = re.compile(
    r"\b(?:i|i['’](?:m|ve|d)|me|my|mine|we|our|us|ich|mein\w*|mir|mich|je|mon|ma|mes|moi)\b", re.IGNORECASE
)
_ADDRESSED = re.compile(
    r"\b(?:you|your|yours|you['’](?:re|ve|d)|du|dein\w*|dir|dich|tu|ton|ta|tes|vous|votre|vos)\b", re.IGNORECASE
)
# What is advised, wished or supposed is not stated.
_NOT_STATED = re.compile(
    r"\b(?:could|should|would|might|may|can|must|try|let['’]s|hope|wish|if|maybe|perhaps|consider|recommend|suggest|"
    r"sounds?|let me know|feel free|congratulations|happy to|glad|sorry|thanks?|thank you|enjoy|good luck)\b",
    re.IGNORECASE,
)
_PEOPLE = (
    "brother|sister|mother|father|mum|mom|dad|son|daughter|wife|husband|partner|boyfriend|girlfriend|friend|boss|"
    "cousin|uncle|aunt|nephew|niece|neighbou?r|colleague|roommate|flatmate|grand\\w+|gran|teacher|doctor"
)
_OTHER_SUBJECT = re.compile(
    r"^\W*(?:(?:and|but|so|well|yes|no|oh|also|now)\W+)*(?:my|our|the|his|her)\s+(?:\w+\s+){0,2}?"
    rf"({_PEOPLE})s?\b",
    re.IGNORECASE,
)
_FUNCTION_WORDS = """
a an the and or but of in on at to for from with by as is are was were be been being am do does did have has had having
i me my mine we us our you your yours he him his she her hers it its they them their this that these those there here so
then than too very just also about into over after before when while who what which where how why say said says tell
tells told mention mentioned user assistant not no never will would got get yes well really s t ve re d ll m n"""
_EMPTY_WORDS = frozenset(_FUNCTION_WORDS.split())


@dataclass(frozen=True, slots=True)
class _Passage:
    """A sentence of the source, or a question with its answer. `subject` is somebody else whom it is about, if any."""

    text: str
    stems: frozenset[str]
    denied: bool
    subject: str


def find_unsupported(answer: str, source: str, *, question: str | None = None) -> str | None:
    """The first statement of an answer that the source does not hold or contradicts, or None.

    `question` is the last message of a dialogue if the answer is a reply in it, and `source` what comes before.
    """
    passages, names = _passages(source), frozenset(_speakers(source))
    everything = Sources(source)
    for statement in sentences(answer):
        if question is not None and not is_claim(statement, question):
            continue
        stems = _stems(statement) - names
        covered = sum(everything.holds(stem) for stem in stems)
        if everything.missing(statement) or covered < COVERED * len(stems):
            return statement
        if any(_is_contradicted(clause, statement, passages, names) for clause in _clauses(statement)):
            return statement
    return None


def is_claim(sentence: str, question: str) -> bool:
    """Whether a sentence of a reply states something about people, which must have been said."""
    if abstains(sentence) or sentence.rstrip().endswith("?") or _NOT_STATED.search(sentence):
        return False
    personal = question.rstrip().endswith("?") and _PERSONAL.search(question)
    return bool(personal or _ADDRESSED.search(sentence))


def _clauses(statement: str) -> list[str]:
    """The parts of a statement that have a source each."""
    parts = [part for part in re.split(r"[;,–—]\s|\band\b|\bbut\b|\bwhile\b", statement) if len(_stems(part)) > 1]
    return parts if len(parts) > 1 else [statement]


def _is_contradicted(clause: str, statement: str, passages: Sequence[_Passage], names: frozenset[str]) -> bool:
    """Whether the source denies a clause, or says it of something or somebody else, and nowhere says it."""
    plain = frozenset(stem for stem in _stems(clause) - names if not stem.isdigit() and stem not in _find_names(clause))
    alike = [passage for passage in passages if plain and len(plain & passage.stems) > ALIKE * len(plain)]
    return bool(alike) and not any(_agrees(passage, clause, statement, names) for passage in alike)


def _agrees(passage: _Passage, clause: str, statement: str, names: frozenset[str]) -> bool:
    if bool(_DENIED.search(clause)) != passage.denied:
        return False
    if passage.subject and passage.subject not in _stems(statement):
        return False
    return Sources(f"{passage.text} {' '.join(names)}").missing(clause) is None


def _find_names(text: str) -> frozenset[str]:
    return frozenset(_stem(fold(match)) for match in re.findall(r"(?<=[a-z,] )[A-Z][^\W\d_]+", text))


def _passages(source: str) -> list[_Passage]:
    lines = [_SPEAKER.sub("", line) for line in source.splitlines()]
    pieces = [piece for line in lines for piece in sentences(line) if piece.strip()]
    parts = [part for piece in pieces for part in _clauses(piece) if part != piece]
    # Words with a capital inside a sentence are names; one that begins a sentence is its subject.
    inside = {fold(match) for piece in pieces for match in re.findall(r"(?<=[a-z,] )[A-Z][^\W\d_]+", piece)}
    passages = [_passage(piece, inside) for piece in (*pieces, *parts)]
    answered = [pair for pair in pairwise(pieces) if pair[0].rstrip().endswith("?")]
    return passages + [_join(first, second, inside) for first, second in answered]


def _passage(text: str, names: set[str]) -> _Passage:
    return _Passage(text, _stems(text), bool(_DENIED.search(text)), _subject(text, names))


def _join(question: str, answer: str, names: set[str]) -> _Passage:
    text = f"{question} {answer}"
    return _Passage(text, _stems(text), bool(_DENIED.search(answer)), _subject(question, names))


def _subject(text: str, names: set[str]) -> str:
    if match := _OTHER_SUBJECT.match(text):
        return _stem(fold(match[1]))
    first = next(iter(words(text)), "")
    return _stem(first) if first in names else ""


def _speakers(source: str) -> Iterator[str]:
    for line in source.splitlines():
        if match := _SPEAKER.match(line):
            yield from (_stem(word) for word in words(match[1]))


def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in words(text) if word not in _EMPTY_WORDS)


@cache
def _stem(word: str) -> str:
    """A word without the endings of plurals and verbs."""
    for ending in ("ings", "ing", "ies", "ied", "edly", "ed", "es", "s", "ly", "e"):
        if word.endswith(ending) and len(word) - len(ending) > 2:
            return word.removesuffix(ending)
    return word
