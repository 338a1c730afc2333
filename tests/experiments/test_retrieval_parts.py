"""Retrievers over texts and over single sentences of units."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.config import load_settings
from localmem.evaluation.evidence_retrieval import KeyForm, apply_key_form, build_turns
from localmem.experiments.retrieval_parts import RetrievalParts, SentenceRetriever, TextRetriever
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.encoder import SentenceEncoder
from tests.fakes import WordEncoder, session, unit


def test_texts_are_indexed_in_place_of_wide_keys() -> None:
    sessions = [session("I like tea.", "Noted.", "And cake.", "Fine.")]
    units = apply_key_form(build_turns(sessions), sessions, KeyForm("plain", before=1))
    by_key, by_text = BM25Retriever(), TextRetriever(BM25Retriever())
    by_key.add(units)
    by_text.add(units)
    assert {match.id for match in by_key.search(["cake"], 5)[0]} == {"s1/t2", "s1/t3"}
    assert {match.id for match in by_text.search(["cake"], 5)[0]} == {"s1/t2"}
    assert by_text.memory > 0
    by_text.remove(["s1/t2"])
    assert by_text.search(["cake"], 5) == [[]]


def test_a_unit_scores_as_its_best_sentence() -> None:
    long = unit("long", "I baked bread today. My parrot sings at night. The weather was mild and grey all week.")
    short = unit("short", "My dog sings badly.")
    by_key, by_sentence = DenseRetriever(WordEncoder()), SentenceRetriever(DenseRetriever(WordEncoder()))
    by_key.add([long, short])
    by_sentence.add([long, short])
    by_sentence.add([long])
    query = "my parrot sings"
    assert by_key.search([query], 2)[0][0].id == "short"  # one vector of the long turn is near to none of its sentences
    first, second = by_sentence.search([query, ""], 2)
    assert [match.id for match in first] == ["long", "short"]
    assert first[0].score == dense_score("My parrot sings at night.", query)
    assert second == []
    assert by_sentence.memory > 0
    by_sentence.remove(["long", "unknown"])
    assert [match.id for match in by_sentence.search([query], 2)[0]] == ["short"]


def test_many_sentences_of_one_unit_do_not_displace_other_units() -> None:
    retriever = SentenceRetriever(BM25Retriever())
    many = unit("many", "A bird sang. A bird flew. A bird slept. A bird ate.")
    retriever.add([many, unit("one", "Some bird is here.")])
    assert {match.id for match in retriever.search(["bird"], 2)[0]} == {"many", "one"}
    assert len(retriever.search(["bird"], 1)[0]) == 1


def dense_score(text: str, query: str) -> float:
    index = DenseRetriever(WordEncoder())
    index.add([unit("alone", text)])
    return index.search([query], 1)[0][0].score


def test_a_question_that_is_searched_for_alone_is_encoded_each_time(
    tmp_path: Path, starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is timed is a search with the encoding of its question."""
    counts: list[int] = []
    run = SentenceEncoder._encode_batches

    def spy(encoder: SentenceEncoder, texts: list[str]) -> list[tuple[NDArray[np.float32], bool]]:
        counts.append(len(texts))
        return run(encoder, texts)

    monkeypatch.setattr(SentenceEncoder, "_encode_batches", spy)
    with ExitStack() as stack:
        encoder = RetrievalParts(load_settings(None), tmp_path, stack, print, 3, 0).encoder
        encoder.encode(["Where is the parrot?", "Who moved?"], "query")
        for _ in range(2):
            encoder.encode(["Where is the parrot?"], "query")
    assert counts == [2, 1, 1]
