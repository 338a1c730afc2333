"""Statements worth remembering, taken word for word from a dialogue: for a backbone that is too small to summarise it.

A linear model over each sentence's vector and a few cues decides which sentences tell something lasting. They are never
rewritten, so nothing can be remembered that was not said. Trained by `localmem finetune statements`. Does not depend on
any system or prompt.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from localmem.errors import BadInput
from localmem.files import read_json, write_atomic
from localmem.retrieval.base import Encoder
from localmem.turns.utterances import split_sentences

Floats = NDArray[np.float64]

FILE = "statements.json"
_SCALE = 4.0  # of a vector beside the cues: its numbers are small
CUES = 12  # numbers after a sentence's vector
_REMARK = 2  # words that say nothing without the sentence before them
_SHORT = 6  # words of an answer that cannot be understood without its question
_OWN = re.compile(r"\b(?:i|i'm|im|i've|ive|my|me|mine|we|we're|our|us|i'll|i'd)\b", re.IGNORECASE)
_NAME = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z][a-z]+")
_REQUEST = re.compile(
    r"(?:can you|could you|please|write|give|tell|make|propose|set|what|how|is|do|does|which|who|why|where|when|should"
    r"|would)\b",
    re.IGNORECASE,
)
_POINTING = re.compile(r"(?:she|he|it|they|that|this|her|his|there)\b", re.IGNORECASE)
_ASKING = re.compile(
    r"\?\W*$|^(?:(?:now|ok|okay|so|and|then|next|right),? )*"
    r"(?:write|give|tell|draft|make|show|find|list|remind|get|send|help) (?:me|us)\b",
    re.IGNORECASE,
)
_QUOTATION = re.compile(r'(?:Asked ".*", )?[^"]{1,60} said: "(.*)"')
_STATE = re.compile(r"\b(?:is|are|was|were|am|has|have|had|will)\b|'(?:s|m|re|ve|ll)\b", re.IGNORECASE)
_POSSESSION = re.compile(r"\b(?:my|our)\b", re.IGNORECASE)
_CHANGE = re.compile(r"\b(?:now|moved|changed|new|booked|started|from|since|every|not|no longer)\b", re.IGNORECASE)
_PATTERNS = (_REQUEST, _POINTING)  # at the beginning


class Line(NamedTuple):
    """One turn of a dialogue."""

    speaker: str
    text: str


class Statement(NamedTuple):
    """Consecutive sentences of one turn, the question that they answer (or ""), and how much they are worth."""

    speaker: str
    text: str
    question: str
    score: float

    def quote(self) -> str:
        """The statement with its speaker, as a sentence that can be understood on its own."""
        quotation = f'{self.speaker} said: "{self.text}"'
        return f'Asked "{self.question}", {quotation}' if self.question else quotation


class StatementModel(BaseModel):
    """The trained weights: of a sentence's vector, and of its cues. A sentence from `threshold` on is worth keeping."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str
    vector: tuple[float, ...]
    cues: tuple[float, ...]
    bias: float
    threshold: float

    @classmethod
    def load(cls, folder: Path) -> "StatementModel":
        """Reads the folder's file. Raises BadInput if that fails."""
        return read_json(folder / FILE, cls, "install localmem again, or train it with `localmem finetune statements`")

    def save(self, folder: Path) -> None:
        """Writes the file into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / FILE, self.model_dump_json() + "\n")

    def scores(self, features: Floats) -> Floats:
        """(n,) from (n, features). Raises BadInput for features of another encoder's width."""
        weights = np.array([*self.vector, *self.cues])
        if features.shape[1] != len(weights):
            raise BadInput(
                f"the encoder gives {features.shape[1]} features, but there are {len(weights)} weights; use {self.base}"
            )
        scores: Floats = features @ weights + self.bias
        return scores


