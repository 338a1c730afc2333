"""The language of a text, and how searches use it."""

import pytest

from localmem.retrieval.bm25 import BM25Retriever, words
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.languages import detect_language, fold_accents
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
        ("Gdzie mieszka moja siostra?", "polish"),
        ("gdzie jest moj rower", "polish"),
        ("cuanto me costo la bici electrica", "spanish"),
        ("q dia tiene natacion Hugo", "spanish"),
        ("onde eu moro agora, vc sabe", "portuguese"),
        ("dov'è che abito adesso", "italian"),
        ("hoe heet mn boekhouder", "dutch"),
        ("combien m'a coûté le vélo", "french"),
        ("fuer wann ist der termin", "german"),
        ("köpeğimin adı ne, hangi cins", "turkish"),
        ("köpeğimin adı ne?", "turkish"),
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


@pytest.mark.parametrize(
    ("language", "text", "query"),
    [
        ("german", "Frau Müller kommt aus Köln", "frau muller"),
        ("german", "Frau Müller kommt aus Köln", "frau mueller"),
        ("german", "frau muller kommt", "Müller"),
        ("spanish", "me operan de la rodilla: operación", "operacion"),
        ("spanish", "la natacion es los jueves", "¿Cuándo es la natación?"),
        ("portuguese", "a operação do joelho", "operacao"),
        ("polish", "Mieszkam w Łodzi", "lodzi"),
        ("turkish", "İstanbul'da yaşıyorum", "istanbul"),
        ("turkish", "köpeğimin adı Karabaş", "kopegim"),
        ("russian", "мой ребёнок ещё мал", "ребенок"),
        ("arabic", "أسكن في القاهرة", "القاهره"),
    ],
)
def test_words_meet_without_their_accents(language: str, text: str, query: str) -> None:
    retriever = BM25Retriever(language=language)
    retriever.add([unit("x", "zzz"), unit("a", text)])
    assert [match.id for match in retriever.search([query], 1)[0]] == ["a"]


def test_letters_of_other_scripts_are_no_accents() -> None:
    assert [fold_accents(word) for word in ("カブ", "が", "한국", "мой", "एक")] == ["カブ", "が", "한국", "мой", "एक"]
