"""Indexes over something else than keys."""

from localmem.evaluation.retriever_wrappers import BestSentence, ReadsText
from localmem.evaluation.unit_builders import KeyForm, keyed, turns_of
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
from tests.fakes import WordEncoder, session, unit


def test_an_index_can_read_what_is_shown_in_place_of_wide_keys() -> None:
    said = [session("I like tea.", "Noted.", "And cake.", "Fine.")]
    units = keyed(turns_of(said), said, KeyForm("plain", before=1))
    wide, narrow = BM25Retriever(), ReadsText(BM25Retriever())
    wide.add(units)
    narrow.add(units)
    assert {match.id for match in wide.search(["cake"], 5)[0]} == {"s1/t2", "s1/t3"}
    assert {match.id for match in narrow.search(["cake"], 5)[0]} == {"s1/t2"}
    assert narrow.memory > 0
    narrow.remove(["s1/t2"])
    assert narrow.search(["cake"], 5) == [[]]


def test_a_unit_scores_as_its_best_sentence() -> None:
    long = unit("long", "I baked bread today. My parrot sings at night. The weather was mild and grey all week.")
    short = unit("short", "My dog sings badly.")
    whole, best = DenseRetriever(WordEncoder()), BestSentence(DenseRetriever(WordEncoder()))
    whole.add([long, short])
    best.add([long, short])
    best.add([long])
    query = "my parrot sings"
    assert whole.search([query], 2)[0][0].id == "short"  # the long turn's vector is near to none of what it says
    found = best.search([query, ""], 2)
    assert [match.id for match in found[0]] == ["long", "short"]
    assert found[0][0].score == _score("My parrot sings at night.", query)
    assert found[1] == []
    assert best.memory > 0
    best.remove(["long", "unknown"])
    assert [match.id for match in best.search([query], 2)[0]] == ["short"]


def test_as_many_units_are_found_as_are_asked_for() -> None:
    best = BestSentence(BM25Retriever())
    best.add([unit("many", "A bird sang. A bird flew. A bird slept. A bird ate."), unit("one", "Some bird is here.")])
    assert {match.id for match in best.search(["bird"], 2)[0]} == {"many", "one"}
    assert len(best.search(["bird"], 1)[0]) == 1


def _score(text: str, query: str) -> float:
    index = DenseRetriever(WordEncoder())
    index.add([unit("alone", text)])
    return index.search([query], 1)[0][0].score