def sentence_features(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """(n, width + cues) of sentences."""
    rows = np.array(encoder.encode(texts, "passage"), dtype=np.float64)
    return np.concatenate([rows * _SCALE, np.array([_cues(text) for text in texts])], axis=1)


def _cues(text: str) -> list[float]:
    count = len(text.split())
    patterns = (_NAME, _STATE, _POSSESSION, _CHANGE)
    return [
        float(np.log1p(count)),
        float("?" in text),
        float(len(_OWN.findall(text))),
        float(any(map(str.isdigit, text))),
        *(float(pattern.search(text) is not None) for pattern in patterns),
        *(float(pattern.match(text) is not None) for pattern in _PATTERNS),
        float(count <= _SHORT // 2),
        float(count < _SHORT),
    ]


@dataclass(frozen=True, slots=True)
class _Sentence:
    turn: int
    speaker: str
    text: str
    question: str = ""

    @property
    def in_context(self) -> str:
        """What is scored: a short answer together with its question."""
        return f"{self.question.rstrip('?')}: {self.text}" if self.question else self.text


class StatementSelector:
    """Selects by a trained model over the encoder that it was trained on."""

    def __init__(self, encoder: Encoder, model: StatementModel) -> None:
        self._encoder = encoder
        self._model = model

    def select(self, lines: Sequence[Line], speaker: str, limit: int | None = None) -> list[Statement]:
        """What `speaker` said that is worth remembering, in order; the best `limit` of it."""
        own = list(_sentences(lines, speaker))
        if not own:
            return []
        scores = self._model.scores(sentence_features(self._encoder, [sentence.in_context for sentence in own]))
        candidates = np.flatnonzero(scores >= self._model.threshold).tolist()
        worthy = {n for n in candidates if not _ASKING.search(own[n].text)}
        statements = [_join([own[n] for n in run], scores[run].max()) for run in _runs(own, worthy)]
        best = set(sorted(statements, key=lambda statement: -statement.score)[:limit])
        return [statement for statement in statements if statement in best]


def _sentences(lines: Sequence[Line], speaker: str) -> Iterable[_Sentence]:
    before = Line("", "")
    for number, line in enumerate(lines):
        if line.speaker == speaker:
            question = _last_question(before.text) if before.speaker != speaker else ""
            for place, text in enumerate(split_statements(line.text)):
                is_answer = place == 0 and len(text.split()) <= _SHORT and "?" not in text
                yield _Sentence(number, speaker, text, question if is_answer else "")
        before = line


def split_statements(text: str) -> list[str]:
    """The sentences of a text; a remark of one or two words ("81!!", "130 quid.") stands with the one before it."""
    statements: list[str] = []
    for sentence in split_sentences(text):
        is_remark = len(sentence.split()) <= _REMARK and "?" not in sentence
        if is_remark and statements and "?" not in statements[-1]:
            statements[-1] = f"{statements[-1]} {sentence}"
        else:
            statements.append(sentence)
    return statements


def _last_question(text: str) -> str:
    last = split_sentences(text)[-1:]
    return last[0] if last and last[0].endswith("?") else ""


def _runs(own: Sequence[_Sentence], worthy: set[int]) -> list[list[int]]:
    """The sentences that are kept, in runs: one that points back ("She", "That") stands with the one before it."""
    numbers = worthy | {n - 1 for n in worthy if n and _POINTING.match(own[n].text) and own[n].turn == own[n - 1].turn}
    runs: list[list[int]] = []
    for n in sorted(numbers):
        follows = bool(runs) and runs[-1][-1] == n - 1 and own[n].turn == own[n - 1].turn
        if follows and _POINTING.match(own[n].text):
            runs[-1].append(n)
        else:
            runs.append([n])
    return runs


def _join(run: Sequence[_Sentence], score: float) -> Statement:
    return Statement(run[0].speaker, " ".join(sentence.text for sentence in run), run[0].question, float(score))


def bare_statement(quotation: str) -> str:
    """What a statement's quotation quotes; another text as it is."""
    match = _QUOTATION.fullmatch(quotation)
    return match[1] if match else quotation


def read_transcript(text: str, speakers: Iterable[str] = ()) -> list[Line]:
    """The turns of a transcript ("speaker: text" lines); without names, any short beginning before a colon is one."""
    names = "|".join(re.escape(name) for name in speakers if name) or r"[^\s:][^:\n]{0,39}"
    starts = list(re.finditer(rf"^({names}): ", text, re.MULTILINE))
    ends = [*(start.start() for start in starts[1:]), len(text)][: len(starts)]
    return [Line(start[1], text[start.end() : end].strip()) for start, end in zip(starts, ends, strict=True)]
