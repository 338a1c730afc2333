"""The language of a text, and how searches use it."""

import pytest

from localmem.retrieval.bm25 import BM25Retriever, words
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.languages import detect_language
from localmem.retrieval.views import Indexes, ViewRetriever
from tests.fakes import WordEncoder, unit


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Where did I leave the keys of the car?", "english"),
        ("What name did you suggest for my dog?", "english"),
        ("which van am i after", "english"),
        ("Wo habe ich denn die Schlüssel für das Auto hingelegt?", "german"),
        ("Où est-ce que j'ai mis les clés de la voiture ?", "french"),
        ("¿Dónde dejé las llaves de mi coche nuevo?", "spanish"),
        ("我把车钥匙放在哪里了？", "chinese"),
        ("車の鍵はどこに置きましたか", "japanese"),
        ("Где мои ключи от машины?", "russian"),
        ("Bruno", None),
    ],
)
def test_languages_are_told_apart(text: str, language: str | None) -> None:
    assert detect_language(text, words(text)) == language


def test_words_are_stemmed_in_the_language_of_each_text() -> None:
    retriever = BM25Retriever(language="auto")
    retriever.add([
        unit("de", "Ich habe die Hosen für das Kind gekürzt und die Jacken auch."),
        unit("en", "I was mending the trousers for the child and the jackets too."),
    ])  # fmt: skip
    assert [match.id for match in retriever.search(["Was ist mit der Jacke und der Hose?"], 5)[0]] == ["de"]
    assert [match.id for match in retriever.search(["Who did mend the jacket for me?"], 5)[0]] == ["en"]


def test_vectors_count_for_less_in_a_language_that_the_encoder_does_not_know() -> None:
    def score(languages: list[str]) -> float:
        retriever = ViewRetriever(Indexes(DenseRetriever(WordEncoder()), None, None), languages)
        retriever.add([unit("house", "wo ist mein Haus und der Garten")])
        return retriever.search(["wo ist der Garten und das Haus"], 1)[0][0].score

    assert score(["english"]) < score(["german", "english"]) == score([])
