"""Retrievers over texts and over single sentences of units."""

from localmem.evaluation.evidence_retrieval import KeyForm, apply_key_form, build_turns
from localmem.experiments.retrieval_parts import SentenceRetriever, TextRetriever
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
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
