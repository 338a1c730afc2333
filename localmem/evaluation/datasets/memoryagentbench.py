"""MemoryAgentBench (Hu et al., ICLR 2026): one long text, read piece by piece, and many questions about it.

Source: ai-hyz/MemoryAgentBench on the Hugging Face hub, splits Accurate_Retrieval, Test_Time_Learning,
Long_Range_Understanding and Conflict_Resolution, as JSON lines (`scripts/fetch_data.py` converts the published tables).
Licence: MIT.

A text is an episode. As its authors do, it is cut into pieces of whole sentences, each a session in which the user says
it; here a piece has about 2,000 characters, near their 512 tokens. The answers of a question are equally right. There
are no times (sessions are a day apart from 1970 on) and no evidence.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import UNDATED, Reading, Record, build_session, read_episodes
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of

COUNTS = (6, 8, 22, 110)  # texts of the four splits
PIECE = 2000  # characters

_USER = "User"
_SENTENCE = re.compile(r"\S.*?(?:[.!?]+[\"'”’)]*(?=\s)|\n|$)", re.DOTALL)


class _Metadata(Record):
    source: str = ""
    qa_pair_ids: list[str] | None = None
    question_types: list[str] | None = None


class _Text(Record):
    context: str = Field(min_length=1)
    questions: list[str]
    answers: list[str | list[str]]
    metadata: _Metadata


def read(path: Path) -> Dataset:
    """One episode per text. Raises BadInput with file and line."""
    return read_episodes("memoryagentbench", path, _Text, _episode, texts=COUNTS)


def _episode(place: str, record: _Text, reading: Reading) -> Episode:
    if len(record.questions) != len(record.answers):
        counts = f"{len(record.questions)} questions have {len(record.answers)} answers"
        raise BadInput(f"{place}: {counts}; use MemoryAgentBench's own file")
    source = record.metadata.source
    name = reading.unique(source or "text")
    sessions = tuple(
        build_session(f"{name}/{number}", [(_USER, piece)], _USER, UNDATED + timedelta(days=number))
        for number, piece in enumerate(_pieces(record.context), start=1)
    )
    ids, types = (field or [] for field in (record.metadata.qa_pair_ids, record.metadata.question_types))
    probes = []
    for number, (question, answer) in enumerate(zip(record.questions, record.answers, strict=True)):
        first, *others = [answer] if isinstance(answer, str) else answer or [""]
        key = ids[number] if number < len(ids) else f"{name}/q{number}"
        kind = types[number] if number < len(types) else source
        probes.append(Probe(key, question, first, kind, others=tuple(others)))
    return Episode(name, half_of(name), sessions, tuple(probes))


def _pieces(text: str) -> Iterator[str]:
    """Whole sentences up to a piece's size; a longer sentence is a piece of its own."""
    piece = ""
    for match in _SENTENCE.finditer(text):
        sentence = match[0].strip()
        if piece and len(piece) + len(sentence) >= PIECE:
            yield piece
            piece = ""
        piece = f"{piece} {sentence}".strip()
    if piece:
        yield piece
